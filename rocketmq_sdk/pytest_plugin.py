"""Fixtures for tests of applications that use RocketMQ.

The plugin imports nothing until a test asks for a fixture.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from rocketmq_sdk.testing.fixtures import Threads
    from rocketmq_sdk.testing.trio_thread import KeptThread

_CHOSEN = {"rocketmq_broker", "rocketmq_cluster"}
_SCOPES = ("function", "class", "module", "package", "session")
_NAMESRV_VARIABLE = "ROCKETMQ_TEST_NAMESRV"
_REFUSED = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Scope, and a real cluster."""
    group = parser.getgroup("rocketmq")
    group.addoption(
        "--rocketmq-scope",
        choices=_SCOPES,
        default=None,
        help="how long a broker in a thread lives (default: rocketmq_scope, else function); each "
        "test finds it new",
    )
    group.addoption(
        "--rocketmq-namesrv",
        metavar="HOST:PORT",
        default=os.environ.get(_NAMESRV_VARIABLE),
        help="run the tests with this cluster; those that need a test broker are skipped (default: "
        f"the variable {_NAMESRV_VARIABLE})",
    )
    parser.addini("rocketmq_scope", "as --rocketmq-scope", default="function")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "rocketmq(*, strict, topics, groups, messages, offsets, seed, keep, masters, slaves, "
        "**settings): what the broker of the test is to be",
    )


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    del fixture_name
    scope = config.getoption("--rocketmq-scope") or config.getini("rocketmq_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"rocketmq_scope is {scope!r}; it is one of {', '.join(_SCOPES)}")
    return scope


@pytest.fixture(scope="session")
def _rocketmq_thread() -> Iterator[KeptThread]:
    """The thread in which brokers live that are for tests that do not run on trio."""
    from rocketmq_sdk.testing.trio_thread import KeptThread

    kept = KeptThread()
    yield kept
    kept.end()


@pytest.fixture(scope=_scope)
def rocketmq_threads(_rocketmq_thread: KeptThread) -> Iterator[Threads]:
    """The brokers in that thread that outlive a test."""
    from rocketmq_sdk.testing.fixtures import Threads

    threads = Threads(_rocketmq_thread)
    yield threads
    threads.close()


@pytest.fixture
def rocketmq_broker(request: pytest.FixtureRequest) -> None:
    """A name server and a broker for one test, isolated from all others.

    In a test on trio it is a `TestBroker` in the loop of the test: pass it as
    `namesrv=`. With pytest-trio's `autojump_clock` named by the test, delays and
    retries take no time. In a test on asyncio it is an `AsyncioBroker`, in a plain test
    a `BlockingBroker`: clients use its `namesrv_address`.
    """
    raise AssertionError(f"pytest_fixture_setup was not called for {request.fixturename}")


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> None:
    """A cluster for one test: two masters, unless the marker says else.

    In a test on trio it is a `TestCluster` on a network in memory: pass it, or
    `rocketmq_cluster.party(name)`, as `namesrv=`. In a test on asyncio it is an
    `AsyncioCluster` on TCP, in a plain test a `BlockingCluster`: clients use its
    `namesrv_address`.
    """
    raise AssertionError(f"pytest_fixture_setup was not called for {request.fixturename}")


@pytest.fixture
def rocketmq_address(rocketmq_broker: Any) -> str:
    """`host:port` of the name server of the test's broker, on TCP.

    For code in any door, thread, process or language.
    """
    return str(rocketmq_broker.namesrv_address)


def _failing(error: BaseException) -> Callable[[pytest.FixtureRequest], None]:
    def fail(request: pytest.FixtureRequest) -> None:  # noqa: ARG001 - as the placeholders
        raise error

    return fail


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Serve the fixtures for what the test runs on, before its plugin looks."""
    placeholder = fixturedef.func
    if placeholder.__module__ != __name__ or fixturedef.argname not in _CHOSEN:
        return (yield)
    from rocketmq_sdk.testing.fixtures import broker_for, cluster_for

    choose = broker_for if fixturedef.argname == "rocketmq_broker" else cluster_for
    try:
        fixturedef.func = choose(request)  # type: ignore[misc]
    except _REFUSED as error:
        # It is to fail as a fixture does: pytest has begun to set it up, and would
        # stumble over that in the next test.
        fixturedef.func = _failing(error)  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = placeholder  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the broker saw."""
    report = yield
    if report.failed and _CHOSEN & set(getattr(item, "fixturenames", ())):
        from rocketmq_sdk.testing.fixtures import report_of, why_skipped

        error = None if call.excinfo is None else call.excinfo.value
        needed = why_skipped(error)
        if needed is not None:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {needed}")
        else:
            text = report_of(item)
            if text is not None:
                report.sections.append(("what the RocketMQ broker saw", text))
    return report
