"""Sends that arrive together are cut where that pays, also after it did not."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.frame import decode_frame
from support.broker import open_on, send_request
from support.chunks import exchange

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command

UNIQUE = "UNIQ_KEY\x017F0000010D2A2C8D3E0F5A7B{:08X}\x02WAIT\x01true\x02"


async def test_sends_are_cut_again_after_a_time_in_which_none_was_plain(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As all are while the settings of a new topic are written."""
    numbers, decoded, not_plain = count(1), list[int](), range(100, 300)

    def chunk() -> list[Command]:
        requests = []
        for number in (next(numbers) for _ in range(50)):
            request = send_request(
                "plain",
                b"body",
                reconsume_times=0,
                batch=False,
                properties=UNIQUE.format(number),
            )
            request.opaque = number
            requests.append(request)
        return requests

    async with open_on(MemoryFileSystem(write_through=True)) as (broker, peer):
        broker.core.topics.put(TopicConfig("plain"))
        await peer.send("plain", b"first")
        plain, sends = broker.parts.send._plain, broker.parts.send._sends
        found, topic_of, asked = plain._found, sends.half_topic, count()

        def counted(request: Command) -> object:
            decoded.append(request.opaque)
            return found(request)

        monkeypatch.setattr(type(plain), "_found", lambda _plain, request: counted(request))
        monkeypatch.setattr(
            sends,
            "half_topic",
            lambda topic: None if next(asked) in not_plain else topic_of(topic),
        )
        answers = await exchange(broker, [chunk() for _ in range(200)])
    assert len(answers) == 200 * 50
    assert {decode_frame(frame[4:]).code for frame in answers.values()} == {0}
    rested = [number for number in decoded if number > 50]
    assert rested
    assert len(rested) < 2000
    assert max(rested) < 8000
