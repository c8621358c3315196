"""How commands reach a cluster: options, environment, profiles."""

from __future__ import annotations

import os
import ssl
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.cli.operate.command import Command, Session, seconds
from rocketmq_sdk.cli.operate.output import Output
from rocketmq_sdk.errors import (
    ConfigurationError,
    ConnectError,
    NotPermittedError,
    RocketMQError,
)
from rocketmq_sdk.remoting.credentials import Credentials

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

PROFILE_VARIABLE: Final = "ROCKETMQ_PROFILE"
KEYS: Final = {
    "namesrv": str,
    "credentials": str,
    "tls": bool,
    "ca_file": str,
    "tls_cert": str,
    "tls_key": str,
    "namespace": str,
    "timeout": float,
}
"""What a profile may hold, and of which type."""
_TIMEOUT: Final = 5.0


def profile_file() -> Path:
    """Where profiles are: `rocketmq/config.toml` in the user's configuration."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "rocketmq" / "config.toml"


def connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that every command has."""
    group = parser.add_argument_group("connection and output")
    group.add_argument(
        "-n",
        "--namesrv",
        metavar="HOST:PORT[;...]",
        help="name servers (default: the profile, then NAMESRV_ADDR, then 127.0.0.1:9876)",
    )
    group.add_argument(
        "--profile", metavar="NAME", help=f"settings from {profile_file()} [{PROFILE_VARIABLE}]"
    )
    group.add_argument(
        "--credentials", metavar="FILE", help="a properties file with accessKey and secretKey"
    )
    group.add_argument("--tls", action="store_true", default=None, help="connect with TLS")
    group.add_argument(
        "--ca-file", metavar="FILE", help="trust these authorities (PEM); implies --tls"
    )
    group.add_argument(
        "--tls-cert", metavar="FILE", help="show this certificate (PEM); implies --tls"
    )
    group.add_argument(
        "--tls-key", metavar="FILE", help="its key; without it the key is in the same file"
    )
    group.add_argument("--namespace", metavar="NAME", help="names are those within it")
    group.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help=f"for each request ({_TIMEOUT:g})"
    )
    group.add_argument("--json", action="store_true", help="one JSON object on each line")


def read_profile(name: str | None) -> Mapping[str, Any]:
    """The settings of a profile; without a name those of `default`, if there are any.

    Raises `ConfigurationError` for a file or profile that cannot be used.
    """
    path = profile_file()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if name is None:
            return {}
        raise ConfigurationError(f"there is no profile {name!r}: {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    try:
        profiles = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    if name is None and "default" not in profiles:
        return {}
    profile = profiles.get(name or "default")
    if not isinstance(profile, dict):
        known = ", ".join(key for key, value in profiles.items() if isinstance(value, dict))
        raise ConfigurationError(f"{path} has no profile {name!r}; there are: {known or 'none'}")
    for key, value in profile.items():
        kind = KEYS.get(key)
        if kind is None:
            raise ConfigurationError(
                f"the profile {name or 'default'!r} of {path} has {key!r}; it may have "
                + ", ".join(KEYS)
            )
        if not isinstance(value, (int, float) if kind is float else kind):
            raise ConfigurationError(f"{key} in the profile {name or 'default'!r} is {value!r}")
    return profile


def open_admin(options: argparse.Namespace, more: Mapping[str, Any]) -> Admin:
    """An `Admin`, not entered, for the options of a command, with `more` settings.

    Raises `ConfigurationError`.
    """
    profile = read_profile(options.profile or os.environ.get(PROFILE_VARIABLE) or None)

    def chosen(name: str) -> Any:  # what a table from TOML holds
        given = getattr(options, name)
        return profile.get(name) if given is None else given

    settings: dict[str, Any] = {"api_timeout": float(chosen("timeout") or _TIMEOUT)}
    if file := chosen("credentials"):
        settings["credentials"] = Credentials.from_file(str(Path(file).expanduser()))
    if namespace := chosen("namespace"):
        settings["namespace"] = namespace
    files = (chosen("ca_file"), chosen("tls_cert"), chosen("tls_key"))
    if chosen("tls") or any(files):
        settings["tls"] = _tls(*files)
    namesrv = chosen("namesrv") or os.environ.get("NAMESRV_ADDR") or "127.0.0.1:9876"
    return Admin(namesrv=namesrv, **{**settings, **more})


def _tls(ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """What connections are made with. Raises `ConfigurationError`."""
    if key and not certificate:
        raise ConfigurationError("--tls-key needs --tls-cert, the certificate that it belongs to")
    given = f"--ca-file {ca_file}"
    try:
        context = ssl.create_default_context(
            cafile=None if ca_file is None else Path(ca_file).expanduser()
        )
        if certificate:
            given = f"--tls-cert {certificate}" + (f" with --tls-key {key}" if key else "")
            own = Path(certificate).expanduser()
            context.load_cert_chain(own, None if key is None else Path(key).expanduser())
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"{given} cannot be used: {error}") from error
    return context


async def run_command(command: Command, options: argparse.Namespace) -> int:
    """Run one command and return its exit code."""
    begin, end = getattr(options, "begin", None), getattr(options, "end", None)
    if begin is not None and end is not None and end < begin:
        raise ConfigurationError("-e is before -b; there is nothing between them")
    async with open_admin(options, command.settings(options)) as admin:
        try:
            return await command.run(Session(options, admin, Output(as_json=options.json))) or 0
        except RocketMQError as error:
            if hint := _hint(error, admin):
                error.add_note(hint)
            raise


def _hint(error: RocketMQError, admin: Admin) -> str | None:
    """What was probably left out on the command line."""
    config = admin.client.config
    if isinstance(error, NotPermittedError) and config.credentials is None:
        return "if the cluster checks users, give --credentials FILE, or a profile with credentials"
    if isinstance(error, ConnectError) and config.tls is None and "ended before" in str(error):
        return "if the port asks for TLS, give --tls, or --ca-file FILE for your own authority"
    return None
