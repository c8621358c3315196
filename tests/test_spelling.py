"""What somebody probably meant who wrote a name that does not exist."""

from __future__ import annotations

import pytest

from rocketmq_sdk.spelling import meant, nearest

SETTINGS = ("flush_disk_type", "flushDiskType", "brokerName", "broker_name", "--listen")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("flush_disk_typ", "flush_disk_type"),
        ("flushDiskTyp", "flushDiskType"),
        ("BROKERNAME", "brokerName"),
        ("broker-nam", "brokerName"),
        ("--lisen", "--listen"),
    ],
)
def test_the_nearest_name_in_the_same_spelling(name: str, found: str) -> None:
    assert nearest(name, SETTINGS)[0] == found


def test_what_is_far_is_not_named() -> None:
    assert nearest("zzzzzz", SETTINGS) == []
    assert meant("zzzzzz", known=SETTINGS) == ""
    assert meant("", known=()) == ""


def test_names_that_were_meant() -> None:
    assert meant("list", "topc", known=("lists", "topic"), most=1) == "; did you mean lists, topic?"
    assert nearest("orders", ["order", "zebra", "orders1"]) == ["orders1", "order"]
    assert nearest("orders", ["order", "zebra", "orders1"], 1) == ["orders1"]
