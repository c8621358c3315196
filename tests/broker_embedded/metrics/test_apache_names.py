"""Names, types, labels and numbers of Apache's metrics, as its broker exported them.

`vectors/metrics/apache.json` was made from what Apache RocketMQ 5.5.0 exported for the
same traffic (5.4.0 exported the same).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk import EmbeddedBroker
from rocketmq_sdk.broker_embedded.metrics.apache_rows import NOT_HERE
from support.metrics import page
from support.metrics_traffic import make_traffic
from support.paths import VECTORS
from tools.metrics_vector import vector_of

if TYPE_CHECKING:
    from trio.testing import MockClock

APACHE: dict[str, dict[str, Any]] = json.loads((VECTORS / "metrics/apache.json").read_text())
NOT_IN_MEMORY = "rocketmq_pop_revive_in_message_total"
"""A broker in memory keeps its checkpoints out of the log."""
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_names_types_labels_and_numbers_are_apaches(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(metrics=0, message_delay_level="1s 2s 1s") as broker:
        text = await make_traffic(broker, lambda: page(broker))
    ours = vector_of(text)
    missing = {name for name in APACHE if name not in ours}
    assert missing == {NOT_IN_MEMORY, *(name for name in NOT_HERE if name in APACHE)}
    for name in APACHE.keys() - missing:
        for member in ("type", "labels", "bounds"):
            assert (name, ours[name].get(member)) == (name, APACHE[name].get(member))
        expected = {
            labels: value
            for labels, value in APACHE[name].get("samples", {}).items()
            if REVIVE_TOPIC not in labels
        }
        assert (name, ours[name].get("samples", {})) == (name, expected)
    codes: Any = ours["rocketmq_rpc_latency_milliseconds"]["values"]
    known: Any = APACHE["rocketmq_rpc_latency_milliseconds"]["values"]
    assert set(codes["request_code"]) >= set(known["request_code"]) - {"update_consumer_offset"}
    assert set(codes["response_code"]) == set(known["response_code"])
    own = ours.keys() - APACHE.keys()
    assert {name.partition("_")[0] for name in own} == {"rocketmq", "process", "python"}
    assert all(name.startswith("rocketmq_sdk_") for name in own if name.startswith("rocketmq"))
