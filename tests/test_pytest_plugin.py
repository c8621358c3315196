"""The pytest plugin, in projects of all kinds."""

from __future__ import annotations

import pytest

from rocketmq_sdk.testing.threads import BlockingBroker, BrokerThread

# Warnings of other plugins about the small projects are no errors.
pytestmark = [pytest.mark.real_time, pytest.mark.filterwarnings("default")]
pytest_plugins = ["pytester"]

TRIO_MODE = "[pytest]\ntrio_mode = true\n"
ASYNCIO_AUTO = "[pytest]\nasyncio_mode = auto\n"
NOTHING = "[pytest]\n"
PLAIN_TEST = """
    import trio
    from rocketmq_sdk import Message, Producer

    async def send(address, body):
        async with Producer("shop", namesrv=address) as producer:
            await producer.send(Message("orders", body))

    def test_plain(rocketmq_broker, rocketmq_address):
        assert type(rocketmq_broker).__name__ == "BlockingBroker"
        assert rocketmq_broker.sent("orders") == []
        trio.run(send, rocketmq_address, b"1")
        rocketmq_broker.kill()
        rocketmq_broker.start()
        (message,) = rocketmq_broker.wait.stored("orders")
        assert message.body == b"1"

    def test_the_next_broker_is_new(rocketmq_broker):
        assert rocketmq_broker.sent("orders") == []
        assert rocketmq_broker.requests() == []
"""
ASYNCIO_TEST = """
    import asyncio, trio, pytest
    from rocketmq_sdk import Message, Producer

    async def send(address, body):
        async with Producer("shop", namesrv=address) as producer:
            await producer.send(Message("orders", body))

    {mark}
    async def test_asyncio(rocketmq_broker, rocketmq_address):
        asyncio.get_running_loop()
        assert type(rocketmq_broker).__name__ == "AsyncioBroker"
        fault = rocketmq_broker.faults.on("send", times=1).refuse()
        await asyncio.to_thread(trio.run, send, rocketmq_address, b"1")
        await rocketmq_broker.restart()
        (message,) = await rocketmq_broker.wait.stored("orders")
        await rocketmq_broker.wait.hit(fault)
        await rocketmq_broker.wait.until(lambda: True, "nothing")
        assert message.body == b"1"
"""
TRIO_TEST = """
    import pytest
    from rocketmq_sdk import Message, Producer
    from rocketmq_sdk.testing.threads import BlockingBroker, BrokerThread

    {mark}
    async def test_trio(rocketmq_broker):
        assert type(rocketmq_broker).__name__ == "TestBroker"
        async with Producer("shop", namesrv=rocketmq_broker) as producer:
            await producer.send(Message("orders", b"1"))
        await rocketmq_broker.restart()
        (message,) = await rocketmq_broker.wait.stored("orders")
"""


def run(
    pytester: pytest.Pytester,
    ini: str,
    test: str,
    *arguments: str,
    without: str = "",
    apart: bool = False,
) -> pytest.RunResult:
    """Run a file of tests in a project, in this process unless it needs several."""
    pytester.makeini(ini)
    pytester.makepyfile(test)
    off = [part for name in without.split() for part in ("-p", f"no:{name}")]
    run = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    return run("-p", "no:cacheprovider", *off, *arguments)


@pytest.mark.parametrize(
    ("ini", "mark", "test"),
    [
        pytest.param(TRIO_MODE, "", TRIO_TEST, id="trio mode"),
        pytest.param(NOTHING, "@pytest.mark.trio", TRIO_TEST, id="trio mark"),
        pytest.param(ASYNCIO_AUTO, "", ASYNCIO_TEST, id="asyncio auto"),
        pytest.param(NOTHING, "@pytest.mark.asyncio", ASYNCIO_TEST, id="asyncio strict"),
        pytest.param(
            NOTHING,
            '@pytest.mark.anyio\n    @pytest.mark.parametrize("anyio_backend", ["asyncio"])',
            ASYNCIO_TEST,
            id="anyio on asyncio",
        ),
        pytest.param(
            NOTHING,
            '@pytest.mark.anyio\n    @pytest.mark.parametrize("anyio_backend", ["trio"])',
            TRIO_TEST,
            id="anyio on trio",
        ),
    ],
)
def test_async_tests_have_the_broker_of_their_loop(
    pytester: pytest.Pytester, ini: str, mark: str, test: str
) -> None:
    run(pytester, ini, test.format(mark=mark)).assert_outcomes(passed=1)


@pytest.mark.parametrize("ini", [TRIO_MODE, NOTHING, ASYNCIO_AUTO])
def test_plain_tests_have_a_broker_in_a_thread(pytester: pytest.Pytester, ini: str) -> None:
    run(pytester, ini, PLAIN_TEST).assert_outcomes(passed=2)


def test_it_works_without_pytest_trio(pytester: pytest.Pytester) -> None:
    test = ASYNCIO_TEST.format(mark="")
    run(pytester, ASYNCIO_AUTO, test, without="trio anyio").assert_outcomes(passed=1)
    run(pytester, NOTHING, PLAIN_TEST, without="trio anyio asyncio").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("without", "lines"),
    [
        ("asyncio anyio", ["*trio_mode = true*pytest-trio*"]),
        ("trio anyio", ['*asyncio_mode = "auto"*pytest-asyncio*']),
        ("trio asyncio", ['*anyio_mode = "auto"*']),
        ("", ["*trio_mode = true*", '*asyncio_mode = "auto"*', '*anyio_mode = "auto"*']),
        ("trio asyncio anyio", ["*install pytest-trio*"]),
    ],
)
def test_an_async_test_that_nothing_runs_is_told_the_line_to_add(
    pytester: pytest.Pytester, without: str, lines: list[str]
) -> None:
    test = """
        async def test_x(rocketmq_broker):
            pass

        def test_that_follows(rocketmq_broker):
            assert rocketmq_broker.namesrv_address
    """
    result = run(pytester, NOTHING, test, without=without)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*test_x is async, and nothing runs async tests here*", *lines])


def test_ports_and_a_jumping_clock_do_not_go_together(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        TRIO_MODE,
        """
        async def test_x(rocketmq_broker, rocketmq_address, autojump_clock):
            pass
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*leave autojump_clock out*"])


def test_ports_of_a_trio_test_are_those_of_its_broker(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        TRIO_MODE,
        """
        from rocketmq_sdk import Message, Producer

        async def test_x(rocketmq_address, rocketmq_broker):
            async with Producer("shop", namesrv=rocketmq_address) as producer:
                await producer.send(Message("orders", b"1"))
            assert len(rocketmq_broker.sent("orders")) == 1
        """,
    ).assert_outcomes(passed=1)


MARKED = """
    import pytest

    @pytest.mark.rocketmq(topics={{"orders": 2}}, messages={{"orders": ["1"]}}, broker_name="shop")
    {begin} test_marked(rocketmq_broker):
        assert len(rocketmq_broker.sent("orders")) == 1
        assert rocketmq_broker.sent("orders")[0].broker_name == "shop"
"""


@pytest.mark.parametrize(
    ("ini", "begin"), [(TRIO_MODE, "async def"), (NOTHING, "def"), (ASYNCIO_AUTO, "async def")]
)
def test_the_marker_gives_settings_and_seeds(
    pytester: pytest.Pytester, ini: str, begin: str
) -> None:
    result = run(pytester, ini + "addopts = --strict-markers\n", MARKED.format(begin=begin))
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ('brokr_name="shop"', "no setting brokr_name; did you mean broker_name"),
        ("stirct=True", "no setting stirct; did you mean strict"),
        ("topcs=4", "no setting topcs; did you mean topics"),
        ("emulat=4", "no setting emulat; did you mean emulate"),
        ("master=2", "no setting master; did you mean masters"),
        ("namesrv_lisen=0", "no setting namesrv_lisen; did you mean namesrv_listen"),
    ],
)
def test_a_setting_that_does_not_exist_is_named(
    pytester: pytest.Pytester, wrong: str, meant: str
) -> None:
    result = run(
        pytester,
        NOTHING,
        f"""
        import pytest

        @pytest.mark.rocketmq({wrong})
        def test_x(rocketmq_broker):
            pass
        """,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{meant}*"])


@pytest.mark.parametrize("scope", ["module", "session"])
def test_with_a_wider_scope_the_port_stays_and_each_test_finds_a_new_broker(
    pytester: pytest.Pytester, scope: str
) -> None:
    result = run(
        pytester,
        NOTHING,
        """
        import pytest, trio
        from rocketmq_sdk import Message, Producer

        seen = set()

        async def send(address):
            async with Producer("shop", namesrv=address) as producer:
                await producer.send(Message("orders", b"1"))

        @pytest.mark.parametrize("number", range(3))
        def test_new(rocketmq_broker, rocketmq_address, number):
            seen.add(rocketmq_address)
            assert len(seen) == 1
            assert rocketmq_broker.sent("orders") == []
            trio.run(send, rocketmq_address)

        @pytest.mark.rocketmq(keep=True)
        def test_kept(rocketmq_broker):
            assert len(rocketmq_broker.sent("orders")) == 1
        """,
        f"--rocketmq-scope={scope}",
    )
    result.assert_outcomes(passed=4)


@pytest.mark.slow  # starts three interpreters
def test_many_processes_do_not_meet(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        NOTHING,
        """
        import pytest, trio
        from rocketmq_sdk import Message, Producer

        async def send(address):
            async with Producer("shop", namesrv=address) as producer:
                await producer.send(Message("orders", b"1"))

        @pytest.mark.parametrize("number", range(6))
        def test_alone(rocketmq_broker, number):
            trio.run(send, rocketmq_broker.namesrv_address)
            assert len(rocketmq_broker.sent("orders")) == 1
        """,
        "-n2",
        "--rocketmq-scope=session",
        apart=True,
    ).assert_outcomes(passed=6)


@pytest.mark.parametrize("ini", [TRIO_MODE, ASYNCIO_AUTO, NOTHING])
def test_a_test_may_have_a_broker_and_a_cluster(pytester: pytest.Pytester, ini: str) -> None:
    word = "def" if ini == NOTHING else "async def"
    test = f"""
        {word} test_passes(rocketmq_broker, rocketmq_cluster): ...
        {word} test_fails(rocketmq_cluster, rocketmq_broker): assert False
    """
    result = run(pytester, ini, test)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*what the RocketMQ broker saw*", "--- broker-b", "requests: *"])


@pytest.mark.parametrize(
    ("ini", "begin", "wait"),
    [(TRIO_MODE, "async def", "await"), (NOTHING, "def", ""), (ASYNCIO_AUTO, "async def", "await")],
)
def test_a_failure_shows_what_the_broker_saw(
    pytester: pytest.Pytester, ini: str, begin: str, wait: str
) -> None:
    result = run(
        pytester,
        ini,
        f"""
        import pytest

        @pytest.mark.rocketmq(messages={{"orders": ["1"]}})
        {begin} test_x(rocketmq_broker):
            {wait} rocketmq_broker.wait.stored("orders", 2, within=0.1)
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*waited 0.1 s for 2 messages*", "*what the RocketMQ broker saw*", "*'orders' holds 1*"]
    )


@pytest.mark.parametrize("ini", [TRIO_MODE, ASYNCIO_AUTO])
def test_a_fault_that_met_nothing_fails_the_test(pytester: pytest.Pytester, ini: str) -> None:
    result = run(
        pytester,
        ini,
        """
        async def test_x(rocketmq_broker):
            rocketmq_broker.faults.on("send").refuse()
        """,
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*UnhitFaultError: <fault on send: answer*met no request*"])


OF_DOORS = {
    "trio": (TRIO_MODE, "rocketmq_sdk", True),
    "asyncio": (ASYNCIO_AUTO, "rocketmq_sdk.aio", True),
    "plain": (NOTHING, "rocketmq_sdk.sync", False),
}
"""How tests run, what they import, whether they are async."""
REAL = """
    import pytest
    from rocketmq_sdk import ConsumeFrom, Message, RejectMessage
    from DOOR import Producer, PushConsumer

    @pytest.mark.rocketmq(
        topics={"orders": 2},
        messages={"orders": [{"body": "0", "queue": 1}]},
        offsets={"audit": {"orders": [0, 1]}},
        strict=True,
    )
    async def test_uses(rocketmq_broker, rocketmq_address):
        async def reject(message):
            raise RejectMessage

        broker = rocketmq_broker
        assert broker.running and [m.queue_id for m in broker.sent("orders")] == [1]
        await broker.wait.committed("audit", "orders", {1: 1})
        await broker.wait.lag("audit", "orders")
        async with (
            Producer("shop", namesrv=rocketmq_address) as producer,
            PushConsumer("billing", namesrv=rocketmq_address, subscriptions={"orders": "*"},
                listener=reject, consume_from=ConsumeFrom.FIRST_OFFSET),
        ):
            await producer.send(Message("orders", b"1"))
            assert len(await broker.wait.group("billing")) == 1
            assert sorted(m.body for m in await broker.wait.stored("orders", 2)) == [b"0", b"1"]
            assert len(await broker.wait.dead_letter("billing", 2)) == 2
            await broker.wait.lag("billing", "orders")
            await broker.wait.committed("billing", "orders")
            await broker.seed(messages={"orders": ["2"]})
            await broker.wait.until(lambda: len(broker.sent("orders")) == 3, "the third")
            with pytest.raises(AssertionError, match=r"9 messages in 'orders', but .* holds 3"):
                await broker.wait.stored("orders", 9, within=0.3)
            with pytest.raises(AssertionError, match=r"waited 0\\.1 s for rain"):
                await broker.wait.until(lambda: False, "rain", within=0.1)

    async def test_waits_for_a_group_that_nobody_knows_yet(rocketmq_broker):
        with pytest.raises(AssertionError, match="at most 0 behind, but .*nobody"):
            await rocketmq_broker.wait.lag("nobody", "orders", within=0.3)

    @pytest.mark.rocketmq(strict=True)
    async def test_is_strict(rocketmq_broker, rocketmq_address):
        calls = []

        async def fail(message):
            calls.append(message)
            raise RuntimeError("out of stock")

        async with (
            Producer("shop", namesrv=rocketmq_address) as producer,
            PushConsumer("strict", namesrv=rocketmq_address, subscriptions={"failing": "*"},
                listener=fail, consume_from=ConsumeFrom.FIRST_OFFSET),
        ):
            await producer.send(Message("failing", b"1"))
            await rocketmq_broker.wait.until(lambda: calls, "a call")

    async def test_needs_faults(rocketmq_broker):
        rocketmq_broker.faults.on("send").refuse()

    async def test_needs_rest(rocketmq_broker):
        await rocketmq_broker.wait.settled()

    @pytest.mark.rocketmq(broker_name="shop")
    async def test_needs_a_name(rocketmq_broker):
        pass

    async def test_needs_virtual_time(rocketmq_broker, autojump_clock):
        pass
"""


def unawaited(text: str) -> str:
    """A program for plain code."""
    return text.replace("await ", "").replace("async ", "")


@pytest.mark.slow  # a group forms in real time
@pytest.mark.parametrize("runner", OF_DOORS)
def test_the_same_tests_run_with_a_real_cluster(pytester: pytest.Pytester, runner: str) -> None:
    ini, door, is_async = OF_DOORS[runner]
    test = REAL.replace("DOOR", door)
    with BrokerThread() as thread:
        address = BlockingBroker(thread).namesrv_address
        result = run(
            pytester,
            ini,
            test if is_async else unawaited(test),
            "-rs",
            f"--rocketmq-namesrv={address}",
            apart=True,
        )
    result.assert_outcomes(passed=3, skipped=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ListenerRaisedError: *listener failed*RuntimeError: out of stock*",
            "*a real cluster has no 'faults'*",
            "*a real cluster cannot be waited for by 'settled'*",
            "*a real cluster is not made as a test says: broker_name*",
            "*a real cluster knows no virtual time*",
        ]
    )


def test_a_cluster_is_as_the_marker_says(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        TRIO_MODE,
        """
        import pytest
        from rocketmq_sdk import Message, Producer

        @pytest.mark.rocketmq(masters=1, slaves=1, topics={"orders": 1})
        async def test_x(rocketmq_cluster, autojump_clock):
            assert list(rocketmq_cluster.brokers) == ["broker-a", "broker-a-slave-1"]
            async with Producer("shop", namesrv=rocketmq_cluster) as producer:
                await producer.send(Message("orders", b"1"))
            await rocketmq_cluster.wait.copied(within=100)
        """,
    ).assert_outcomes(passed=1)


CLUSTER = """
    import asyncio, pytest, trio
    from rocketmq_sdk import Message, Producer
    from rocketmq_sdk.errors import BrokerError

    async def send(address, body, **options):
        async with Producer("shop", namesrv=address, **options) as producer:
            return await producer.send(Message("orders", body))

    pytestmark = pytest.mark.rocketmq(masters=2, slaves=1, topics={"orders": 1})

    def test_plain(rocketmq_cluster):
        cluster = rocketmq_cluster
        assert list(cluster.brokers) == [
            "broker-a", "broker-a-slave-1", "broker-b", "broker-b-slave-1"
        ]
        fault = cluster.faults.on("send", broker="broker-b").error("NO_PERMISSION")
        cluster.brokers["broker-a"].kill()
        with pytest.raises(BrokerError):
            trio.run(lambda: send(cluster.namesrv_address, b"1", retry_times=0))
        cluster.brokers["broker-b"].wait.hit(fault)
        fault.lift()
        cluster.brokers["broker-a"].start()
        trio.run(send, cluster.namesrv_address, b"2")
        assert [message.body for message in cluster.wait.stored("orders")] == [b"2"]
        cluster.wait.copied()
        cluster.wait.until(lambda: cluster.brokers["broker-a"].running, "a master")
        assert cluster.requests("send") and "broker-b" in cluster.report()
        assert not cluster.requests("UPDATE_AND_CREATE_TOPIC")  # seeds are not recorded

    @pytest.mark.asyncio
    async def test_asyncio(rocketmq_cluster):
        cluster = rocketmq_cluster
        await cluster.seed(messages={"orders": ["0"]})
        await asyncio.to_thread(trio.run, send, cluster.namesrv_address, b"1")
        assert len(await cluster.wait.stored("orders", 2)) == len(cluster.sent("orders")) == 2
        await cluster.wait.copied()
        await cluster.brokers["broker-b"].restart()
        assert cluster.brokers["broker-b"].emulates is None
        await cluster.wait.until(lambda: True, "nothing")

    def test_unhit(rocketmq_cluster):
        rocketmq_cluster.faults.on("send").refuse()
"""


def test_a_cluster_on_tcp_for_tests_on_asyncio_and_on_nothing(pytester: pytest.Pytester) -> None:
    result = run(pytester, NOTHING, CLUSTER)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*UnhitFaultError*"])


def test_a_marker_that_is_not_for_this_fixture(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        NOTHING,
        """
        import pytest

        @pytest.mark.rocketmq(masters=2)
        def test_size(rocketmq_broker): pass

        @pytest.mark.rocketmq(topic={"orders": 1})
        def test_seed(rocketmq_broker): pass
        """,
    )
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*masters) is for rocketmq_cluster*", "*write topics=*"])


def test_the_plugin_loads_nothing_for_tests_that_do_not_use_it(
    pytester: pytest.Pytester,
) -> None:
    run(
        pytester,
        NOTHING,
        """
        import sys

        def test_x():
            assert "rocketmq_sdk.testing.fixtures" not in sys.modules
            assert "rocketmq_sdk.broker_embedded" not in sys.modules
        """,
        without="trio asyncio anyio",
        apart=True,
    ).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("ini", "begin"), [(TRIO_MODE, "async def"), (NOTHING, "def"), (ASYNCIO_AUTO, "async def")]
)
def test_nothing_of_a_broker_stays_with_its_test(
    pytester: pytest.Pytester, ini: str, begin: str
) -> None:
    pytester.makeconftest(
        """
        import gc
        from rocketmq_sdk.testing import TestBroker

        def living():
            gc.collect()
            return sum(isinstance(each, TestBroker) for each in gc.get_objects())

        def pytest_sessionstart(session):
            session.before = living()

        def pytest_sessionfinish(session):
            print(f"brokers left: {living() - session.before}")
        """
    )
    result = run(
        pytester,
        ini,
        f"""
        {begin} test_a(rocketmq_broker): pass
        {begin} test_b(rocketmq_cluster): pass
        {begin} test_c(rocketmq_broker): pass
        """,
    )
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*brokers left: 0*"])


def test_all_tests_of_a_session_have_their_brokers_in_one_thread(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
        import threading

        def pytest_sessionfinish(session):
            names = [thread.name for thread in threading.enumerate()]
            print(f"threads left: {names.count('rocketmq test broker')}")
        """
    )
    result = run(
        pytester,
        NOTHING,
        """
        import threading, pytest

        seen = set()

        def idents():
            return {each.ident for each in threading.enumerate() if "rocketmq" in each.name}

        def test_a(rocketmq_broker): seen.update(idents())
        def test_b(rocketmq_cluster): seen.update(idents())

        @pytest.mark.asyncio
        async def test_c(rocketmq_broker):
            seen.update(idents())
            assert len(seen) == 1

        @pytest.mark.rocketmq(brokr_name="shop")
        def test_that_has_none(rocketmq_broker): pass

        def test_unhit(rocketmq_broker):
            rocketmq_broker.faults.on("send").refuse()

        def test_that_follows(rocketmq_broker):
            assert idents() == seen
            assert rocketmq_broker.requests() == [] and rocketmq_broker.health()
        """,
    )
    result.assert_outcomes(passed=5, errors=2)
    result.stdout.fnmatch_lines(["*threads left: 0*"])


@pytest.mark.parametrize("scope", ["function", "session"])
def test_the_end_of_a_plain_test_tells_what_is_wrong_with_its_broker(
    pytester: pytest.Pytester, scope: str
) -> None:
    result = run(
        pytester,
        NOTHING,
        """
        import pytest, trio

        @pytest.mark.rocketmq(topics={"orders": 1})
        def test_unhit(rocketmq_broker):
            rocketmq_broker.faults.on("send").refuse()

        def test_that_breaks_it(rocketmq_broker):
            thread = rocketmq_broker._thread

            async def fail():
                raise RuntimeError("out of the blue")

            thread.look(lambda: thread.broker._nursery.start_soon(fail))
            assert thread._over.wait(10)

        @pytest.mark.rocketmq(broker_name="another")
        def test_that_follows(rocketmq_broker):
            assert rocketmq_broker.health() and rocketmq_broker.requests() == []
        """,
        f"--rocketmq-scope={scope}",
    )
    result.assert_outcomes(passed=3, errors=2 if scope == "function" else 3)
    result.stdout.fnmatch_lines(
        [
            "*UnhitFaultError: <fault on send*",
            "*what the RocketMQ broker saw*",
            "*'orders' holds 0 messages*",
            "*what the RocketMQ broker saw*",
            "the test broker has ended",
        ]
    )
    result.stdout.fnmatch_lines(["*RuntimeError: out of the blue*"])
