"""`rocketmq test-broker`: its options, and the broker of the test kit behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.cli.broker import single_settings
from rocketmq_sdk.cli.logs import tell

if TYPE_CHECKING:
    import argparse


def add_test_broker(commands: argparse._SubParsersAction[Any]) -> None:
    """Describe the command."""
    command = commands.add_parser(
        "test-broker",
        help="serve a broker for tests in any language, which fails, dies and tells what it saw",
    )
    for name, what in (("--namesrv-listen", "name server"), ("--listen", "broker")):
        command.add_argument(
            name,
            metavar="HOST:PORT",
            default="127.0.0.1:0",
            help=f"address of the {what} (default: a free port of 127.0.0.1)",
        )
    command.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="serve the control endpoint (HTTP, described at /openapi.json); port 0 is a free one",
    )
    command.add_argument(
        "--control-open",
        action="store_true",
        help="let the control endpoint listen elsewhere than on 127.0.0.1",
    )
    command.add_argument(
        "--ready-file",
        metavar="FILE",
        help="write the addresses to this file, as JSON, as soon as they can be used",
    )
    command.add_argument(
        "--virtual-clock", action="store_true", help="let the control endpoint move the clock"
    )
    command.add_argument(
        "--seed", metavar="FILE", help="topics, groups, messages and offsets (JSON or TOML)"
    )
    command.add_argument(
        "--emulate",
        metavar="RELEASE",
        help="be to clients as Apache's broker of an older release, such as 4.9.7",
    )
    command.add_argument("--store", metavar="DIR", help="store directory (default: in memory)")
    command.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one setting by Apache's name; may be repeated",
    )
    command.add_argument(
        "--json", action="store_true", help="say `ready` as one JSON object, that of --ready-file"
    )


def run_test_broker(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; 0 after a clean end."""
    from rocketmq_sdk.testing.control.process import ProcessOptions, run

    config, warnings = BrokerConfig.from_properties(single_settings(options.set))
    for warning in warnings:
        tell(warning)
    run(
        ProcessOptions(
            listen=options.listen,
            namesrv_listen=options.namesrv_listen,
            store=options.store,
            control=options.control,
            control_open=options.control_open,
            ready_file=options.ready_file,
            as_json=options.json,
            seed=options.seed,
            virtual_clock=options.virtual_clock,
            emulate=options.emulate,
            config=config,
        )
    )
    return 0
