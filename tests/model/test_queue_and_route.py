"""Queues, routes and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import (
    BrokerData,
    QueueData,
    TopicRoute,
    join_address,
    pack_host,
    parse_addresses,
    split_address,
    unpack_host,
)

if TYPE_CHECKING:
    import ipaddress


def test_queues_are_ordered_and_hashable() -> None:
    queues = [
        MessageQueue("T", "b", 1),
        MessageQueue("T", "a", 2),
        MessageQueue("S", "c", 0),
        MessageQueue("T", "a", 10),
    ]
    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in sorted(queues)] == [
        ("S", "c", 0),
        ("T", "a", 2),
        ("T", "a", 10),
        ("T", "b", 1),
    ]
    assert len({*queues, MessageQueue("T", "b", 1)}) == 4
    assert MessageQueue("T", "a", 1) != MessageQueue("T", "a", 2)
    assert MessageQueue("T", "a", 1) != ("T", "a", 1)
    assert MessageQueue("T", "a", 1) >= MessageQueue("T", "a", 1)
    assert repr(MessageQueue("T", "a", 1)) == "MessageQueue(topic='T', broker_name='a', queue_id=1)"


ROUTE = TopicRoute(
    (
        QueueData("b", 1, 2, 6),
        QueueData("a", 2, 1, 6),
        QueueData("c", 4, 4, 6),
        QueueData("d", 1, 1, 4),
        QueueData("e", 1, 1, 2),
    ),
    (*(BrokerData("C", name, {0: "h:1"}) for name in "abde"), BrokerData("C", "c", {1: "h:1"})),
)


def test_publish_queues_need_a_master_and_the_right_to_write() -> None:
    found = [(queue.broker_name, queue.queue_id) for queue in ROUTE.publish_queues("T")]
    assert found == [("a", 0), ("b", 0), ("b", 1), ("e", 0)]


def test_subscribe_queues_need_the_right_to_read() -> None:
    found = [(queue.broker_name, queue.queue_id) for queue in ROUTE.subscribe_queues("T")]
    assert found == [("b", 0), ("a", 0), ("a", 1), ("c", 0), ("c", 1), ("c", 2), ("c", 3), ("d", 0)]


def test_an_order_configuration_decides_alone() -> None:
    route = TopicRoute((), (), order_topic_conf="a:2;b:1;;broken")
    assert route.publish_queues("T") == [
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
        MessageQueue("T", "b", 0),
    ]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876),
        ("[::1]:9876", "::1", 9876),
        (" name.example:1 ", "name.example", 1),
        ("::1:9876", "::1", 9876),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:-1"])
def test_texts_that_are_no_addresses(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port"):
        split_address(text)


def test_written_addresses() -> None:
    assert join_address("127.0.0.1", 1) == "127.0.0.1:1"
    assert join_address("::1", 1) == "[::1]:1"
    assert join_address("::ffff:10.0.0.1", 1) == "10.0.0.1:1"


@settings(deadline=None)
@given(st.ip_addresses(), st.integers(0, 65535))
def test_packed_hosts(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    packed = pack_host(str(ip), port)
    mapped = getattr(ip, "ipv4_mapped", None)
    assert unpack_host(packed) == (str(mapped or ip), port)
    assert len(packed) == (8 if ip.version == 4 or mapped else 20)
    assert split_address(join_address(str(ip), port))[1] == port


def test_only_ip_addresses_are_packed() -> None:
    with pytest.raises(ConfigurationError, match="'localhost' is not an IP address"):
        pack_host("localhost", 1)
    assert pack_host("fe80::1%eth0", 1) == pack_host("fe80::1", 1)


def test_name_server_lists() -> None:
    assert parse_addresses("a:1;b:2, c:3;;a:1") == ("a:1", "b:2", "c:3")
    assert parse_addresses(["http://a:1", "b:2"]) == ("a:1", "b:2")
    for nothing in ("", ";", []):
        with pytest.raises(ConfigurationError, match="no name server address"):
            parse_addresses(nothing)
    with pytest.raises(ConfigurationError, match="'b' is not an address"):
        parse_addresses("a:1;b")
