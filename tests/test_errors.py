"""The error tree: every answer finds its class, every error answers the three
questions.
"""

from __future__ import annotations

import inspect

import pytest

from rocketmq_sdk import errors
from rocketmq_sdk.codes import RequestCode, ResponseCode, request_name, response_name
from rocketmq_sdk.errors import BrokerError, RocketMQError, broker_error

CLASSES = [
    member
    for _name, member in inspect.getmembers(errors, inspect.isclass)
    if issubclass(member, RocketMQError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_all_errors_answer_the_three_questions(kind: type[RocketMQError]) -> None:
    arguments: dict[type[RocketMQError], tuple[object, ...]] = {
        errors.FilterSyntaxError: ("a >", 3, "nothing follows")
    }
    error = kind(*arguments.get(kind, (17,) if issubclass(kind, BrokerError) else ("text",)))
    assert isinstance(error.retryable, bool)
    assert isinstance(error.route_stale, bool)
    assert isinstance(error.outcome_unknown, bool)
    assert inspect.getdoc(kind)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, errors.TopicNotFoundError),
        (ResponseCode.SYSTEM_BUSY, errors.BusyError),
        (ResponseCode.FLOW_CONTROL, errors.BusyError),
        (ResponseCode.NO_PERMISSION, errors.NotPermittedError),
        (ResponseCode.MESSAGE_ILLEGAL, errors.MessageIllegalError),
        (ResponseCode.SERVICE_NOT_AVAILABLE, errors.ServiceNotAvailableError),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, errors.NotSupportedError),
        (ResponseCode.VERSION_NOT_SUPPORTED, errors.NotSupportedError),
        (ResponseCode.QUERY_NOT_FOUND, errors.NotFoundError),
        (ResponseCode.NO_MESSAGE, errors.NotFoundError),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, errors.SubscriptionError),
        (ResponseCode.FILTER_DATA_NOT_LATEST, errors.SubscriptionError),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, errors.GroupNotFoundError),
        (ResponseCode.CONSUMER_NOT_ONLINE, errors.GroupNotFoundError),
        (ResponseCode.INVALID_PARAMETER, errors.InvalidParameterError),
        (ResponseCode.SYSTEM_ERROR, BrokerError),
        (4711, BrokerError),
    ],
)
def test_codes_find_their_class(code: int, kind: type[BrokerError]) -> None:
    error = broker_error(code, "remark", address="127.0.0.1:10911", topic="T", group="g")
    assert type(error) is kind
    assert (error.code, error.remark, error.address, error.topic, error.group) == (
        code,
        "remark",
        "127.0.0.1:10911",
        "T",
        "g",
    )
    assert error.retryable == (code in errors.RETRYABLE_CODES)
    assert error.route_stale == (code in errors.ROUTE_STALE_CODES)


def test_text_of_a_broker_error() -> None:
    error = broker_error(17, "No topic route info", address="127.0.0.1:10911", topic="T", group="g")
    assert str(error) == (
        "answered TOPIC_NOT_EXIST (17) by 127.0.0.1:10911 for topic 'T' group 'g': No topic "
        "route info"
    )
    assert str(broker_error(4711)) == "answered 4711 (4711): no remark"


def test_a_missing_topic_is_also_a_route_error() -> None:
    with pytest.raises(errors.RouteError):
        raise broker_error(17)


def test_a_configuration_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="limit"):
        raise errors.ConfigurationError("over the limit")


def test_outcome_of_a_lost_connection_depends_on_what_was_written() -> None:
    assert not errors.ConnectError("refused", address="a:1").outcome_unknown
    assert errors.ConnectError("reset", outcome_unknown=True).outcome_unknown
    assert errors.RequestTimeoutError("late").outcome_unknown
    assert not errors.SendTimeout("no route in time", outcome_unknown=False).outcome_unknown
    assert issubclass(errors.SendTimeout, errors.RequestTimeoutError)


def test_the_retried_codes_are_those_of_the_java_producer_and_flow_control() -> None:
    assert {17, 14, 1, 2, 204, 205, 1500} | {215} == errors.RETRYABLE_CODES


def test_names_of_codes() -> None:
    assert response_name(0) == "SUCCESS"
    assert response_name(-77) == "-77"
    assert request_name(RequestCode.SEND_MESSAGE_V2) == "SEND_MESSAGE_V2"
    assert request_name(99999) == "99999"
