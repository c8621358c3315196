"""The table of consumer groups."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
from rocketmq_sdk.errors import ConfigurationError, StoreCorruptError, StoreError
from rocketmq_sdk.names import BUILT_IN_GROUPS
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from support.administration import FailingTable, FixedClock, TableInMemory


def manager(file: TableInMemory | None = None, **settings: object) -> GroupManager:
    return GroupManager(file, LiveConfig(BrokerConfig(**settings)), FixedClock())  # type: ignore[arg-type]


def test_groups_appear_at_first_use_and_stay() -> None:
    file = TableInMemory()
    groups = manager(file)
    assert set(groups.all()) == set(BUILT_IN_GROUPS)
    assert groups.find_existing("g") is None
    assert groups.get("g") == SubscriptionGroupConfig("g")
    assert file.writes == 1
    assert groups.get("g") is groups.find_existing("g")
    assert file.writes == 1
    assert manager(file).find_existing("g") == SubscriptionGroupConfig("g")


@pytest.mark.parametrize(
    ("settings", "group", "made"),
    [
        ({}, "bad group!", False),
        ({}, "g" * 121, False),
        ({"auto_create_subscription_group": False}, "g", False),
        ({"auto_create_subscription_group": False}, "CID_RMQ_SYS_X", True),
        (
            {"auto_create_subscription_group": False, "enable_create_sys_group": False},
            "CID_RMQ_SYS_X",
            False,
        ),
    ],
)
def test_which_groups_appear(settings: dict[str, object], group: str, made: bool) -> None:
    assert (manager(**settings).get(group) is not None) is made


def test_several_changes_are_all_or_none() -> None:
    groups = manager()
    good = SubscriptionGroupConfig("good", retry_max_times=3, attributes={"+priority.factor": "7"})
    with pytest.raises(ConfigurationError):
        groups.update_all((good, SubscriptionGroupConfig("bad", attributes={"+nonsense": "1"})))
    assert groups.find_existing("good") is None
    groups.update_all((good,))
    made = groups.find_existing("good")
    assert made is not None
    assert (made.retry_max_times, made.attributes) == (3, {"priority.factor": "7"})


def test_what_is_forbidden_is_kept_and_cleared_as_apache_does_it() -> None:
    file = TableInMemory()
    groups = manager(file)
    groups.set_forbidden("g", "T", True)
    groups.set_forbidden("g", "U", True)
    assert groups.is_forbidden("g", "T")
    assert manager(file).forbidden == {"g": {"T": 4, "U": 4}}
    groups.set_forbidden("g", "T", False)
    assert not groups.is_forbidden("g", "T")
    assert not groups.is_forbidden("g", "U"), "the last bit of one topic clears the group"
    groups.set_forbidden("g", "T", True)
    groups.set_forbidden("g", "T", True, bit=1)
    groups.set_forbidden("g", "T", False)
    assert groups.forbidden == {"g": {"T": 2}}


def test_the_file_keeps_members_that_are_unknown_here() -> None:
    stored = {**SubscriptionGroupConfig("g").to_json(), "newerMember": [1]}
    file = TableInMemory({"subscriptionGroupTable": {"g": stored}, "dataVersion": {"counter": 3}})
    groups = manager(file)
    groups.disable_consume("g")
    content = file.load()
    assert isinstance(content, dict)
    assert content["subscriptionGroupTable"]["g"]["newerMember"] == [1]
    assert content["subscriptionGroupTable"]["g"]["consumeEnable"] is False
    assert content["dataVersion"]["counter"] == 4


def test_deleting() -> None:
    groups = manager()
    groups.get("g")
    groups.set_forbidden("g", "T", True)
    assert groups.delete("g")
    assert not groups.delete("g")
    assert groups.forbidden == {}


def test_a_file_of_something_else_is_refused_by_name() -> None:
    with pytest.raises(StoreCorruptError, match=r"subscriptionGroup\.json"):
        manager(TableInMemory({"subscriptionGroupTable": 5}))


def test_a_change_that_cannot_be_written_has_not_happened() -> None:
    file = FailingTable()
    groups = manager(file)
    groups.get("kept")
    groups.set_forbidden("kept", "T", True)
    before, version = groups.wrapper(), groups.data_version
    file.fails = True
    for change in (
        lambda: groups.get("g"),
        lambda: groups.update(SubscriptionGroupConfig("g")),
        lambda: groups.update(SubscriptionGroupConfig("kept", retry_max_times=1)),
        lambda: groups.update_all(
            (SubscriptionGroupConfig("g"), SubscriptionGroupConfig("kept", retry_max_times=1))
        ),
        lambda: groups.delete("kept"),
        lambda: groups.disable_consume("kept"),
        lambda: groups.set_forbidden("kept", "U", True),
        lambda: groups.set_forbidden("kept", "T", False),
    ):
        with pytest.raises(StoreError):
            change()
        assert groups.wrapper() == before
    assert groups.data_version is version
    file.fails = False
    groups.get("g")
    again = manager(file)
    assert again.all() == groups.all()
    assert again.forbidden == {"kept": {"T": 4}}
    assert again.data_version.counter == version.counter + 1


def test_an_entry_without_content_is_no_group() -> None:
    table = {"g": None, "h": {"groupName": "h", "consumeEnable": False}}
    groups = manager(TableInMemory({"subscriptionGroupTable": table}))
    assert groups.find_existing("g") is None
    assert groups.find_existing("h") is not None
