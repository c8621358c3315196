"""How the options about keys, certificates and namespaces reach the client; files and
variables are read where a connection is made.
"""

from __future__ import annotations

import pickle
import ssl
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.credentials import Signing
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use

if TYPE_CHECKING:
    from pathlib import Path


def connection(**options: str) -> ClusterAccess:
    return ClusterAccess.of(
        parse({"namesrvAddr": "127.0.0.1:9876", "subscribe": "T", **options}, Use.BATCH)
    )


def signed(made: ClusterAccess) -> dict[str, str]:
    """What a request carries."""
    (interceptor,) = made.client_options()["interceptors"]
    assert isinstance(interceptor, Signing)
    command = Command(code=RequestCode.PULL_MESSAGE, ext_fields={"topic": "T"})
    interceptor.before(command, None)
    return dict(command.ext_fields)


def test_nothing_is_set_unless_it_is_asked_for() -> None:
    assert connection().client_options() == {}
    assert connection(namespace="ns").client_options() == {"namespace": "ns"}


def test_keys_come_from_options_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.properties"
    file.write_text("# ours\naccessKey = user\nsecretKey = hidden\n")
    by_option = connection(accessKey="user", secretKey="hidden")
    by_file, by_environment = (
        connection(credentialsFile=str(file)),
        connection(credentialsEnv="OURS"),
    )
    for made in (by_option, by_file, by_environment):
        assert "hidden" not in repr(made)
    for made in (by_file, by_environment):  # what travels to workers
        assert b"hidden" not in pickle.dumps(made)
    monkeypatch.setenv("OURS_ACCESS_KEY", "user")
    monkeypatch.setenv("OURS_SECRET_KEY", "hidden")
    texts = [
        signed(pickle.loads(pickle.dumps(made))) for made in (by_option, by_file, by_environment)
    ]
    assert texts[0]["AccessKey"] == "user"
    assert texts[0]["Signature"]
    assert texts[0] == texts[1] == texts[2]
    assert (
        signed(connection(accessKey="user", secretKey="hidden", securityToken="token"))[
            "SecurityToken"
        ]
        == "token"
    )


def test_keys_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOBODY_ACCESS_KEY", raising=False)
    with pytest.raises(
        ConfigurationError,
        match="the environment has no NOBODY_ACCESS_KEY and no NOBODY_SECRET_KEY",
    ):
        connection(credentialsEnv="NOBODY").client_options()
    with pytest.raises(ConfigurationError, match=r"the credentials file .*nowhere cannot be read"):
        connection(credentialsFile=str(tmp_path / "nowhere")).client_options()


def test_tls_checks_what_it_is_told_to(tmp_path: Path) -> None:
    strict, lax = (
        connection(tls="true").client_options()["tls"],
        connection(tls="true", tlsCheckHostname="false").client_options()["tls"],
    )
    assert isinstance(strict, ssl.SSLContext)
    assert isinstance(lax, ssl.SSLContext)
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_REQUIRED)
    with pytest.raises(ConfigurationError, match="the certificates of /nowhere/ca cannot be used"):
        connection(tls="true", tlsCaFile="/nowhere/ca").client_options()
    with pytest.raises(
        ConfigurationError,
        match="the certificate and key /nowhere/cert, /nowhere/key cannot be used",
    ):
        connection(
            tls="true", tlsCertFile="/nowhere/cert", tlsKeyFile="/nowhere/key"
        ).client_options()
