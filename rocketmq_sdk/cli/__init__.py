"""The command line: `rocketmq`.

`demo`, `broker`, `test-broker` and `store` are about this package's own broker; the
commands of `operate` work with every cluster.

Exit codes: 0 done, 1 the command ran and failed, 2 the command line or a setting is not
acceptable.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.cli.broker_for_tests import add_test_broker, run_test_broker
from rocketmq_sdk.cli.completion import add_completion, completion
from rocketmq_sdk.cli.logs import begin_log, log_arguments
from rocketmq_sdk.cli.operate import COMMANDS
from rocketmq_sdk.cli.operate.connection import connection_arguments, run_command
from rocketmq_sdk.cli.option_file import option_file_argument, with_option_file
from rocketmq_sdk.cli.spelling import Parser
from rocketmq_sdk.cli.streams import be_utf8, prepare
from rocketmq_sdk.errors import ConfigurationError, RocketMQError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["main"]

_OTHER_PORT: Final = (
    "another program, perhaps another broker, listens there; choose another port with --listen "
    "(the broker) or --namesrv-listen (the name server)"
)


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(
        prog="rocketmq", description="RocketMQ in pure Python: an embedded broker and a client."
    )
    top.add_argument(
        "--version", action="version", version=f"rocketmq-trio {version('rocketmq-trio')}"
    )
    log_arguments(top)
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
    demo.add_argument("--json", action="store_true", help="one JSON object on standard output")

    _add_broker(commands)
    add_test_broker(commands)
    _add_store(commands)
    add_completion(commands)
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
    option_file_argument(broker)
    broker.add_argument("--json", action="store_true", help="say `ready` as one JSON object")
    log_arguments(broker, inner=True)


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
    prepare()
    known = parser()
    as_json = False
    try:
        options = with_option_file(known, arguments)
        as_json = getattr(options, "json", False)
        if as_json:
            be_utf8(sys.stdout, sys.stderr)
        begin_log(options)
        # Who collects a log of JSON wants to read as such what ended the command, too.
        as_json = as_json or (options.log_format == "json" and options.log_file is None)
        return _run(known, options)
    except ConfigurationError as error:
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            error.add_note(_OTHER_PORT)
        _tell(error, as_json=as_json)
        return 2
    except BrokenPipeError:
        # Who read along has seen enough; what is still in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RocketMQError, OSError) as error:
        _tell(error, as_json=as_json)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(known: Parser, options: argparse.Namespace) -> int:
    if options.command == "demo":
        from rocketmq_sdk.cli.demo import run_demo

        return run_demo(options.data, options.namesrv, as_json=options.json)
    if options.command == "store":
        from rocketmq_sdk.cli.store import run_store

        return run_store(options)
    if options.command == "test-broker":
        return run_test_broker(options)
    if options.command == "broker":
        from rocketmq_sdk.cli.broker import run_broker

        return run_broker(options)
    if options.command == "completion":
        print(completion(known, options.shell), end="")
        return 0
    return trio.run(partial(run_command, COMMANDS[options.command], options))


def _tell(error: RocketMQError | OSError, *, as_json: bool) -> None:
    """Say on standard error what ended a command, as JSON where that is wanted."""
    name, notes = type(error).__name__, getattr(error, "__notes__", ())
    if as_json:
        told: dict[str, object] = {"error": name, "message": str(error)}
        if (code := getattr(error, "code", None)) is not None:
            told["code"] = int(code)
        if notes:
            told["hint"] = "; ".join(notes)
        print(json.dumps(told, ensure_ascii=False), file=sys.stderr)
    elif isinstance(error, ConfigurationError):
        print(f"rocketmq: {error}", *notes, sep="\n", file=sys.stderr)
    else:
        print(f"rocketmq: {name}: {error}", *notes, sep="\n", file=sys.stderr)
