"""What a type checker says of right and wrong programs.

Each line of the programs with `# wrong` has an error, and no other line has one.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time
PROGRAM = """
from rocketmq_sdk import (
    ConsumeOrderlyStatus, EmbeddedBroker, LitePullConsumer, Message, MessageQueue, Producer,
    PushConsumer, ReceivedMessage, TransactionProducer, TransactionState,
)

TOPICS = {"orders": "*"}

# --- settings of the broker

EmbeddedBroker(default_topic_queue_nums=4, flush_disk_type="SYNC_FLUSH", brokerName="b")
EmbeddedBroker("/tmp/x", listen=0, autoCreateTopicEnable=False, ha_master_address=None)
EmbeddedBroker(default_topic_queue_num=4)  # wrong
EmbeddedBroker(default_topic_queue_nums="four")  # wrong
EmbeddedBroker(flush_disk_type="SYNC")  # wrong
EmbeddedBroker(autoCreateTopicEnable="yes")  # wrong

# --- listeners

async def one(message: ReceivedMessage) -> None: ...
async def many(messages: list[ReceivedMessage]) -> None: ...
def plain(message: ReceivedMessage) -> None: ...
def plain_many(messages: list[ReceivedMessage]) -> None: ...
async def decides(message: ReceivedMessage) -> ConsumeOrderlyStatus | None:
    return ConsumeOrderlyStatus.COMMIT
async def answers(message: ReceivedMessage) -> bool:
    return True
async def text(message: str) -> None: ...
class Listener:
    async def __call__(self, message: ReceivedMessage) -> None: ...

PushConsumer("g", subscriptions=TOPICS, listener=one)
PushConsumer("g", subscriptions=TOPICS, listener=plain, concurrency=3)
PushConsumer("g", subscriptions=TOPICS, listener=Listener(), orderly=True)
PushConsumer("g", subscriptions=TOPICS, listener=lambda message: one(message))
PushConsumer("g", subscriptions=TOPICS, listener=decides, orderly=True, auto_commit=False)
PushConsumer("g", subscriptions=TOPICS, listener=many, batch=16)
PushConsumer("g", subscriptions=TOPICS, listener=plain_many, batch=16)
PushConsumer("g", subscriptions=TOPICS, listener=many)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=plain_many)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=one, batch=16)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=answers)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=text)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=5)  # wrong
PushConsumer("g", subscriptions=TOPICS, listener=one, concurency=3)  # wrong

# --- checkers and selectors

async def checker(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT
def plain_checker(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT

TransactionProducer("g", checker)
TransactionProducer("g", plain_checker)  # wrong

async def send(producer: Producer, queue: MessageQueue) -> None:
    messages = [Message("orders", b"x")]
    await producer.send_batch(messages)
    await producer.send_batch(messages, queue=queue, timeout=1)
    await producer.send_batch(tuple(messages), key="42")
    await producer.send_batch(messages, selector=lambda queues, message, key: queues[0])
    await producer.send_batch(messages[0])  # wrong
    await producer.send_batch([b"x"])  # wrong
    await producer.send(b"x")  # wrong
    await producer.send(messages[0], queue=0)  # wrong
    producer.submit("x")  # wrong

async def poll(consumer: LitePullConsumer) -> None:
    await consumer.subscribe("orders", "paid || refunded")
    await consumer.seek(("orders", 0), 5)  # wrong
    for message in await consumer.poll():
        message.body.decode()
        message.boddy  # wrong
"""


def test_right_programs_pass_and_wrong_ones_do_not(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--config-file=", "--python-version=3.11", "--follow-imports=silent"),
            f"--cache-dir={tmp_path / 'cache'}",
            str(program),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = {
        int(line.split(":")[1])
        for line in result.stdout.splitlines()
        if "program.py:" in line and ": error:" in line
    }
    expected = {
        number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")
    }
    assert found == expected, result.stdout + result.stderr


def test_only_type_checkers_read_the_options() -> None:
    program = (
        "import sys; from rocketmq_sdk import EmbeddedBroker; EmbeddedBroker(brokerName='b'); "
        "assert 'rocketmq_sdk.broker_embedded.settings.options' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=60)
