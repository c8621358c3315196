"""The command line's door: `python -m rocketmq_sdk`."""

import sys

from rocketmq_sdk.cli import main

sys.exit(main())
