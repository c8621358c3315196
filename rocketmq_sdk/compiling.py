"""What modules say to the compiler that can make them faster (mypyc).

The package is pure Python; `python -m build` compiles a few modules of it when it is
asked to, see `docs/compiled.md`. They are the same source either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_options):
        """Decorate a class with what mypyc is to know of it; nothing else happens."""
        return lambda kind: kind
