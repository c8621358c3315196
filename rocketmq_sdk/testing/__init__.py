"""The test kit: brokers that stop, die and fail on demand, and tell what they saw.

Importing this package does nothing but make its names known; each is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.testing.broker import TestBroker
    from rocketmq_sdk.testing.cluster import TestCluster
    from rocketmq_sdk.testing.failures import (
        ExpectationError,
        ListenerRaisedError,
        UnhitFaultError,
        WaitTimeoutError,
    )
    from rocketmq_sdk.testing.faulty_clock import ClockFault, FaultyClock
    from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
    from rocketmq_sdk.testing.interception import intercept
    from rocketmq_sdk.testing.network import Cut, Network, Party
    from rocketmq_sdk.testing.simulation import Plan, Simulation, simulate
    from rocketmq_sdk.testing.snapshots import Snapshot
    from rocketmq_sdk.testing.tcp_cluster import TcpCluster
    from rocketmq_sdk.testing.threads import (
        AsyncioBroker,
        AsyncioCluster,
        BlockingBroker,
        BlockingCluster,
        BrokerThread,
        ClusterThread,
    )
    from rocketmq_sdk.testing.traffic.recording import Recording, Seen
    from rocketmq_sdk.testing.traffic.request_faults import RequestFault, RequestFaults

_HOMES: Final = {
    "AsyncioBroker": "threads",
    "AsyncioCluster": "threads",
    "BlockingBroker": "threads",
    "BlockingCluster": "threads",
    "BrokerThread": "threads",
    "ClusterThread": "threads",
    "TcpCluster": "tcp_cluster",
    "ClockFault": "faulty_clock",
    "Cut": "network",
    "UnhitFaultError": "failures",
    "FaultyClock": "faulty_clock",
    "FaultyFileSystem": "faulty_files",
    "ListenerRaisedError": "failures",
    "Network": "network",
    "Party": "network",
    "Plan": "simulation.plan",
    "Recording": "traffic.recording",
    "RequestFault": "traffic.request_faults",
    "RequestFaults": "traffic.request_faults",
    "Seen": "traffic.recording",
    "Simulation": "simulation.run",
    "Snapshot": "snapshots",
    "TestBroker": "broker",
    "TestCluster": "cluster",
    "ExpectationError": "failures",
    "WaitTimeoutError": "failures",
    "intercept": "interception",
    "simulate": "simulation.run",
}

__all__ = [
    "AsyncioBroker",
    "AsyncioCluster",
    "BlockingBroker",
    "BlockingCluster",
    "BrokerThread",
    "ClockFault",
    "ClusterThread",
    "Cut",
    "ExpectationError",
    "FaultyClock",
    "FaultyFileSystem",
    "ListenerRaisedError",
    "Network",
    "Party",
    "Plan",
    "Recording",
    "RequestFault",
    "RequestFaults",
    "Seen",
    "Simulation",
    "Snapshot",
    "TcpCluster",
    "TestBroker",
    "TestCluster",
    "UnhitFaultError",
    "WaitTimeoutError",
    "intercept",
    "simulate",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
