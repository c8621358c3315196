"""Write the keyword form of the broker's settings after a setting has changed.

In `tests/`: `python -m tools.broker_options`.
"""

from __future__ import annotations

from support.broker_options import MODULE, module


def main() -> None:
    """Make the module and write it."""
    MODULE.write_text(module(), "utf-8")


if __name__ == "__main__":
    main()
