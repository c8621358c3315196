"""Settings of a client, their keyword form, and where the name servers come from.

The options and defaults are those of `ClientConfig` of Apache RocketMQ 5.4.0 as far as
they have a meaning here; durations are seconds.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypedDict

import attrs

from rocketmq_sdk.client.address_server import is_address_server
from rocketmq_sdk.constructors import explained
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.route import pack_host, parse_addresses
from rocketmq_sdk.names import TRACE_TOPIC, illegal_characters, topic_problem
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.remoting.client import Interceptor
from rocketmq_sdk.remoting.credentials import Credentials
from rocketmq_sdk.remoting.source import ChannelSource
from rocketmq_sdk.validators import (
    at_least,
    option_names,
    positive,
    to_seconds,
    with_methods,
    with_named_errors,
)

if TYPE_CHECKING:
    from datetime import timedelta

NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
"""The environment variable that is read when no name server is given."""

NamesrvSource = str | Sequence[str] | ChannelSource
"""Where the name servers are.

Addresses separated by `;`, a sequence of addresses, the URL of an address server, or an
in-process broker.
"""


class ClientOptions(TypedDict, total=False):
    """Keyword form of `ClientConfig`."""

    client_ip: str | None
    instance_name: str | None
    unit_name: str | None
    unit_mode: bool
    poll_name_server_interval: float | timedelta
    heartbeat_broker_interval: float | timedelta
    api_timeout: float | timedelta
    connect_timeout: float | timedelta
    header_encoding: HeaderEncoding | str
    tls: ssl.SSLContext | None
    enable_trace: bool
    trace_topic: str
    trace_msg_batch_num: int
    namespace: str
    namespace_v2: str
    use_heartbeat_v2: bool
    credentials: Credentials | None
    interceptors: Iterable[Interceptor]


def header_encoding_of(value: HeaderEncoding | str) -> HeaderEncoding:
    """A header encoding by value or by its name in any case.

    Raises `ConfigurationError`.
    """
    if isinstance(value, HeaderEncoding):
        return value
    if not isinstance(value, str):
        raise WrongTypeError(f"header_encoding is {value!r:.200}; give JSON or ROCKETMQ")
    try:
        return HeaderEncoding[value.strip().upper()]
    except KeyError:
        raise ConfigurationError(
            f"header_encoding is {value!r}; there are JSON and ROCKETMQ"
        ) from None


def _check_ip(_instance: object, _field: object, value: str | None) -> None:
    if value is not None:
        try:
            pack_host(value, 0)
        except (ConfigurationError, AttributeError):
            raise ConfigurationError(f"client_ip is {value!r:.200}, no IP address") from None


def _check_topic(_instance: object, _field: object, value: str) -> None:
    if problem := topic_problem(value):
        raise ConfigurationError(f"trace_topic is {value!r}: {problem}")


def _check_tls(_instance: object, _field: object, value: ssl.SSLContext | None) -> None:
    if value is not None and not isinstance(value, ssl.SSLContext):
        raise WrongTypeError(
            f"tls is {value!r:.200}; give an ssl.SSLContext, for example "
            "ssl.create_default_context()"
        )


def _check_namespace(_instance: object, field: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or illegal_characters(value) or "%" in value:
        raise ConfigurationError(
            f"{field.name} is {value!r}; it may hold letters, digits, '-', '_' and '|'"
        )


def _check_credentials(_instance: object, _field: object, value: Credentials | None) -> None:
    if value is not None and not isinstance(value, Credentials):
        raise WrongTypeError(
            f"credentials is a {type(value).__name__}; give Credentials(access_key, secret_key)"
        )


def _interceptors(value: Iterable[Interceptor]) -> tuple[Interceptor, ...]:
    try:
        return tuple(value)
    except TypeError:
        raise WrongTypeError(f"interceptors is {value!r:.200}; give a list of them") from None


def _check_interceptors(_instance: object, _field: object, value: tuple[Interceptor, ...]) -> None:
    for each in value:
        give = "give objects with before and after"
        with_methods("interceptors", each, ("before", "after"), give)


@explained
@attrs.frozen(kw_only=True, field_transformer=with_named_errors)
class ClientConfig:
    """What a client needs to know before it starts.

    `client_ip` is the address that client id and message ids carry (None: found out).
    `instance_name` None makes each client an instance of its own; with a name, clients
    of one host and name count as the same member. `poll_name_server_interval` is the
    route refresh, `api_timeout` bounds calls that are not messages. `header_encoding`
    is how requests are written; peers answer alike. `tls` switches TLS on for TCP
    connections. With `enable_trace` producers and consumers tell of what they send and
    consume in `trace_topic`; `trace_msg_batch_num` of their events, at most 20, go into
    one message. `namespace` puts the names of topics and groups into a namespace,
    `namespace_v2` names one in each request. `use_heartbeat_v2` leaves subscriptions
    out of heartbeats to brokers that know them. `credentials` are the keys of an
    account, which each request is signed with. `interceptors` see each request, before
    it is signed, and each answer.
    """

    client_ip: str | None = attrs.field(default=None, validator=_check_ip)
    instance_name: str | None = None
    unit_name: str | None = None
    unit_mode: bool = False
    poll_name_server_interval: float = attrs.field(
        default=30.0, converter=to_seconds, validator=positive
    )
    heartbeat_broker_interval: float = attrs.field(
        default=30.0, converter=to_seconds, validator=positive
    )
    api_timeout: float = attrs.field(default=3.0, converter=to_seconds, validator=positive)
    connect_timeout: float = attrs.field(default=3.0, converter=to_seconds, validator=positive)
    header_encoding: HeaderEncoding = attrs.field(
        default=HeaderEncoding.JSON, converter=header_encoding_of
    )
    tls: ssl.SSLContext | None = attrs.field(default=None, validator=_check_tls)
    enable_trace: bool = False
    trace_topic: str = attrs.field(default=TRACE_TOPIC, validator=_check_topic)
    trace_msg_batch_num: int = attrs.field(default=10, validator=at_least(1))
    namespace: str = attrs.field(default="", validator=_check_namespace)
    namespace_v2: str = attrs.field(default="", validator=_check_namespace)
    use_heartbeat_v2: bool = False
    credentials: Credentials | None = attrs.field(default=None, validator=_check_credentials)
    interceptors: tuple[Interceptor, ...] = attrs.field(
        default=(), converter=_interceptors, validator=_check_interceptors
    )


CLIENT_OPTIONS: Final = option_names(ClientConfig)


def named_namesrv(namesrv: NamesrvSource | None) -> NamesrvSource:
    """The argument, or what `NAMESRV_ADDR` says if it is None.

    Raises `ConfigurationError` when that is not set.
    """
    if namesrv is not None:
        return namesrv
    given = os.environ.get(NAMESRV_VARIABLE, "")
    if not given.strip():
        raise ConfigurationError(
            f"no name server was given; pass namesrv= or set {NAMESRV_VARIABLE}"
        )
    return given


def _in_place_of(namesrv: object) -> str:
    """What to give in place of something that is no source of name servers."""
    if not hasattr(type(namesrv), "namesrv_address"):
        return "give addresses or an EmbeddedBroker"
    # It is a test kit's broker, or one of another door.
    if namesrv.namesrv_address is not None:  # type: ignore[attr-defined]
        return "give its namesrv_address"
    return (
        "other doors than its own reach it over TCP: give it ports (EmbeddedBroker(listen=0, "
        "namesrv_listen=0)), and here its namesrv_address"
    )


def resolve_namesrv(namesrv: NamesrvSource | None) -> tuple[str, ...] | ChannelSource:
    """The name servers that an argument means; None reads `NAMESRV_ADDR`.

    None yet for the URL of an address server.

    Raises `ConfigurationError` when there is none, or something is no address.
    """
    namesrv = named_namesrv(namesrv)
    if isinstance(namesrv, str):
        return () if is_address_server(namesrv.strip()) else parse_addresses(namesrv)
    if isinstance(namesrv, Sequence):
        return parse_addresses(list(namesrv))
    if isinstance(namesrv, type):
        raise WrongTypeError(
            f"namesrv is the class {namesrv.__name__}; give what its block gives, as in "
            "`async with EmbeddedBroker() as broker`, not the class"
        )
    if not hasattr(namesrv, "open_channel"):
        raise WrongTypeError(f"namesrv is {namesrv!r:.200}; {_in_place_of(namesrv)}")
    return namesrv
