"""The command line: `python -m rocketmq_sdk`."""

from __future__ import annotations

import sys

from rocketmq_sdk.cli import main

sys.exit(main())
