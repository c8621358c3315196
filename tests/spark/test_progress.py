"""The lag and the metrics that the progress of a query tells."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.progress import lag

END = {"t": {"T": {"a": {"0": 5, "1": 7}}}, "v": 1, "n": 2}
LATEST = {
    "m": {"away": ["b"], "losses": 2, "lostOffsets": 40, "standing": 1},
    "t": {"T": {"a": {"0": 15, "1": 8}}},
    "v": 1,
}


@pytest.mark.parametrize("as_text", [False, True])
def test_lag_and_metrics_of_all_sources_of_the_format(as_text: bool) -> None:
    ends = [json.dumps(each) if as_text else each for each in (END, LATEST)]
    ours = {"endOffset": ends[0], "latestOffset": ends[1]}
    other = {"endOffset": "5", "latestOffset": {"partition": 3}}
    old = {"endOffset": END, "latestOffset": {"t": {"U": {"a": {"0": 1}}}, "v": 1}}
    found = lag(SimpleNamespace(sources=[SimpleNamespace(**ours), other, old]))
    assert found.queues == {
        QueueKey("T", "a", 0): 10,
        QueueKey("T", "a", 1): 1,
        QueueKey("U", "a", 0): 1,
    }
    assert (found.total, found.most) == (12, 10)
    assert (found.away, found.standing, found.losses, found.lost_offsets) == (("b",), 1, 2, 40)


def test_what_is_no_progress() -> None:
    with pytest.raises(ConfigurationError, match=r"give query\.lastProgress"):
        lag(None)
