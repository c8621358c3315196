"""The route table: who is in it, when they leave it, whose topics count."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.namesrv.registration import BrokerKey, BrokerRegistration
from rocketmq_sdk.broker_embedded.namesrv.route_table import RouteTable
from rocketmq_sdk.broker_embedded.namesrv.zones import route_of_zone
from rocketmq_sdk.model.route import QueueData
from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfig

V1, V2 = DataVersion(0, 1, 1), DataVersion(0, 1, 2)


def topics(*names: str, perm: int = 6) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 4, perm) for name in names}


def registration(
    name: str = "a", number: int = 0, address: str = "10.0.0.1:1", **changes: object
) -> BrokerRegistration:
    fields: dict[str, object] = {"topics": topics("T", "U"), "data_version": V1, **changes}
    return BrokerRegistration(
        cluster="c", address=address, broker_name=name, broker_id=number, **fields
    )  # type: ignore[arg-type]


def permission(table: RouteTable, topic: str = "T", name: str = "a") -> int:
    route = table.route(topic)
    assert route is not None
    return next(data.perm for data in route.queue_datas if data.broker_name == name)


def test_a_topic_of_two_brokers() -> None:
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration("b", address="10.0.0.2:1"), 0)
    route = table.route("T")
    assert route is not None
    assert {data.broker_name: data.broker_addrs for data in route.broker_datas} == {
        "a": {0: "10.0.0.1:1"},
        "b": {0: "10.0.0.2:1"},
    }
    table.unregister("c", "10.0.0.1:1", "a", 0)
    route = table.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["b"]
    table.unregister("c", "10.0.0.2:1", "b", 0)
    assert table.route("T") is None
    assert table.queues.topics() == []
    assert table.brokers.cluster_info().cluster_addr_table == {}


def test_an_increment_before_the_whole_is_refused() -> None:
    table = RouteTable()
    assert table.register(registration(topics=topics("T")), 0) is None
    assert table.route("T") is None
    assert table.live.next_due_ms() is None
    assert table.register(registration(), 0) is not None
    assert table.register(registration(topics=topics("New"), data_version=V2), 0) is not None
    assert sorted(table.queues.topics()) == ["New", "T", "U"]


def test_topics_change_only_with_their_version() -> None:
    table = RouteTable()
    table.register(registration(), 0)
    table.register(registration(topics=topics("T", "U", "W", perm=4)), 0)
    assert (permission(table), permission(table, "W")) == (6, 4)
    table.register(registration(topics=topics("T", "U", perm=4), data_version=V2), 0)
    assert permission(table) == 4
    assert "W" in table.queues.topics()
    table.register(registration(topics=topics("T", "U"), data_version=V2), 0, delete_topics=True)
    assert sorted(table.queues.topics()) == ["T", "U"]


def test_write_permission_is_wiped_and_added() -> None:
    table = RouteTable()
    table.register(registration(topics=topics("T", "U", perm=7)), 0)
    assert table.queues.wipe_write_permission("a") == 2
    assert permission(table) == 5
    assert table.queues.add_write_permission("a") == 2
    assert permission(table) == 6
    assert table.queues.wipe_write_permission("nobody") == 0


def test_an_address_that_returns_under_another_id_leaves_the_old_one() -> None:
    table = RouteTable()
    table.register(registration(number=1, address="10.0.0.9:1"), 0)
    table.register(registration(number=0, address="10.0.0.9:1"), 0)
    assert table.brokers.cluster_info().broker_addr_table["a"].broker_addrs == {0: "10.0.0.9:1"}


def test_an_older_owner_of_an_id_keeps_it_against_a_lower_state_version() -> None:
    table = RouteTable()
    table.register(registration(data_version=DataVersion(5, 1, 1)), 0)
    assert (
        table.register(registration(address="10.0.0.2:1", data_version=DataVersion(4, 1, 1)), 0)
        is not None
    )
    assert table.brokers.cluster_info().broker_addr_table["a"].broker_addrs == {0: "10.0.0.1:1"}
    table.register(registration(address="10.0.0.2:1", data_version=DataVersion(5, 2, 1)), 0)
    assert table.brokers.cluster_info().broker_addr_table["a"].broker_addrs == {0: "10.0.0.2:1"}


def test_a_replica_brings_no_topics_and_learns_its_master() -> None:
    table = RouteTable()
    table.register(registration(ha_server_address="10.0.0.1:2"), 0)
    result = table.register(
        registration(number=1, address="10.0.0.2:1", topics=topics("R", "S")), 0
    )
    assert result is not None
    assert (result.master_address, result.ha_server_address) == ("10.0.0.1:1", "10.0.0.1:2")
    assert "R" not in table.queues.topics()
    assert table.brokers.cluster_info().broker_addr_table["a"].broker_addrs == {
        0: "10.0.0.1:1",
        1: "10.0.0.2:1",
    }


def test_the_lowest_replica_of_an_acting_group_offers_its_topics_for_reading() -> None:
    table = RouteTable()
    table.register(registration(number=2, address="10.0.0.2:1", enable_acting_master=True), 0)
    assert permission(table) == 4
    table.register(registration(enable_acting_master=True, data_version=V2), 0)
    assert permission(table) == 6
    table.unregister("c", "10.0.0.1:1", "a", 0)
    assert permission(table) == 4


@pytest.mark.parametrize(("now", "gone"), [(1000, False), (1001, True)])
def test_brokers_expire_after_their_own_timeout(now: int, gone: bool) -> None:
    table = RouteTable()
    table.register(registration(heartbeat_timeout_ms=1000, channel_id=7), 0)
    assert table.live.next_due_ms() == 1000
    assert table.expire(now) == ([(BrokerKey("c", "10.0.0.1:1"), 7)] if gone else [])
    assert (table.route("T") is None) is gone


def test_being_heard_of_postpones_the_end() -> None:
    table = RouteTable()
    table.register(registration(heartbeat_timeout_ms=1000), 0)
    table.live.touch(BrokerKey("c", "10.0.0.1:1"), 900)
    table.live.touch(BrokerKey("c", "nobody"), 900)
    assert table.expire(1500) == []
    assert table.expire(1901) != []


def test_a_connection_takes_its_brokers_along() -> None:
    table = RouteTable()
    table.register(registration(channel_id=1), 0)
    table.register(registration("b", address="10.0.0.2:1", channel_id=2), 0)
    assert table.unregister_channel(1) == [BrokerKey("c", "10.0.0.1:1")]
    assert list(table.brokers.cluster_info().broker_addr_table) == ["b"]


def test_topics_put_and_deleted_by_hand() -> None:
    table = RouteTable()
    table.register(registration(), 0)
    table.put_topic("X", [QueueData("a", 1, 1, 6), QueueData("nobody", 1, 1, 6)])
    assert "X" not in table.queues.topics()
    table.put_topic("X", [QueueData("a", 1, 1, 6)])
    assert "X" in table.queues.topics()
    table.delete_topic("X", "other cluster")
    assert "X" in table.queues.topics()
    table.delete_topic("X", "c")
    table.delete_topic("T")
    assert table.queues.topics() == ["U"]


def test_filter_servers_stay_are_replaced_and_go() -> None:
    table = RouteTable()

    def filters() -> dict[str, list[str]]:
        route = table.route("T")
        assert route is not None
        return route.filter_server_table

    table.register(registration(filter_servers=("f1",)), 0)
    assert filters() == {"10.0.0.1:1": ["f1"]}
    table.register(registration(filter_servers=None), 0)
    assert filters() == {"10.0.0.1:1": ["f1"]}
    table.register(registration(filter_servers=()), 0)
    assert filters() == {}


def test_addresses_are_resolved_for_the_asker() -> None:
    table = RouteTable()
    table.register(registration(address="marker"), 0)

    def resolve(address: str) -> str:
        return "192.0.2.7:10911" if address == "marker" else address

    route = table.route("T", resolve)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "192.0.2.7:10911"}
    assert table.brokers.cluster_info(resolve).broker_addr_table["a"].broker_addrs == {
        0: "192.0.2.7:10911"
    }
    assert table.brokers.system_names(resolve) == (["c", "a"], "192.0.2.7:10911")
    group = table.brokers.member_group("c", "a", resolve)
    assert group is not None
    assert group.broker_addrs == {0: "192.0.2.7:10911"}
    assert table.brokers.member_group("c", "nobody") is None


def test_zones() -> None:
    table = RouteTable()
    table.register(registration(zone_name="East"), 0)
    table.register(registration("b", address="10.0.0.2:1", zone_name="west"), 0)
    route = table.route("T")
    assert route is not None
    assert [data.broker_name for data in route_of_zone(route, "east").queue_datas] == ["a"]


def test_unit_flags_choose_topics() -> None:
    table = RouteTable()
    table.register(
        registration(
            topics={
                "T": TopicConfig("T", topic_sys_flag=1),
                "U": TopicConfig("U", topic_sys_flag=2),
            }
        ),
        0,
    )
    assert table.queues.topics_by_flags(lambda flags: bool(flags & 1)) == ["T"]
