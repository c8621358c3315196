"""`python -m benchmarks`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.against import checkout, compare, compare_in_turns, dearer, table
from benchmarks.harness import Report, in_use
from benchmarks.resident import RESIDENT
from rocketmq_sdk.protocol.json import backend as json_backend
from rocketmq_sdk.spelling import meant

NAMES = (
    "append",
    "store",
    "in_process",
    "loopback",
    "consume",
    "doors",
    "simple",
    "latency",
    "java_client",
    "stages",
    "processor",
    "levers",
    "observability",
    "tls",
    "startup",
    "starting",
    "fixture",
    "filters",
    "idle_consumers",
    "timers",
    "transactions",
    "rebalance",
    "pop",
    "sync_flush",
    "spark_read",
    "spark_write",
    "spark_stream",
    "spark_kafka",
    "asyncio_kafka",
)


def _run_without_orjson(name: str, report: Report, scale: float) -> None:
    """Run it again with the standard library's JSON, also in child processes."""
    os.environ["ROCKETMQ_SDK_JSON"] = "stdlib"
    report.suffix = " (stdlib JSON)"
    try:
        with json_backend.forced("stdlib"):
            importlib.import_module(f"benchmarks.{name}").run(report, scale)
    finally:
        del os.environ["ROCKETMQ_SDK_JSON"]
        report.suffix = ""


def _known(name: str) -> str:
    """The name of a benchmark."""
    if name not in NAMES:
        raise argparse.ArgumentTypeError(
            f"there is no {name!r}{meant(name, known=NAMES) or ';'} there are {', '.join(NAMES)}"
        )
    return name


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        type=_known,
        metavar="NAME",
        help=f"some of: {', '.join(NAMES)} (default: all)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="rounds of each benchmark; the median counts (default: 3)",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies the numbers of messages (default: 1)"
    )
    parser.add_argument(
        "--apache",
        action="store_true",
        help="also run Apache's Java client on Apache's broker (needs Java and Maven)",
    )
    parser.add_argument(
        "--stdlib", action="store_true", help="measure each benchmark a second time without orjson"
    )
    parser.add_argument(
        "--against",
        metavar="DIR_OR_COMMIT",
        help="run the same in another checkout, or at a commit, in turns; print how many times "
        "as fast this one is, and what became more than 5 %% dearer",
    )
    parser.add_argument(
        "--turns",
        type=int,
        metavar="N",
        help="with --against: so many short turns of programs that stay instead of rounds; "
        f"for {', '.join(RESIDENT)} (default: those)",
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    names = options.names or NAMES
    if options.against is not None:
        if options.apache or options.stdlib or options.json:
            parser.error("--against goes with --rounds, --turns and --scale only")
        if options.turns:
            names = options.names or list(RESIDENT)
            if others := [name for name in names if name not in RESIDENT]:
                parser.error(f"--turns cannot do {others[0]}, only {', '.join(RESIDENT)}")
        with checkout(options.against) as other:
            pairs = (
                compare_in_turns(other, names, options.turns, options.scale)
                if options.turns
                else compare(other, names, options.rounds, options.scale)
            )
        print(table(pairs))
        print(dearer(pairs))
        return 0
    report = Report()
    for round_number in range(1, options.rounds + 1):
        for name in names:
            print(f"{name}, round {round_number} of {options.rounds}", file=sys.stderr, flush=True)
            importlib.import_module(f"benchmarks.{name}").run(report, options.scale)
            if options.stdlib:
                _run_without_orjson(name, report, options.scale)
        if options.apache:
            print(f"apache, round {round_number} of {options.rounds}", file=sys.stderr, flush=True)
            importlib.import_module("benchmarks.apache").run(report, options.scale, names)
    if options.apache:
        importlib.import_module("benchmarks.apache").close()
    print(in_use())
    print(report.table())
    if aims := report.aims():
        print(f"\n{aims}")
    if options.json:
        Path(options.json).write_text(report.as_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
