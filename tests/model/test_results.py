"""Results of sends, which users' tests make too."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from typing import Any

import pytest

from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.results import SendResult
from support.compiled import fields_of


class _Noted(SendResult):
    """A result of a user's own class."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.note = ["mine"]


@pytest.mark.parametrize("kind", [SendResult, _Noted])
def test_results_are_copied_and_pickled(kind: type[SendResult]) -> None:
    result: Any = kind(
        status=SendStatus.FLUSH_DISK_TIMEOUT,
        message_id="A",
        offset_message_id="B",
        queue=MessageQueue("T", "broker-a", 3),
        queue_offset=2**40,
        recall_handle="R",
        trace_on=False,
    )
    fields = fields_of(SendResult)
    assert len(fields) == 9
    for again in (copy(result), deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert type(again) is kind
        for name in fields:
            assert getattr(again, name) == getattr(result, name), name
        if kind is _Noted:
            assert again.note == ["mine"]
