"""Routes: which brokers hold which queues of a topic, and how addresses are written."""

from __future__ import annotations

import ipaddress

import attrs

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.queue import MessageQueue

MASTER_ID = 0


@attrs.frozen(slots=True, order=True)
class QueueData:
    """What one broker offers of a topic.

    Numbers of queues, permissions (`Permission` bits), topic system flags.
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@attrs.frozen(slots=True)
class BrokerData:
    """The addresses of a broker group: broker id (0 = master) to `host:port`."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        """Where the master is; None while there is none."""
        return self.broker_addrs.get(MASTER_ID)


@attrs.frozen(slots=True)
class TopicRoute:
    """All that a name server knows of a topic (`TopicRouteData`)."""

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = attrs.field(factory=dict)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that a producer may use, by broker name.

        They are writable and their broker has a master (`MQClientInstance`).
        """
        if self.order_topic_conf:
            return _ordered_queues(topic, self.order_topic_conf)
        masters = {data.broker_name for data in self.broker_datas if MASTER_ID in data.broker_addrs}
        return [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in sorted(self.queue_datas)
            if data.perm & Permission.WRITE and data.broker_name in masters
            for queue_id in range(data.write_queue_nums)
        ]

    def readable_brokers(self) -> list[str]:
        """Names of the brokers that have queues which a consumer may read."""
        return [
            data.broker_name
            for data in self.queue_datas
            if data.perm & Permission.READ and data.read_queue_nums > 0
        ]

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Queues that a consumer may read."""
        return [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.perm & Permission.READ
            for queue_id in range(data.read_queue_nums)
        ]


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for part in order_topic_conf.split(";"):
        broker_name, _, number = part.partition(":")
        if broker_name and number.isdigit():
            queues.extend(
                MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(number))
            )
    return queues


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`.

    Raises `ConfigurationError` for anything else.
    """
    host, separator, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ConfigurationError(
            f"{address!r} is not an address; write host:port, with a port from 0 to 65535"
        )
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host.

    A v4-mapped IPv6 host is written as IPv4.
    """
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host, an IP address or a name, is this machine for itself only.

    Of names only `localhost` is: any other may have any address.
    """
    host = host.removeprefix("[").removesuffix("]")
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def pack_host(host: str, port: int) -> bytes:
    """IP (4 or 16 bytes) and port (4 bytes) as records and message ids hold them.

    `host` is an IP address.

    Raises `ConfigurationError` when it is a name.
    """
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError as error:
        raise ConfigurationError(f"{host!r} is not an IP address") from error
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.packed + port.to_bytes(4, "big")


def unpack_host(packed: bytes) -> tuple[str, int]:
    """IP text and port of 8 or 20 packed bytes."""
    return str(ipaddress.ip_address(packed[:-4])), int.from_bytes(packed[-4:], "big", signed=True)


def parse_addresses(addresses: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """A name server list: text separated by `;` or `,`, or a sequence; each checked.

    Raises `ConfigurationError` when it is empty or holds something that is no address.
    """
    parts = (
        addresses.replace(",", ";").split(";") if isinstance(addresses, str) else list(addresses)
    )
    cleaned = [part.strip().rpartition("/")[2] for part in parts if part.strip()]
    if not cleaned:
        raise ConfigurationError(
            "no name server address was given; pass namesrv= or set NAMESRV_ADDR"
        )
    for address in cleaned:
        split_address(address)
    return tuple(dict.fromkeys(cleaned))
