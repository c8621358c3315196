"""The command line: `rocketmq`, `python -m rocketmq_sdk`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command of the arguments and return its exit code.

    Ctrl-C ends it with 130 from the first moment on, also while modules are loaded.
    """
    try:
        from rocketmq_sdk.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
