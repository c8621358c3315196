"""Commands: how they are made and what they say about themselves."""

from __future__ import annotations

from rocketmq_sdk.codes import CLIENT_VERSION, LanguageCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.headers.members import GetConsumerListByGroupRequestHeader
from rocketmq_sdk.protocol.headers.offsets import GetMaxOffsetResponseHeader


def test_a_request_carries_the_fields_of_its_header() -> None:
    command = Command.request(
        38, GetConsumerListByGroupRequestHeader(consumer_group="g", nsd=True), body=b"b", remark="r"
    )
    assert command.ext_fields == {"consumerGroup": "g", "nsd": "true"}
    assert (command.code, command.flag, command.body, command.remark) == (38, 0, b"b", "r")
    assert not command.is_response
    assert not command.is_oneway


def test_a_oneway_request_has_the_bit() -> None:
    command = Command.request(15, oneway=True)
    assert command.flag == 2
    assert command.is_oneway
    assert command.ext_fields == {}


def test_a_response_has_the_bit_and_success_by_default() -> None:
    command = Command.response(header=GetMaxOffsetResponseHeader(offset=5))
    assert (command.code, command.flag, command.ext_fields) == (0, 1, {"offset": "5"})
    assert command.is_response


def test_defaults_name_this_package() -> None:
    command = Command(34)
    assert command.language is LanguageCode.PYTHON
    assert command.version == CLIENT_VERSION
    assert command.encoding is HeaderEncoding.JSON
    assert command.ext_fields is not Command(34).ext_fields


def test_the_text_of_a_command_names_code_and_fields_but_no_values() -> None:
    text = repr(Command(310, opaque=9, ext_fields={"i": "secret"}, body=b"12345"))
    assert text == "<request SEND_MESSAGE_V2 opaque=9 fields=['i'] body=5 bytes>"
    assert "TOPIC_NOT_EXIST" in repr(Command.response(17, remark="no topic"))


def test_commands_are_equal_by_their_parts() -> None:
    assert Command(1, body=b"x") == Command(1, body=b"x")
    assert Command(1, body=b"x") != Command(1, body=b"y")
    assert Command(1) != "command"
