"""`rocketmq broker`: name server and broker on TCP until a signal says stop.

The signal receiver is opened before anything else, so that an early SIGTERM is not lost
and Ctrl-C never arrives in the middle of an append.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.broker_embedded.settings.settings_file import SettingsFile
from rocketmq_sdk.cli.garbage import short_collections
from rocketmq_sdk.cli.progress import LateProgress
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse


def _properties(options: argparse.Namespace) -> str:
    """The properties file followed by the single settings.

    Settings win because they come last.
    """
    text = SettingsFile(options.config).read() if options.config else ""
    for setting in options.set:
        name, separator, value = setting.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {setting!r} is not of the form name=value")
        text += f"\n{name.strip()}={value.strip()}"
    return text


def _namesrv_listen(path: str | None) -> str:
    settings = read_properties(SettingsFile(path).read()) if path else {}
    return f"0.0.0.0:{settings.get('listenPort', NamesrvConfig().listen_port)}"


async def _serve(options: argparse.Namespace, config: BrokerConfig) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        listen = options.listen or f"0.0.0.0:{config.listen_port}"
        broker = EmbeddedBroker(
            options.store,
            listen=listen,
            namesrv_listen=options.namesrv_listen or _namesrv_listen(options.namesrv_config),
            config=config,
            config_file=options.config,
            namesrv_config_file=options.namesrv_config,
        )
        with LateProgress("bytes of log recovered") as bar:
            broker.on_recovery = bar
            async with broker, short_collections():
                bar.close()
                print(
                    f"ready: name server {broker.namesrv_address}, broker {broker.address}",
                    flush=True,
                )
                async for number in signals:
                    print(f"{signal.Signals(number).name}: closing", file=sys.stderr, flush=True)
                    break


def run_broker(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; 0 after a clean end."""
    config, warnings = BrokerConfig.from_properties(_properties(options))
    for warning in warnings:
        print(f"rocketmq: warning: {warning}", file=sys.stderr)
    trio.run(_serve, options, config)
    return 0
