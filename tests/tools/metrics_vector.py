"""Makes a test vector of a page of metrics: names, types and sets of labels.

    python -m tools.metrics_vector PAGE VECTOR

`PAGE` is what Apache's broker exported while `support.metrics_traffic` went through it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

VALUES = ("request_code", "response_code", "topic", "processor", "timer_bound_s", "message_type")
"""Labels of which the vector holds the values too."""
COUNTED = (
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_send_to_dlq_messages_total",
    "rocketmq_commit_messages_total",
    "rocketmq_rollback_messages_total",
    "rocketmq_half_messages",
    "rocketmq_producer_connections",
    "rocketmq_consumer_connections",
    "rocketmq_timer_enqueue_total",
    "rocketmq_timing_messages",
)
"""Metrics of which the vector holds the samples too: the traffic decides what they are.
"""


def vector_of(page: str) -> dict[str, dict[str, object]]:
    """Each metric's type, its sets of labels, and values of some of them."""
    found: dict[str, dict[str, object]] = {}
    for family in text_string_to_metric_families(page):
        samples = [sample for sample in family.samples if "le" not in sample.labels]
        bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {
            "type": family.type,
            "labels": sorted({",".join(sorted(sample.labels)) for sample in samples}),
            "values": {
                label: sorted({s.labels[label] for s in samples if label in s.labels})
                for label in VALUES
                if any(label in sample.labels for sample in samples)
            },
        }
        if name in COUNTED:
            found[name]["samples"] = {
                ",".join(f"{label}={value}" for label, value in sorted(s.labels.items())): s.value
                for s in samples
            }
        if bounds:
            found[name]["bounds"] = sorted(bounds, key=float)
    return found


def main() -> None:
    """Write the vector."""
    page, vector = map(Path, sys.argv[1:])
    text = page.read_text()
    found = vector_of(text[text.index("# ") :])
    vector.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
