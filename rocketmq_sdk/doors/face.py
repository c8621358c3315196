"""The face of an object for trio: what is the same in all doors."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ClosedError, WrongTypeError


class Run(Protocol):
    """Where an object for trio runs, as its door knows it."""

    def check(self) -> None:
        """Raise an error when the caller may not use it, or it has ended."""
        ...


R = TypeVar("R", bound=Run)
F = TypeVar("F", bound="AnyFace[Any]")


class AnyFace(Generic[R]):
    """A face, the object behind it, and the run in which that is open.

    Faces that it has adopted work as long as it is open.
    """

    _inner: Any
    _run: R | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        explained(cls)

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def _parts(self) -> WeakSet[AnyFace[R]]:
        parts: WeakSet[AnyFace[R]] | None = self.__dict__.get("_adopted")
        if parts is None:
            parts = self.__dict__["_adopted"] = WeakSet()
        return parts

    def _adopt(self, part: F) -> F:
        self._parts.add(part)
        part._set_run(self._run)
        return part

    def _set_run(self, run: R | None) -> None:
        self._run = run
        for part in list(self._parts):
            part._set_run(run)

    def _client_of(self, given: F | None, kind: type[F], inner: object) -> F:
        """The face of the client that was given, or of the one that was made."""
        if given is not None:
            return given
        made = kind.__new__(kind)
        AnyFace.__init__(made, inner)
        return self._adopt(made)

    def _running(self) -> R:
        run = self._run
        if run is None:
            raise ClosedError(f"the {type(self).__name__} is not open; use it inside its block")
        run.check()
        return run


def inner_of(value: Any) -> Any:
    """What a face stands for; anything else as it is."""
    return value._inner if isinstance(value, AnyFace) else value


def inner_client(client: Any, face: type[AnyFace[Any]]) -> Any:
    """The client behind a face. Raises `WrongTypeError` for one of another door."""
    if client is None:
        return None
    if not isinstance(client, face):
        door = face.__module__.rpartition(".")[0]
        raise WrongTypeError(
            f"client is {client!r}, which is no Client of {door}; make it with {door}.Client"
        )
    return client._inner
