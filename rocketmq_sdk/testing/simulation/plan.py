"""`Plan`: the size of a simulated cluster, and all that goes wrong in it."""

from __future__ import annotations

import math
import string
from random import Random
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.cluster import check_size
from rocketmq_sdk.testing.simulation.troubles import (
    EVERYBODY,
    KINDS,
    Below,
    Cut,
    OneOf,
    PowerCut,
    Seconds,
    Trouble,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FIRST: Final = 5.0
"""Seconds in which nothing goes wrong, so that a scenario can begin."""
SHORTEST: Final = 0.1
"""Seconds that a trouble lasts at least."""
LONGEST: Final = 300.0
"""Seconds that a trouble that was drawn lasts at most."""
MOST: Final = 8
"""Most troubles, unless a plan is told otherwise."""
HOUR: Final = 3600.0


def broker_names(masters: int, slaves: int) -> tuple[str, ...]:
    """The names of the brokers of a cluster, as `TestCluster` gives them."""
    return tuple(
        f"broker-{letter}{suffix}"
        for letter in string.ascii_lowercase[:masters]
        for suffix in ("", *(f"-slave-{number}" for number in range(1, slaves + 1)))
    )


def _all_of(troubles: Iterable[Trouble]) -> tuple[Trouble, ...]:
    return tuple(troubles)


def _names_of(parties: Sequence[str]) -> tuple[str, ...]:
    if isinstance(parties, str):
        raise ConfigurationError(f"parties are {parties!r}; give several names, ({parties!r},)")
    return tuple(parties)


@attrs.frozen(kw_only=True)
class Plan:
    """All that makes a simulation what it is, besides the scenario.

    Its text is Python source that makes it again.
    """

    seed: int = 0
    """For the latencies, the order of tasks and whatever is drawn at random."""
    masters: int = 3
    """Masters of the cluster: `broker-a` and so on."""
    slaves: int = 0
    """Slaves of each master: `broker-a-slave-1` and so on."""
    parties: tuple[str, ...] = attrs.field(default=(), converter=_names_of)
    """The names of the clients that may be cut off."""
    duration: float = HOUR
    """Virtual seconds in which things go wrong."""
    latency: float = 0.01
    """Most seconds that bytes are under way while nothing is wrong."""
    power_cuts: bool = False
    """Whether disks are `FaultyFileSystem`s, which forget what was not synced."""
    troubles: tuple[Trouble, ...] = attrs.field(default=(), converter=_all_of)
    """What goes wrong."""

    def __attrs_post_init__(self) -> None:
        check_size(self.masters, self.slaves)
        if not 0 < self.duration < math.inf:
            raise ConfigurationError(f"duration is {self.duration}; give seconds, more than 0")
        known = {*self.brokers, *self.parties, EVERYBODY}
        for trouble in self.troubles:
            for name in ("broker", "one", "other"):
                wanted = getattr(trouble, name, None)
                if wanted is not None and wanted not in known:
                    raise ConfigurationError(
                        f"{trouble!r} is about {wanted!r}; there are {', '.join(sorted(known))}"
                    )
            if isinstance(trouble, PowerCut) and not self.power_cuts:
                raise ConfigurationError(f"{trouble!r} needs Plan(power_cuts=True)")
            if not 0 <= trouble.at <= trouble.end <= self.duration:
                raise ConfigurationError(
                    f"{trouble!r} is not within the {self.duration:g} seconds of the plan"
                )

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers, masters before their slaves."""
        return broker_names(self.masters, self.slaves)

    @classmethod
    def drawn(
        cls,
        seed: int,
        *,
        masters: int = 3,
        slaves: int = 0,
        parties: Sequence[str] = (),
        duration: float = HOUR,
        latency: float = 0.01,
        power_cuts: bool = False,
        most: int = MOST,
    ) -> Plan:
        """A plan with up to `most` troubles, all chosen by the seed."""
        plan = cls(
            seed=seed,
            masters=masters,
            slaves=slaves,
            parties=parties,
            duration=duration,
            latency=latency,
            power_cuts=power_cuts,
        )
        generator = Random(f"plan {seed}")
        draw = Draw(plan, generator)
        troubles = [draw.trouble() for _ in range(generator.randint(0, most))]
        return attrs.evolve(plan, troubles=sorted(troubles, key=lambda one: one.at))

    def without(self, trouble: Trouble) -> Plan:
        """The plan without one of its troubles."""
        left = list(self.troubles)
        left.remove(trouble)
        return attrs.evolve(self, troubles=left)


class Draw:
    """Draws troubles for a plan."""

    def __init__(self, plan: Plan, generator: Random) -> None:
        self._plan = plan
        self._generator = generator

    def _time(self) -> tuple[float, float]:
        """When it begins, and how long it lasts."""
        generator, duration = self._generator, self._plan.duration
        lasts = min(SHORTEST * (LONGEST / SHORTEST) ** generator.random(), duration / 2)
        first = min(FIRST, duration - lasts)
        return round(generator.uniform(first, duration - lasts), 3), round(lasts - 0.001, 3)

    def trouble(self) -> Trouble:
        """Any one."""
        plan, generator = self._plan, self._generator
        at, lasts = self._time()
        broker = generator.choice(plan.brokers)
        kinds = [
            kind
            for kind in KINDS
            for _ in range(kind.often)
            if plan.power_cuts or not kind.power_cuts
        ]
        kind = generator.choice(kinds)
        if kind.make is Cut:
            return self._cut(at, lasts, broker)
        values = {name: self._value(field) for name, field in kind.fields.items()}
        if kind.lasts:
            values["lasts"] = lasts
        return kind.make(at=at, broker=broker, **values)

    def _value(self, field: Seconds | OneOf | Below) -> object:
        generator = self._generator
        if isinstance(field, Seconds):
            return round(10 ** generator.uniform(field.low, field.high), 3)
        if isinstance(field, OneOf):
            return generator.choice(field.values)
        return generator.randrange(field.end)

    def _cut(self, at: float, lasts: float, broker: str) -> Cut:
        generator = self._generator
        others = [name for name in (*self._plan.brokers, *self._plan.parties) if name != broker]
        other = generator.choice([*others, EVERYBODY])
        one_way = generator.random() < 0.3
        if one_way and other != EVERYBODY and generator.random() < 0.5:
            broker, other = other, broker
        return Cut(at=at, lasts=lasts, one=broker, other=other, one_way=one_way)
