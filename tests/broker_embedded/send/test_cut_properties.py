"""Properties that were cut out of a header say what they say when they are decoded."""

from __future__ import annotations

from random import Random

import pytest

from rocketmq_sdk.broker_embedded.send.properties import CutProperties, PlainProperties

SUFFIX = "CLUSTER\x01c\x02"
USUAL = "KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02TAGS\x01t\x02"
PIECES = [
    *("UNIQ_KEY\x01", "UNIQ_KEY", "KEYS\x01", "KEYS", "TAGS\x01t", "TIMER_", "\x01", "\x02"),
    *("UNIQ_KEY\x01DEF\x02", "KEYS\x01k\x02", "KEYS\x01j m\x02", "KEYS\x01\x02", "DELAY\x013\x02"),
    *(
        "KEYS\x01k\x01DELAY\x013\x02",
        "MSG_REGION\x01x\x02",
        "WAIT\x01true\x02",
        "ABC",
        "-",
        "u0001",
    ),
]


def stored(text: str) -> tuple[bytes, bytes, int] | None:
    found = PlainProperties().look(text)
    if found is None:
        return None
    completed = text if text.endswith("\x02") else text + "\x02"
    return found[0].encode(), (completed + SUFFIX).encode(), found[1]


def changed(text: str, random: Random) -> str:
    """The text with a piece put in somewhere, perhaps over others."""
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(PIECES) + text[at + random.randrange(4) :]


@pytest.mark.parametrize("seed", range(20))
def test_texts_that_come_one_after_the_other(seed: int) -> None:
    """Each may be taken for one like those before it."""
    random = Random(seed)
    texts = [USUAL, USUAL.replace("KEYS\x01k1 k2\x02", ""), *random.choices(PIECES, k=3)]
    cut, plain = CutProperties(PlainProperties(), SUFFIX), 0
    for _ in range(3000):
        text = random.choice(texts)
        if random.random() < 0.5:
            text = changed(text, random)
        if random.random() < 0.02:
            texts[random.randrange(2, 5)] = text
        wanted = stored(text)
        plain += wanted is not None
        written = text.replace("\x01", r"\u0001").replace("\x02", r"\u0002").encode()
        assert cut.of(written) == wanted
    assert plain > 1000
