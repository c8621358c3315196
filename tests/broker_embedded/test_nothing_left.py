"""Of what comes and goes a broker keeps nothing, however often it happens."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import RequestCode
from support.broker import open_broker
from support.coming_and_going import come_and_go, lengths, remains

if TYPE_CHECKING:
    from collections import Counter

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer

LIMIT = 1024 * 1024
BOUNDED = (
    "_Decoded > dict",  # the last bodies that come again and again
    "KeyHasher",  # hashes of texts, by thousands
    "AckProcessor",  # receipt handles, by thousands
    "RouteRequests > dict",  # bytes of routes, the last 1,024
    "TransactionTable > OrderedDict",  # outcomes, the last 10,000
    ".json.bak",  # what a file held before the last change
    "'_log' > tuple",  # buffers of the log, which are written again
)
"""Where there is never more than so much of what is gone."""


async def test_topics_groups_clients_and_their_work_come_and_go(autojump_clock: MockClock) -> None:
    settings = {"transaction_time_out": 3000, "transaction_check_interval": 5000}
    async with open_broker(memory_limit=LIMIT, transaction_check_max=2, **settings) as (
        broker,
        peer,
    ):
        seen: list[Counter[str]] = []
        for life in range(3):
            for number in range(3):
                await come_and_go(broker, f"guest-{life}-{number}")
            await _forget(broker, peer)
            if life:
                seen.append(lengths(broker))
        assert [way for way in remains(broker, "guest-") if not _is_bounded(way)] == []
        earlier, later = seen
        grown = [way for way in later if later[way] >= earlier[way] + 3 and not _is_bounded(way)]
        assert grown == []


def _is_bounded(way: str) -> bool:
    return any(place in way for place in BOUNDED)


async def _forget(broker: EmbeddedBroker, peer: Peer) -> None:
    """Let the time pass in which silent clients are remembered, and fill the log."""
    await trio.sleep(400)
    for _ in range(2 * LIMIT // 30_000):
        await peer.send("stays", bytes(30_000), queue_id=0)
    await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="stays")
    await trio.sleep(60)
    gc.collect()
