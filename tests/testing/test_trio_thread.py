"""Brokers of several tests in one thread: what happens to one concerns no other."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.testing import UnhitFaultError, WaitTimeoutError, trio_thread
from rocketmq_sdk.testing.threads import BlockingBroker, BrokerThread
from rocketmq_sdk.testing.trio_thread import KeptThread, TrioThread

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time


@pytest.fixture
def kept() -> Iterator[KeptThread]:
    kept = KeptThread()
    yield kept
    kept.end()


def broker_in(kept: KeptThread, **options: object) -> BrokerThread:
    return BrokerThread(**options).within(kept.get())


def test_brokers_share_the_thread_and_nothing_else(kept: KeptThread) -> None:
    with broker_in(kept) as one, broker_in(kept) as other:
        seeded, empty = BlockingBroker(one), BlockingBroker(other)
        seeded.seed(messages={"orders": ["1"]})
        assert one.look(threading.get_ident) == other.look(threading.get_ident)
        assert seeded.namesrv_address != empty.namesrv_address
        assert (len(seeded.sent("orders")), empty.sent("orders")) == (1, [])


def test_an_address_is_free_again_at_the_end(kept: KeptThread) -> None:
    with broker_in(kept) as thread:
        address = BlockingBroker(thread).address
    with broker_in(kept, listen=address) as thread:
        assert BlockingBroker(thread).address == address


def test_what_goes_wrong_with_one_broker_reaches_the_one_who_has_it(kept: KeptThread) -> None:
    with broker_in(kept) as good:
        with pytest.raises(ConfigurationError), broker_in(kept, brokr_name="x"):
            pass
        with pytest.raises(UnhitFaultError), broker_in(kept) as thread:
            BlockingBroker(thread).faults.on("send").refuse()
        thread = broker_in(kept).__enter__()
        nursery = thread.broker._nursery
        assert nursery is not None

        async def fail() -> None:
            raise SystemExit("out of the blue")

        thread.look(lambda: nursery.start_soon(fail))
        with pytest.raises(BaseException, match="out of the blue"):
            thread.__exit__(None, None, None)
        assert BlockingBroker(good).health()
    assert kept.get().usable


def test_who_waits_is_told_that_the_broker_has_ended(kept: KeptThread) -> None:
    waiting, told = threading.Event(), list[BaseException]()

    async def wait() -> None:
        waiting.set()
        await trio.sleep_forever()

    def call() -> None:
        try:
            thread.run(wait)
        except ClosedError as error:
            told.append(error)

    with broker_in(kept) as thread:
        caller = threading.Thread(target=call)
        caller.start()
        assert waiting.wait(10)
    caller.join(10)
    assert [str(error) for error in told] == ["the test broker has ended"]
    with pytest.raises(ClosedError, match="has ended"):
        thread.look(int)
    with pytest.raises(ClosedError, match="opened once"):
        thread.__enter__()


def test_a_broker_that_does_not_end_leaves_the_next_one_another_thread(
    kept: KeptThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_sdk.testing.threads.END_WITHIN", 0.05)
    go_on = threading.Event()
    thread = broker_in(kept).__enter__()
    stuck = kept.get()
    stuck.tell(lambda: go_on.wait(20))
    with pytest.raises(WaitTimeoutError, match="did not end in time"):
        thread.__exit__(None, None, None)
    assert not stuck.usable
    try:
        with broker_in(kept) as other:
            assert other.look(threading.get_ident) != stuck._thread.ident
    finally:
        go_on.set()
        stuck.end()
    with pytest.raises(ClosedError):
        thread.look(int)


def test_one_that_does_not_end_keeps_no_other_from_it(kept: KeptThread) -> None:
    with broker_in(kept) as thread:
        kept.get().give_up()
    with pytest.raises(ClosedError, match="the test broker has ended"):
        thread.look(int)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(split_address(str(thread.broker.namesrv_address)), 5)


def test_the_end_of_the_thread_is_the_end_of_all_in_it() -> None:
    shared = TrioThread()
    thread = BrokerThread().within(shared).__enter__()
    shared.end()
    assert not shared.usable
    with pytest.raises(ClosedError, match="has ended"):
        thread.look(int)
    with pytest.raises(ClosedError, match="has ended"):
        thread.__exit__(None, None, None)
    with pytest.raises(ClosedError, match="thread of the test broker has ended"):
        BrokerThread().within(shared).__enter__()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own(kept: KeptThread) -> None:
    with broker_in(kept) as thread:
        child = os.fork()
        if not child:
            code = 1
            try:
                with pytest.raises(ClosedError, match="forked"):
                    thread.look(int)
                thread.__exit__(None, None, None)
                with broker_in(kept) as own:
                    code = 0 if BlockingBroker(own).sent("orders") == [] else 2
            finally:
                os._exit(code)
        ends = time.monotonic() + 20
        while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
            time.sleep(0.01)
        assert ended == (child, 0)
        assert BlockingBroker(thread).health()


def test_a_thread_that_cannot_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(trio_thread.trio, "run", refuse)
    with pytest.raises(OSError, match="too many open files"):
        TrioThread()
