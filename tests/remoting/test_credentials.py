"""Keys from files and variables, and signed requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.signing import verify
from rocketmq_sdk.remoting.credentials import Credentials, Signing

if TYPE_CHECKING:
    from pathlib import Path


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Credentials("user", "hidden-key", "hidden-token"))


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.properties"
    path.write_text("# of the team\naccessKey = user\nsecretKey=a=b\n")
    assert Credentials.from_file(str(path)) == Credentials("user", "a=b")


def test_a_file_that_lacks_a_key_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "keys.properties"
    path.write_text("secretKey=hidden\n")
    with pytest.raises(ConfigurationError, match=r"keys\.properties has no accessKey") as caught:
        Credentials.from_file(str(path))
    assert "hidden" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="cannot be read: FileNotFoundError"):
        Credentials.from_file(str(tmp_path / "missing"))


def test_keys_of_the_environment() -> None:
    found = Credentials.from_environment(
        "MQ", {"MQ_ACCESS_KEY": "user", "MQ_SECRET_KEY": "key", "MQ_SECURITY_TOKEN": "token"}
    )
    assert found == Credentials("user", "key", "token")
    with pytest.raises(
        ConfigurationError, match="the environment has no MQ_ACCESS_KEY and no MQ_SECRET_KEY"
    ):
        Credentials.from_environment("MQ", {})


def test_requests_are_signed_again_when_they_are_sent_again() -> None:
    signing, command = (
        Signing(Credentials("user", "key", "token")),
        Command(10, ext_fields={"topic": "T"}, body=b"body"),
    )
    signing.before(command, "host:1")
    assert (command.ext_fields["AccessKey"], command.ext_fields["SecurityToken"]) == (
        "user",
        "token",
    )
    assert verify(command.ext_fields, b"body", "key")
    command.ext_fields["topic"] = "U"
    signing.before(command, "host:2")
    assert verify(command.ext_fields, b"body", "key")
