"""What the pytest plugin does for the fixture of a test broker.

A test runs on trio, on asyncio or on neither, and gets the broker for that: one in its
own loop, or a face of one in a thread.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from rocketmq_sdk.broker_embedded.composition import OPTIONS, check_names
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.testing.broker import TestBroker
from rocketmq_sdk.testing.cluster import TestCluster
from rocketmq_sdk.testing.life import TEST_OPTIONS
from rocketmq_sdk.testing.real import (
    AsyncioRealBroker,
    BlockingRealBroker,
    InThread,
    NeedsTestBrokerError,
    RealBroker,
)
from rocketmq_sdk.testing.strict import ListenerErrors
from rocketmq_sdk.testing.threads import (
    AsyncioBroker,
    AsyncioCluster,
    BlockingBroker,
    BlockingCluster,
    BrokerThread,
    ClusterThread,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from rocketmq_sdk.testing.trio_thread import KeptThread

MARKER: Final = "rocketmq"
TRIO, ASYNCIO, PLAIN = "trio", "asyncio", "plain"
_OF_SEEDS: Final = ("topics", "groups", "messages", "offsets", "seed")
_OF_CLUSTERS: Final = ("masters", "slaves")
_REPORTS: Final = pytest.StashKey["dict[str, str | Callable[[], str]]"]()
_NO_RUNNER: Final = """{test} is async, and nothing runs async tests here. Add to pyproject.toml

    [tool.pytest.ini_options]
    {lines}
"""
_LINES: Final = {
    "trio": "trio_mode = true              # pytest-trio: tests on trio, virtual time",
    "asyncio": 'asyncio_mode = "auto"         # pytest-asyncio, or mark it @pytest.mark.asyncio',
    "anyio": 'anyio_mode = "auto"           # anyio, or mark it @pytest.mark.anyio',
}
_INSTALL: Final = (
    "trio_mode = true\n\nand install pytest-trio (it comes with rocketmq-trio[testing]), or "
    "install pytest-asyncio\nand set asyncio_mode."
)


def runner_of(request: pytest.FixtureRequest) -> str:
    """On what the test of a request runs.

    Fails the test if it is async and no plugin will run it.
    """
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend")
        return str(backend if isinstance(backend, str) else backend[0])
    function = getattr(request.node, "obj", None)
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if not inspect.iscoroutinefunction(function):
        return PLAIN
    plugins = request.config.pluginmanager
    for runner in (TRIO, ASYNCIO):
        if request.node.get_closest_marker(runner) is not None and plugins.hasplugin(runner):
            return runner
    there = [line for name, line in _LINES.items() if plugins.hasplugin(name)]
    lines = "\n\nor\n\n    ".join(there) if there else _INSTALL
    pytest.fail(_NO_RUNNER.format(test=request.node.name, lines=lines), pytrace=False)


class Wanted:
    """What a test wants of its broker, by its marker `rocketmq`."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        options: dict[str, Any] = {}
        for marker in reversed(list(request.node.iter_markers(MARKER))):
            if marker.args:
                pytest.fail("@pytest.mark.rocketmq takes keyword arguments only", pytrace=False)
            options.update(marker.kwargs)
        self.keep = bool(options.pop("keep", False))
        self.seed: dict[str, Any] = {
            name: options.pop(name) for name in _OF_SEEDS if name in options
        }
        self.size = {name: options.pop(name) for name in _OF_CLUSTERS if name in options}
        self.settings = options
        more = [name for one in _OF_SEEDS for name in (one.removesuffix("s"),) if name != one]
        wrong = [name for name in options if name in more]
        if wrong:
            pytest.fail(
                f"@pytest.mark.rocketmq knows no {wrong[0]}; write {wrong[0]}s=", pytrace=False
            )
        self._check_names()
        if self.size and "rocketmq_cluster" not in request.fixturenames:
            pytest.fail(
                f"@pytest.mark.rocketmq({', '.join(self.size)}) is for rocketmq_cluster; "
                "rocketmq_broker is one broker",
                pytrace=False,
            )

    def _check_names(self) -> None:
        of_brokers = (*OPTIONS, *TEST_OPTIONS)
        of_markers = (*of_brokers, *_OF_SEEDS, *_OF_CLUSTERS, "keep")
        try:
            check_names(self.settings.keys() - set(of_brokers), of_markers)
        except ConfigurationError as error:
            pytest.fail(f"@pytest.mark.rocketmq: {error}", pytrace=False)

    @property
    def key(self) -> str:
        """Brokers with the same key can stand in for each other."""
        return repr(sorted(self.settings.items()))

    def seeding(self) -> dict[str, Any]:
        """The arguments of `seed`."""
        return dict(self.seed)


@contextmanager
def _reporting(request: pytest.FixtureRequest, report: Callable[[], str]) -> Iterator[None]:
    """Let a failing test show what its broker in a thread saw.

    pytest keeps all tests until its end, so that nothing of the broker may stay with
    them.
    """
    _keep(request, report)
    try:
        yield
    finally:
        _keep(request, _said(report))


def _keep(request: pytest.FixtureRequest, report: str | Callable[[], str]) -> None:
    """What a test's fixture has to tell: as text, or for as long as it lives."""
    reports = request.node.stash.setdefault(_REPORTS, {})
    reports[str(request.fixturename)] = report


def _said(report: Callable[[], str]) -> str:
    try:
        return report()
    except RocketMQError as error:  # the broker has ended
        return str(error)


async def in_loop(request: pytest.FixtureRequest) -> AsyncIterator[TestBroker]:
    """The broker in the trio loop of the test."""
    wanted = Wanted(request)
    settings = dict(wanted.settings)
    if "rocketmq_address" in request.fixturenames:
        _refuse_virtual_time()
        settings = {"listen": 0, "namesrv_listen": 0, **settings}
    async with TestBroker(**settings) as broker:
        if wanted.seed:
            await broker.seed(**wanted.seeding())
        try:
            yield broker
        finally:
            _keep(request, broker.report())


async def cluster_in_loop(request: pytest.FixtureRequest) -> AsyncIterator[TestCluster]:
    """The cluster in the trio loop of the test."""
    wanted = Wanted(request)
    async with TestCluster(**wanted.size, **wanted.settings) as cluster:
        if wanted.seed:
            await cluster.seed(**wanted.seeding())
        try:
            yield cluster
        finally:
            _keep(request, cluster.report())


def cluster_in_thread(
    request: pytest.FixtureRequest, face: type[BlockingCluster | AsyncioCluster]
) -> Iterator[BlockingCluster | AsyncioCluster]:
    """A face of a cluster in a thread, on TCP; each test has a new one."""
    wanted = Wanted(request)
    kept: KeptThread = request.getfixturevalue("_rocketmq_thread")
    with ClusterThread(**wanted.size, **wanted.settings).within(kept.get()) as thread:
        if wanted.seed:
            thread.run(lambda: thread.cluster.seed(**wanted.seeding()))
        with _reporting(request, lambda: thread.look(thread.cluster.report)):
            yield face(thread)


def plain_cluster_in_thread(request: pytest.FixtureRequest) -> Iterator[object]:
    """For plain tests."""
    yield from cluster_in_thread(request, BlockingCluster)


def asyncio_cluster_in_thread(request: pytest.FixtureRequest) -> Iterator[object]:
    """For tests on asyncio."""
    yield from cluster_in_thread(request, AsyncioCluster)


def _refuse_virtual_time() -> None:
    clock = trio.lowlevel.current_clock()
    if getattr(clock, "autojump_threshold", None) not in (None, float("inf")):
        pytest.fail(
            "rocketmq_address is a TCP port, which needs real time, and autojump_clock does not "
            "wait for it. Use rocketmq_broker, or leave autojump_clock out",
            pytrace=False,
        )


def in_thread(
    request: pytest.FixtureRequest, face: type[BlockingBroker | AsyncioBroker]
) -> Iterator[BlockingBroker | AsyncioBroker]:
    """A face of the broker in a thread: a new one, unless its scope is wider."""
    wanted = Wanted(request)
    if _scope_of(request.config) == "function":
        kept: KeptThread = request.getfixturevalue("_rocketmq_thread")
        with BrokerThread(**wanted.settings).within(kept.get()) as thread:
            _plant(thread, wanted)
            yield from _for_one_test(request, thread, face)
    else:
        thread = request.getfixturevalue("rocketmq_threads").get(wanted)
        _plant(thread, wanted)
        with _reporting(request, lambda: thread.look(thread.broker.report)):
            yield face(thread)
            thread.look(thread.broker.check)


def _plant(thread: BrokerThread, wanted: Wanted) -> None:
    if wanted.seed:
        thread.run(lambda: thread.broker.seed(**wanted.seeding()))


def _for_one_test(
    request: pytest.FixtureRequest,
    thread: BrokerThread,
    face: type[BlockingBroker | AsyncioBroker],
) -> Iterator[BlockingBroker | AsyncioBroker]:
    """As `_reporting`, for a broker that ends with the test and checks itself then.

    Its last report is a part of its end: each call costs a change of threads and back.
    """
    last = ["the test broker has ended"]
    _keep(request, lambda: thread.look(thread.broker.report))
    thread.before_end(lambda: last.append(thread.broker.report()))
    try:
        yield face(thread)
    finally:
        _keep(request, lambda: last[-1])


def _scope_of(config: pytest.Config) -> str:
    return str(config.getoption("--rocketmq-scope") or config.getini("rocketmq_scope"))


def plain_in_thread(request: pytest.FixtureRequest) -> Iterator[object]:
    """For plain tests."""
    yield from in_thread(request, BlockingBroker)


def asyncio_in_thread(request: pytest.FixtureRequest) -> Iterator[object]:
    """For tests on asyncio."""
    yield from in_thread(request, AsyncioBroker)


class Threads:
    """The brokers in the kept thread of one scope, by their settings.

    For scopes that are wider than a test.
    """

    def __init__(self, kept: KeptThread) -> None:
        self._kept = kept
        self._threads: dict[str, BrokerThread] = {}
        self._stack = ExitStack()

    def get(self, wanted: Wanted) -> BrokerThread:
        """A broker for one test: a new one, or one that was reset."""
        thread = self._threads.get(wanted.key)
        if thread is None:
            options = dict(wanted.settings)
            made = BrokerThread(**options).within(self._kept.get())
            thread = self._stack.enter_context(made)
            self._threads[wanted.key] = thread
        elif not wanted.keep:
            broker = thread.broker
            thread.run(broker.reset)
        return thread

    def close(self) -> None:
        """End all. Raises the first error."""
        self._stack.close()


def real_cluster(
    request: pytest.FixtureRequest,
) -> Iterator[RealBroker | AsyncioRealBroker | BlockingRealBroker]:
    """The cluster of the option, in the place of a broker."""
    wanted = Wanted(request)
    settings = dict(wanted.settings)
    strict = settings.pop("strict", False)
    if settings:
        pytest.skip(f"a real cluster is not made as a test says: {', '.join(sorted(settings))}")
    if "autojump_clock" in request.fixturenames:
        pytest.skip("a real cluster knows no virtual time, and this test has autojump_clock")
    broker = RealBroker(str(address_of_option(request.config)))
    if wanted.seed:
        InThread().run(lambda: broker.seed(**wanted.seeding()))
    runner = runner_of(request)
    face: RealBroker | AsyncioRealBroker | BlockingRealBroker = broker
    if runner != TRIO:
        face = (AsyncioRealBroker if runner == ASYNCIO else BlockingRealBroker)(broker)
    if not strict:
        yield face
        return
    with ListenerErrors() as errors:
        yield face
    errors.check()


def address_of_option(config: pytest.Config) -> str | None:
    """The name server of a real cluster, if the tests are to use one."""
    address: str | None = config.getoption("rocketmq_namesrv", None)
    return address or None


def broker_for(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The function that serves a test as the fixture `rocketmq_broker`."""
    runner = runner_of(request)
    if address_of_option(request.config) is not None:
        return real_cluster
    if runner == TRIO:
        return in_loop
    return asyncio_in_thread if runner == ASYNCIO else plain_in_thread


def cluster_for(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """The function that serves a test as the fixture `rocketmq_cluster`.

    On trio it is in the test's loop and in memory, elsewhere in a thread and on TCP.
    """
    if address_of_option(request.config) is not None:
        pytest.skip("rocketmq_cluster is a cluster of test brokers, not a real one")
    runner = runner_of(request)
    if runner == TRIO:
        return cluster_in_loop
    return asyncio_cluster_in_thread if runner == ASYNCIO else plain_cluster_in_thread


def report_of(item: pytest.Item) -> str | None:
    """What the broker of a test saw, and its cluster where it has both."""
    reports = item.stash.get(_REPORTS, None)
    if not reports:
        return None
    return "\n".join(one if isinstance(one, str) else _said(one) for one in reports.values())


def why_skipped(error: BaseException | None) -> str | None:
    """What a test needs a test broker for, if it failed only because there is none."""
    if isinstance(error, BaseExceptionGroup):
        reasons = [why_skipped(one) for one in error.exceptions]
        return None if None in reasons else reasons[0]
    return str(error) if isinstance(error, NeedsTestBrokerError) else None
