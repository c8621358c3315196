"""The command line: `rocketmq`.

`demo`, `broker`, `test-broker` and `store` are about this package's own broker; the
commands of `operate` work with every cluster.

Exit codes: 0 done, 1 the command ran and failed, 2 the command line or a setting is not
acceptable.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from rocketmq_sdk.cli.broker_for_tests import add_test_broker, run_test_broker
from rocketmq_sdk.cli.operate import COMMANDS
from rocketmq_sdk.cli.operate.connection import connection_arguments, run_command
from rocketmq_sdk.errors import ConfigurationError, RocketMQError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Says what a misspelt command was probably meant to be."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2."""
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            known = re.findall(r"'(.*?)'", found[2])
            lower = {name.lower(): name for name in known}
            near = get_close_matches(found[1].lower(), lower, 3, 0.6)
            if near:
                meant = ", ".join(lower[name] for name in near)
                message = f"there is no {found[1]!r}; did you mean {meant}?"
        super().error(message)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = _Parser(
        prog="rocketmq", description="RocketMQ in pure Python: an embedded broker and a client."
    )
    top.add_argument(
        "--version", action="version", version=f"rocketmq-trio {version('rocketmq-trio')}"
    )
    top.add_argument(
        "--log-level",
        default="warning",
        choices=["debug", "info", "warning", "error"],
        help="least level to log (default: warning)",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="publish and consume 27,004 real flights through an embedded broker and check the "
        "sums",
    )
    demo.add_argument(
        "--data",
        metavar="FILE",
        help="another CSV file of flights (.csv or .csv.gz) with columns carrier, tailnum and "
        "arr_delay",
    )
    demo.add_argument(
        "--namesrv", metavar="HOST:PORT", help="use this name server instead of an embedded broker"
    )

    _add_broker(commands)
    add_test_broker(commands)
    _add_store(commands)
    for command in COMMANDS.values():
        of_command = commands.add_parser(command.name, help=command.help)
        command.arguments(of_command)
        if not command.has_actions:
            connection_arguments(of_command)
    return top


def _add_broker(commands: argparse._SubParsersAction[Any]) -> None:
    broker = commands.add_parser(
        "broker", help="serve a name server and a broker on TCP until SIGINT or SIGTERM"
    )
    broker.add_argument(
        "--namesrv-listen",
        metavar="HOST:PORT",
        help="address of the name server (default: its setting listenPort, 9876, on 127.0.0.1, or "
        "on 0.0.0.0 if users are checked)",
    )
    broker.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address of the broker (default: the setting listenPort, 10911, on the same host)",
    )
    broker.add_argument(
        "--store",
        metavar="DIR",
        help="store directory (default: the setting storePathRootDir, else in memory, gone at the "
        "end)",
    )
    broker.add_argument(
        "--config",
        metavar="FILE",
        help="a broker.conf of Apache RocketMQ (properties); settings changed at run time are "
        "written to it",
    )
    broker.add_argument(
        "--namesrv-config", metavar="FILE", help="the same for the name server (namesrv.conf)"
    )
    broker.add_argument(
        "--tls-cert", metavar="FILE", help="certificate of all ports, PEM; read again on change"
    )
    broker.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
    broker.add_argument(
        "--tls-client-ca", metavar="FILE", help="clients must have a certificate of this authority"
    )
    broker.add_argument(
        "--require-tls", action="store_true", help="refuse connections that are not TLS"
    )
    broker.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics for Prometheus and health over HTTP there (docs/metrics.md); port 0 is "
        "a free one (default: as metricsExporterType and metricsPromExporterPort say)",
    )
    setting_help = "one setting by Apache's name; may be repeated, wins over --config"
    broker.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help=setting_help
    )


def _add_store(commands: argparse._SubParsersAction[Any]) -> None:
    store = commands.add_parser("store", help="look at, list or repair a store directory")
    actions = store.add_subparsers(dest="action", required=True, metavar="ACTION")
    verify = actions.add_parser(
        "verify",
        help="check every record, queue unit and index entry; works while a broker has the "
        "directory open",
    )
    dump = actions.add_parser("dump", help="list the records of the log")
    dump.add_argument("--topic", help="only records of this topic")
    repair = actions.add_parser(
        "repair", help="cut a torn end and build queues and index again from the log"
    )
    size_help = "mappedFileSizeConsumeQueue, if no queue file is left to tell it"
    repair.add_argument("--queue-file-size", type=int, default=0, metavar="BYTES", help=size_help)
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done")
    for action in (verify, dump, repair):
        action.add_argument(
            "directory", metavar="DIR", help="the store directory (storePathRootDir)"
        )
        action.add_argument("--json", action="store_true", help="JSON on standard output")
        action.add_argument(
            "--commit-log",
            metavar="DIR",
            help="where the log is, if it is elsewhere (storePathCommitLog)",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        if options.command == "demo":
            from rocketmq_sdk.cli.demo import run_demo

            return run_demo(options.data, options.namesrv)
        if options.command == "store":
            from rocketmq_sdk.cli.store import run_store

            return run_store(options)
        if options.command == "test-broker":
            return run_test_broker(options)
        if options.command == "broker":
            from rocketmq_sdk.cli.broker import run_broker

            return run_broker(options)
        return trio.run(partial(run_command, COMMANDS[options.command], options))
    except ConfigurationError as error:
        print(f"rocketmq: {error}", file=sys.stderr)
        return 2
    except RocketMQError as error:
        print(f"rocketmq: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Who read along has seen enough; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
