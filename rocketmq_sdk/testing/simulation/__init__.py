"""Simulations: an application and a cluster in virtual time, while things go wrong.

`simulate(seed, scenario)` runs one; `Plan` says what goes wrong, and `plans` draws it
for hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.testing.simulation.plan import Plan
    from rocketmq_sdk.testing.simulation.run import Simulated, Simulation, simulate
    from rocketmq_sdk.testing.simulation.strategies import plans
    from rocketmq_sdk.testing.simulation.trace import Trace
    from rocketmq_sdk.testing.simulation.troubles import (
        BadDisk,
        Cut,
        Disconnect,
        FullDisk,
        Kill,
        PowerCut,
        SlowDisk,
        SlowNetwork,
        Stop,
        Trouble,
    )

__all__ = [
    "BadDisk",
    "Cut",
    "Disconnect",
    "FullDisk",
    "Kill",
    "Plan",
    "PowerCut",
    "Simulated",
    "Simulation",
    "SlowDisk",
    "SlowNetwork",
    "Stop",
    "Trace",
    "Trouble",
    "plans",
    "simulate",
]

_HOMES: Final = {
    "Plan": "plan",
    "Simulated": "run",
    "Simulation": "run",
    "Trace": "trace",
    "plans": "strategies",
    "simulate": "run",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "troubles")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
