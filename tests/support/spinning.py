"""Policies of spinning that do not depend on how fast the machine is."""

from __future__ import annotations

from rocketmq_sdk.remoting.spinning import Spinning


class Never(Spinning):
    """Sleeps at once."""

    __slots__ = ()

    def begin(self, size: int = 0) -> bool:
        del size
        return False


class Always(Spinning):
    """Spins each time, as long as `Spinning` does at most."""

    __slots__ = ()

    def begin(self, size: int = 0) -> bool:
        self._left = 0
        return super().begin(size)


class Patient(Always):
    """Spins each time until it has come, for some seconds."""

    __slots__ = ("_gives_up",)

    seconds = 60.0

    def begin(self, size: int = 0) -> bool:
        self._gives_up = self._now() + self.seconds
        return super().begin(size)

    def goes_on(self, *, found: bool, turns: float = 1.0) -> bool:
        del turns
        return not found and self._now() < self._gives_up


class Hasty(Patient):
    """Spins each time until it has come, for a moment."""

    __slots__ = ()

    seconds = 0.2
