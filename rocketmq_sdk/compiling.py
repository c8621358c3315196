"""What modules say to the compiler that can make them faster (mypyc).

The package is pure Python; `python -m build` compiles a few modules of it when it is
asked to, see `docs/compiled.md`. They are the same source either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_options):
        """Decorate a class with what mypyc is to know of it; nothing else happens."""
        return lambda kind: kind


State = tuple[dict[str, Any] | None, dict[str, Any]]
"""What `pickle` and `copy` set: the `__dict__` of an object, its other attributes."""


def state_of(thing: object) -> State:
    """The state of an object, the same whether its class is compiled or not.

    A compiled class has no slots that Python would find, and the state that mypyc gives
    it lacks what subclasses have added.
    """
    found: Any = object.__getstate__(thing)
    attributes, slots = found if isinstance(found, tuple) else (found, {})
    names = getattr(type(thing), "__mypyc_attrs__", ())
    own = {name: getattr(thing, name) for name in names if hasattr(thing, name)}
    return attributes, slots | own
