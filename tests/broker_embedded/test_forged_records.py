"""Clients that write into the broker's own topics, and records there that nobody of the
broker wrote.

Apache refuses sends to the schedule topic and to those of transactions
(`TopicValidator.isNotAllowedSendTopic`), and takes them to the timer topic and to the
revive topics. So records of any kind can be in the latter two; in the others they come
from older releases, or from hands at the files. None of them may be repeated without
end, hold up what is behind it, or write into another topic of the broker.
(`timers/test_forged_topics.py` has those of the timer topic.)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.timers.schedule import SCHEDULE_TOPIC
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.names import (
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    revive_topic,
)
from rocketmq_sdk.protocol.bodies.pop_records import ACK_TAG, CHECKPOINT_TAG
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_broker, open_on, send_request
from support.popping import Popper
from support.transactions import COMMIT, begun, bodies_in, end_request, ended
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer

REVIVE = revive_topic("DefaultCluster")
REFUSED = (
    SCHEDULE_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
)
NOWHERE = (*REFUSED, TIMER_TOPIC, "../../x", "a+b", "", "t" * 300, "%RETRY%../x", "\u00fc")
"""Topics into which no message that waited may come."""


def own(topic: str, body: bytes, properties: str = "", queue_id: int = 0, **more: Any) -> Any:
    return MessageToStore(topic, queue_id, body, properties, **more)


@pytest.mark.parametrize("topic", REFUSED)
@pytest.mark.parametrize(
    "properties", ["", "DELAY\x011\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02"]
)
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_nobody_sends_to_the_topics_that_apache_protects(
    topic: str, properties: str, code: RequestCode
) -> None:
    async with open_broker() as (broker, peer):
        end = broker.store.max_physical_offset
        command = send_request(topic, b"forged", properties=properties)
        command.code = code
        answer = await peer.ask(command)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
        assert broker.store.max_physical_offset == end


async def nothing_more(broker: EmbeddedBroker, wait: float = 300.0) -> None:
    """The log stops growing, whatever time passes."""
    await trio.sleep(30)
    end = broker.store.max_physical_offset
    await trio.sleep(wait)
    assert broker.store.max_physical_offset == end


@pytest.mark.parametrize("topic", NOWHERE)
async def test_a_forged_delay_leads_nowhere(topic: str, autojump_clock: MockClock) -> None:
    with trio.fail_after(3600):
        async with open_broker() as (broker, peer):
            for body, delay in ((b"before", 1), (b"forged", 1), (b"after", 1), (b"late", 2)):
                if body == b"forged":
                    text = f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
                    assert broker.store.put(own(SCHEDULE_TOPIC, body, text)).ok
                else:
                    text = f"DELAY\x01{delay}\x02"
                    await peer.send("orders", body, properties=text, queue_id=0)
            await until(lambda: broker.store.max_offset("orders", 0) == 3)
            await nothing_more(broker)
            assert bodies_in(broker, "orders") == [b"before", b"after", b"late"]
            if topic:
                assert broker.store.max_offset(topic, 0) == (3 if topic == SCHEDULE_TOPIC else 0)
            assert any("set aside" in reason for reason in broker.health().reasons)


@pytest.mark.parametrize("queue_id", ["-1", "x", "9" * 30, str(2**31), ""])
async def test_a_forged_delay_without_a_queue(queue_id: str, autojump_clock: MockClock) -> None:
    with trio.fail_after(3600):
        async with open_broker() as (broker, peer):
            text = f"DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x01{queue_id}\x02"
            assert broker.store.put(own(SCHEDULE_TOPIC, b"forged", text)).ok
            assert broker.store.put(own(SCHEDULE_TOPIC, b"empty")).ok
            await peer.send("orders", b"after", properties="DELAY\x011\x02", queue_id=0)
            await until(lambda: broker.store.max_offset("orders", 0) == 1)
            await nothing_more(broker)
            assert bodies_in(broker, "orders") == [b"after"]


@pytest.mark.parametrize("topic", NOWHERE)
async def test_a_forged_half_message_is_never_committed(
    topic: str, autojump_clock: MockClock
) -> None:
    """Not by its producer, and not by a check."""
    with trio.fail_after(100_000):
        async with open_broker() as (broker, peer):
            begin = await begun(peer, b"honest")
            text = (
                f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01forged\x02REAL_TOPIC\x01{topic}"
                "\x02REAL_QID\x010\x02"
            )
            put = broker.store.put(own(TRANSACTION_HALF_TOPIC, b"forged", text))
            assert put.ok
            request = end_request(begin, COMMIT)
            request.ext_fields |= {
                "commitLogOffset": str(put.physical_offset),
                "tranStateTableOffset": str(put.queue_offset),
            }
            before = broker.store.max_physical_offset
            await peer.ask(request)
            assert broker.store.max_physical_offset == before
            assert (await ended(peer, begin, COMMIT)).code == ResponseCode.SUCCESS
            assert bodies_in(broker, "orders") == [b"honest"]
            await trio.sleep(3600)
            if topic and topic not in (TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC):
                assert broker.store.max_offset(topic, 0) == 0
            assert (await begun(peer, b"next")).code == ResponseCode.SUCCESS


async def test_forged_records_of_transactions_do_not_keep_a_broker_from_starting(
    autojump_clock: MockClock,
) -> None:
    files = FaultyFileSystem()
    with trio.fail_after(3600):
        async with open_on(files) as (broker, peer):
            begin = await begun(peer, b"honest")
            for body in (b"", b"x", b"-1,", b"9" * 5000, b"\xff\xfe,\0", b"1,2,3,,,", b"," * 1000):
                text = "TAGS\x01d\x02"
                assert broker.store.put(own(TRANSACTION_OP_TOPIC, body, text, tags_code=100)).ok
            for text in ("", "REAL_TOPIC\x01orders\x02", "\x01\x02\x01", "PGROUP\x01PG\x02" * 50):
                assert broker.store.put(own(TRANSACTION_HALF_TOPIC, b"forged", text)).ok
        async with open_on(files) as (broker, peer):
            # An op record that names it has ended it, whoever wrote the record.
            assert (await ended(peer, begin, COMMIT)).code == ResponseCode.SUCCESS
            assert (await begun(peer, b"next")).code == ResponseCode.SUCCESS
            await trio.sleep(600)
            assert bodies_in(broker, "orders") in ([], [b"honest"])


CHECKPOINT = {
    "bm": 0,
    "bn": "broker-a",
    "c": "PopGroup",
    "d": [0],
    "it": 1000,
    "n": 1,
    "pt": 0,
    "q": 0,
    "ro": 0,
    "so": 0,
    "t": "orders",
}
FORGED: list[dict[str, Any]] = [
    {},
    {"t": TRANSACTION_HALF_TOPIC},
    {"t": SCHEDULE_TOPIC},
    {"t": REVIVE},
    {"t": "nowhere"},
    {"t": "../../x"},
    {"c": "../../x"},
    {"c": "nobody"},
    {"q": -1},
    {"q": 2**31 - 1},
    {"so": -1},
    {"so": 2**62},
    {"n": 10**9, "d": None},
    {"n": 32, "d": list(range(0, 32 * 10**9, 10**9))},
    {"n": -1, "d": None},
    {"d": [-(2**63)]},
    {"bm": -1},
    {"pt": -(2**63), "it": 0},
    {"pt": 2**63 - 1, "it": 2**63 - 1},
    {"pt": 4_000_000_000_000},
    {"it": 10**15},
    {"rp": "9" * 5000},
    {"rp": "-1"},
    {"t": None},
    {"d": "x"},
]
JUNK = (b"", b"{", b"null", b"[]", b'{"t":1}', b"\xff" * 100, b"[" * 5000, b'{"so":' + b"9" * 5000)


async def send_to_revive(peer: Peer, body: bytes, tag: str, queue_id: int) -> None:
    command = send_request(REVIVE, body, queue_id=queue_id, properties=f"TAGS\x01{tag}\x02")
    assert (await peer.ask(command)).code == ResponseCode.SUCCESS, "as Apache takes it"


@pytest.mark.parametrize("tag", [CHECKPOINT_TAG, ACK_TAG, "bAck", "other"])
async def test_forged_records_of_pops_hold_up_nobody(tag: str, autojump_clock: MockClock) -> None:
    """Honest messages are revived in time, forged ones make no endless work, and
    nothing of the broker's own topics comes out.
    """
    with trio.fail_after(3600):
        async with open_broker() as (broker, peer):
            popper = Popper(peer, "orders")
            await peer.send("orders", b"honest", queue_id=0)
            await begun(peer, b"secret", topic="others")
            assert [m.body for m in (await popper.pop()).messages] == [b"honest"]
            bodies = [*JUNK, *(json.dumps({**CHECKPOINT, **each}).encode() for each in FORGED)]
            for body in bodies:
                for queue_id in (0, 1):
                    await send_to_revive(peer, body or b" ", tag, queue_id)
            await trio.sleep(30)
            again = await popper.pop()
            assert b"honest" in {message.body for message in again.messages}
            for message in again.messages:
                assert message.body == b"honest"
            await nothing_more(broker)
            assert not any("secret" in str(body) for body in await drained(popper))
            await peer.send("orders", b"next", queue_id=0)
            assert b"next" in await drained(popper)


async def drained(popper: Popper) -> set[bytes]:
    """The bodies of all that can be popped now."""
    found: set[bytes] = set()
    while messages := (await popper.pop(invisible_time=600_000)).messages:
        found |= {message.body for message in messages}
    return found
