"""Write `docs/requests.md` again after a row of a request has changed.

In `tests/`: `python -m tools.requests_page`.
"""

from __future__ import annotations

import trio

from support.requests_page import PAGE, page


def main() -> None:
    """Make the page and write it."""
    PAGE.write_text(trio.run(page), "utf-8")


if __name__ == "__main__":
    main()
