"""The error tree: one root, few branches, three answers on each error.

Whoever catches an error of this package asks three things, and each error answers them
as attributes instead of leaving them to be read out of a text: may the same call
succeed later (`retryable`), is the cached route suspect (`route_stale`), and may the
broker have stored the message all the same (`outcome_unknown`). The branches follow the
places where things fail: the caller's arguments, a closed resource, the route, the
connection, the clock, the broker's answer, the peer's bytes, the store.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.codes import ResponseCode, response_name

_SHOWN: Final = 200


class RocketMQError(Exception):
    """Root of every error that this package raises on purpose."""

    retryable: bool = False
    """Whether the same call may succeed later or elsewhere."""
    route_stale: bool = False
    """Whether the route should be asked for again before the next try."""
    outcome_unknown: bool = False
    """Whether the request may have taken effect although it failed."""
    last_queue: tuple[str, int] | None = None
    """Broker name and queue id of the last attempt of a failed send, if there was one.
    """


class ConfigurationError(RocketMQError, ValueError):
    """A setting, an argument or a message is not acceptable.

    The text names it, its value and the limit.
    """


class WrongTypeError(ConfigurationError, TypeError):
    """An argument has a type that it cannot have; nothing was done.

    Constructors raise it also for arguments that are missing, or that they do not have.
    """


class FilterSyntaxError(ConfigurationError):
    """A SQL92 expression that cannot be used.

    `position` counts its characters from 1, `reason` says what is wrong there.
    """

    def __init__(self, expression: str, position: int, reason: str) -> None:
        shown = expression if len(expression) <= _SHOWN else f"{expression[:_SHOWN]}..."
        super().__init__(
            f"the SQL92 expression {shown!r} cannot be used, at position {position}: {reason}"
        )
        self.expression = expression
        self.position = position
        self.reason = reason


class ClosedError(RocketMQError):
    """The resource was closed by its owner, or was not opened yet."""


class RouteError(RocketMQError):
    """No name server knows the topic, or no broker of its route can serve the call."""

    retryable = True
    route_stale = True


class ConnectError(RocketMQError):
    """A connection could not be opened, or ended while a request was under way.

    `outcome_unknown` is true when the request had been handed to the connection before
    it ended.
    """

    retryable = True
    route_stale = True

    def __init__(
        self, message: str, *, address: str | None = None, outcome_unknown: bool = False
    ) -> None:
        super().__init__(message)
        self.address = address
        self.outcome_unknown = outcome_unknown


class RequestTimeoutError(RocketMQError):
    """No answer came within the time budget."""

    retryable = True

    def __init__(
        self, message: str, *, address: str | None = None, outcome_unknown: bool = True
    ) -> None:
        super().__init__(message)
        self.address = address
        self.outcome_unknown = outcome_unknown


class SendTimeout(RequestTimeoutError):  # noqa: N818 - the name is part of the public interface
    """A send used up its time budget.

    With `outcome_unknown` the broker may have stored the message.
    """


class TooManyRequestsError(RocketMQError):
    """A local limit of requests in flight is reached; nothing was written."""

    retryable = True


class BrokerError(RocketMQError):
    """The peer answered with a code that is not a success."""

    def __init__(
        self,
        code: int,
        remark: str | None = None,
        *,
        address: str | None = None,
        topic: str | None = None,
        group: str | None = None,
    ) -> None:
        where = f" by {address}" if address else ""
        about = "".join(
            f" {name} {value!r}" for name, value in (("topic", topic), ("group", group)) if value
        )
        super().__init__(
            f"answered {response_name(code)} ({code}){where}{' for' + about if about else ''}: "
            f"{remark or 'no remark'}"
        )
        self.code = code
        self.remark = remark
        self.address = address
        self.topic = topic
        self.group = group
        self.retryable = code in RETRYABLE_CODES
        self.route_stale = code in ROUTE_STALE_CODES


class TopicNotFoundError(BrokerError, RouteError):
    """The topic does not exist (17)."""


class BusyError(BrokerError):
    """The broker refuses work for the moment (2, 215)."""


class NotPermittedError(BrokerError):
    """The broker forbids the call (16)."""


class MessageIllegalError(BrokerError):
    """The broker refuses the message itself (13)."""


class ServiceNotAvailableError(BrokerError):
    """The broker cannot store now: disk full, closing, or a slave (14)."""


class NotSupportedError(BrokerError):
    """The peer does not serve this request code or version (3, 15)."""

    def __str__(self) -> str:
        from rocketmq_sdk.releases import why_unknown

        why = why_unknown(self.remark)
        return f"{super().__str__()}; {why}" if why else super().__str__()


class InvalidParameterError(BrokerError):
    """A field of the request is not acceptable (29)."""


class GroupNotFoundError(BrokerError):
    """The consumer group does not exist or is not online (26, 206)."""


class SubscriptionError(BrokerError):
    """The subscription is missing, old or cannot be parsed (23, 24, 25, 27, 28)."""


class NotFoundError(BrokerError):
    """Nothing is stored under what was asked for (22, 208)."""


class ReceiptHandleError(RocketMQError):
    """A receipt handle is expired, replaced or used, or of another group.

    The message is not this consumer's. Nothing was sent for it.
    """


class ProtocolError(RocketMQError):
    """Bytes or commands that break the protocol. Only its two branches are raised."""


class LocalProtocolError(ProtocolError):
    """This side was asked to do something that the protocol forbids.

    Nothing was sent.
    """


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol forbids.

    The connection cannot be used any more.
    """


class FieldError(RemoteProtocolError):
    """A frame is sound but a header field or a body member in it is not.

    The connection stays usable.
    """


class CodecMissingError(RocketMQError):
    """A body is compressed with a method whose library is not installed.

    The text names the extra to install.
    """


class WrongRunError(RocketMQError, RuntimeError):
    """Something was used outside of trio, or in another `trio.run` than its own."""


class StoreError(RocketMQError):
    """The store could not do what was asked; the text names the file and the remedy."""


class StoreFullError(StoreError):
    """No space is left for another record."""

    retryable = True


class StoreLockedError(StoreError):
    """Another broker, in this process or another one, has the directory open."""


class StoreCorruptError(StoreError):
    """A file of the store cannot be what it claims to be."""


_BROKER_ERRORS: Final[dict[int, type[BrokerError]]] = {
    ResponseCode.SYSTEM_BUSY: BusyError,
    ResponseCode.FLOW_CONTROL: BusyError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: NotSupportedError,
    ResponseCode.VERSION_NOT_SUPPORTED: NotSupportedError,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegalError,
    ResponseCode.SERVICE_NOT_AVAILABLE: ServiceNotAvailableError,
    ResponseCode.NO_PERMISSION: NotPermittedError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFoundError,
    ResponseCode.QUERY_NOT_FOUND: NotFoundError,
    ResponseCode.NO_MESSAGE: NotFoundError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionError,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFoundError,
    ResponseCode.CONSUMER_NOT_ONLINE: GroupNotFoundError,
    ResponseCode.INVALID_PARAMETER: InvalidParameterError,
}

RETRYABLE_CODES: Final = frozenset({17, 14, 1, 2, 204, 205, 215, 1500})
"""Answers after which the same call may succeed later."""
ROUTE_STALE_CODES: Final = frozenset({17, 16, 14, 1500})


def broker_error(
    code: int,
    remark: str | None = None,
    *,
    address: str | None = None,
    topic: str | None = None,
    group: str | None = None,
) -> BrokerError:
    """The error for an answer of the peer.

    It is of the class registered for the code, else a `BrokerError`.
    """
    return _BROKER_ERRORS.get(code, BrokerError)(
        code, remark, address=address, topic=topic, group=group
    )
