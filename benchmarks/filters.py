"""How long a SQL92 expression takes for one message, five typical ones."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.filter.evaluate import compile_expression

if TYPE_CHECKING:
    from benchmarks.harness import Report

EXPRESSIONS: Final = {
    "number": "price > 3",
    "text": "region = 'eu'",
    "range and text": "price BETWEEN 3 AND 7 AND region = 'eu'",
    "lists and float": "region IN ('eu', 'us') OR rate > 10.5",
    "long": (
        "kind IS NOT NULL AND (name STARTSWITH 'ba' OR NOT (price < 5)) AND region <> 'asia' AND "
        "TAGS = 'paid'"
    ),
}
ROUNDS: Final = 200


def messages() -> list[dict[str, str]]:
    """A thousand messages with properties, always the same ones."""
    choose = random.Random(92)
    return [
        {
            "UNIQ_KEY": f"7F000001{number:024X}",
            "TAGS": choose.choice(["paid", "open"]),
            "KEYS": str(number),
            "region": choose.choice(["eu", "us", "asia"]),
            "price": str(choose.randrange(10)),
            "rate": f"{choose.random() * 20:.3f}",
            "name": choose.choice(["bananas", "apples"]),
            "kind": "fruit",
        }
        for number in range(1000)
    ]


def run(report: Report, scale: float) -> None:
    """One round."""
    given = messages()
    rounds = max(1, int(ROUNDS * scale))
    for name, text in EXPRESSIONS.items():
        matches = compile_expression(text).matches
        begin = time.perf_counter()
        for _ in range(rounds):
            for properties in given:
                matches(properties)
        report.add(
            f"filter: {name}", "us", (time.perf_counter() - begin) * 1e6 / rounds / len(given)
        )
