"""`rocketmq broker`: name server and broker on TCP until a signal says stop.

The signal receiver is opened before anything else, so that an early SIGTERM is not lost
and Ctrl-C never arrives in the middle of an append.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.broker_embedded.settings.settings_file import SettingsFile
from rocketmq_sdk.cli.garbage import short_collections
from rocketmq_sdk.cli.logs import tell
from rocketmq_sdk.cli.progress import LateProgress
from rocketmq_sdk.cli.service_manager import ServiceManager
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.route import is_loopback, join_address, split_address
from rocketmq_sdk.validators import no_such_setting

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_EVERYWHERE: Final = "0.0.0.0"
_THIS_MACHINE: Final = "127.0.0.1"
_LOUD: Final = "rocketmq: WARNING: "
_OPEN_FILES: Final = 65_536
"""More than the most connections and files of a broker."""


def _properties(options: argparse.Namespace) -> str:
    """The properties file followed by the single settings.

    Settings win because they come last.
    """
    text = SettingsFile(options.config).read() if options.config else ""
    for name, value in (
        ("tls.server.certPath", options.tls_cert),
        ("tls.server.keyPath", options.tls_key),
        ("tls.server.trustCertPath", options.tls_client_ca),
        ("tls.server.need.client.auth", options.tls_client_ca and "require"),
        ("tls.server.mode", options.require_tls and "enforcing"),
    ):
        if value:
            text += f"\n{name}={value}"
    return text + single_settings(options.set)


def single_settings(given: Sequence[str]) -> str:
    """What `--set` gave, as lines of a properties file.

    Raises `ConfigurationError`, also for a setting that does not exist. (In a file that
    is a warning: it may be for another release of Apache's.)
    """
    text, known = "", BrokerConfig().known_names() if given else set()
    for setting in given:
        name, separator, value = setting.partition("=")
        name = name.strip()
        if not separator or not name:
            raise ConfigurationError(f"--set {setting!r} is not of the form name=value")
        if name not in known:
            raise ConfigurationError(no_such_setting(name, known))
        text += f"\n{name}={value.strip()}"
    return text


def _host(config: BrokerConfig) -> str:
    """Where to listen unless it is said: everywhere only if users are checked."""
    return _EVERYWHERE if config.checks_access else _THIS_MACHINE


def _namesrv_listen(path: str | None, host: str) -> str:
    settings = read_properties(SettingsFile(path).read()) if path else {}
    return f"{host}:{settings.get('listenPort', NamesrvConfig().listen_port)}"


def _warn_of_open_ports(config: BrokerConfig, *addresses: str) -> None:
    """Say loudly when everybody in a network may do everything."""
    if config.checks_access:
        return
    opened = [address for address in addresses if not is_loopback(split_address(address)[0])]
    if opened:
        tell(
            f"everybody who reaches {' or '.join(opened)} may read, write and "
            "delete everything, because no users are checked. Switch on authenticationEnabled "
            "and authorizationEnabled (docs/security.md), or listen on 127.0.0.1",
            before=_LOUD,
        )


def _allow_open_files() -> None:
    """Let this process open as many files and connections as it may, as Java does."""
    try:
        import resource
    except ModuleNotFoundError:  # not on Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(options: argparse.Namespace, config: BrokerConfig) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        manager = ServiceManager()
        host = _host(config)
        listen = options.listen or f"{host}:{config.listen_port}"
        namesrv_listen = options.namesrv_listen or _namesrv_listen(options.namesrv_config, host)
        _warn_of_open_ports(config, listen, namesrv_listen)
        _warn_of_unreachable(config.broker_ip1, listen)
        broker = EmbeddedBroker(
            options.store,
            listen=listen,
            namesrv_listen=namesrv_listen,
            metrics=options.metrics,
            config=config,
            config_file=options.config,
            namesrv_config_file=options.namesrv_config,
        )
        with LateProgress("bytes of log recovered") as bar:

            def recovered(done: int, total: int) -> None:
                bar(done, total)
                manager.starting(done, total)

            broker.on_recovery = recovered
            async with broker, short_collections(), open_quiet_nursery() as nursery:
                bar.close()
                if broker.ha_address is not None:
                    _warn_of_open_replication(split_address(listen)[0], broker.ha_address, config)
                _warn_of_open_metrics(broker.metrics_address)
                _say_ready(broker, manager, as_json=options.json)
                nursery.start_soon(manager.live)
                async for number in signals:
                    name = signal.Signals(number).name
                    tell(f"{name}: closing", logging.INFO, before="")
                    manager.closing(name)
                    break
                nursery.cancel_scope.cancel()


def _warn_of_unreachable(told: str | None, listen: str) -> None:
    """Say when clients are told an address at which nobody listens."""
    host, port = split_address(listen)
    if told is not None and is_loopback(host) and not is_loopback(told):
        tell(
            f"brokerIP1 tells clients to come to {told}, but the broker listens "
            f"on {host} only; give --listen 0.0.0.0:{port}, or take brokerIP1 away",
        )


def _warn_of_open_replication(host: str, address: str, config: BrokerConfig) -> None:
    """Say when everybody in a network may copy the log: replication knows no users."""
    tls = config.tls.complete()
    asks = tls.tls_server_mode == "enforcing" and tls.tls_server_need_client_auth == "require"
    if not asks and not is_loopback(host):
        where = join_address(host, split_address(address)[1])
        tell(
            f"everybody who reaches {where}, the port for slaves, may read the "
            "whole log, as replication has no users. Keep the port private, or ask for "
            "certificates of clients (docs/security.md)",
            before=_LOUD,
        )


def _warn_of_open_secrets(path: str, config: BrokerConfig) -> None:
    """Say when every user of the machine may read the secrets in a file."""
    tls = config.tls
    secrets = (
        config.init_authentication_user,
        config.inner_client_authentication_credentials,
        tls.tls_server_key_password,
        tls.tls_client_key_password,
    )
    if any(secrets) and Path(path).stat().st_mode & stat.S_IROTH:
        tell(
            f"{path} holds secrets, and everybody on this machine may read it: chmod 600 {path}",
        )


def _warn_of_open_metrics(address: str | None) -> None:
    """Say when others than this machine's programs may read the metrics."""
    if address is not None and not is_loopback(split_address(address)[0]):
        tell(
            f"whoever reaches {address} reads the metrics, with the names of topics and groups",
        )


def _say_ready(broker: EmbeddedBroker, manager: ServiceManager, *, as_json: bool) -> None:
    namesrv, address = broker.namesrv_address, broker.address
    metrics = None if broker.metrics_address is None else f"http://{broker.metrics_address}/metrics"
    where = f"name server {namesrv}, broker {address}"
    if metrics:
        where += f", metrics {metrics}"
    if as_json:
        told = {"ready": True, "namesrv": namesrv, "broker": address, "metrics": metrics}
        print(json.dumps(told | {"pid": os.getpid()}), flush=True)
    else:
        print(f"ready: {where}", flush=True)
    manager.ready(where)


def run_broker(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; 0 after a clean end."""
    config, warnings = BrokerConfig.from_properties(_properties(options))
    if options.config:
        _warn_of_open_secrets(options.config, config)
    for warning in warnings:
        tell(warning)
    _allow_open_files()
    trio.run(_serve, options, config)
    return 0
