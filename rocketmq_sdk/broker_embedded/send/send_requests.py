"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

Two-way and one-way (`SendMessageProcessor` of Apache). An ordinary message is served by
straight code that reads the ext fields directly; rare cases (a topic not seen yet, a
retry topic, a delay) have functions of their own. The properties keep the text that the
producer wrote; the broker only appends to it.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.send.offset_ids import offset_ids
from rocketmq_sdk.broker_embedded.send.properties import (
    PlainProperties,
    has_broker_properties,
    is_special,
    without_broker_properties,
)
from rocketmq_sdk.broker_embedded.send.remarks import illegal_queue, topic_remark
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.tables.put_times import EVERY
from rocketmq_sdk.broker_embedded.tables.topics import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.broker_embedded.timers.intake import STORED, delay_level
from rocketmq_sdk.codes import VERSION_RETRY_TIMES_IN_HEADER, RequestCode, ResponseCode
from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.properties import (
    DELAY,
    KEYS,
    PRIORITY,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_OUT_MS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    without_property,
)
from rocketmq_sdk.model.properties import property_in_text as find
from rocketmq_sdk.names import (
    DLQ_PREFIX,
    MAX_TOPIC_LENGTH,
    NOT_SENDABLE_TOPICS,
    RETRY_PREFIX,
    TIMER_TOPIC,
    dead_letter_topic,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE, SysFlag
from rocketmq_sdk.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.protocol.recall_handle import RecallHandle
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.registration.service import RegistrationService
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.tables.figures import Figures
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.broker_embedded.transactions.part import TransactionPart
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Channel

    Answer = Command | Callable[[], Awaitable[Command | None]] | None

_PUT_OK: Final = PutStatus.PUT_OK
_SUCCESS: Final = STORED[_PUT_OK]
_LETTERS: Final = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}


class _Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A message that is not stored, as the code and the remark of the answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class SendProcessor:
    """Checks, completes and stores what producers send."""

    def __init__(
        self,
        core: Core,
        intake: Intake,
        transactions: TransactionPart,
        members: MemberPart,
        registration: RegistrationService,
    ) -> None:
        self._core = core
        self._topic = core.topics.get
        self._put = core.store.put
        self._intake = intake
        self._transactions = transactions
        self._members = members
        self._registration = registration
        self._stats = core.stats
        self._times = core.put_times
        self._checked: set[str] = set()
        self.properties = PlainProperties()
        """What is known of the properties of plain messages."""
        self._look = self.properties.look
        self._ids = UniqueIdGenerator(core.store_host[:-4], 0, core.clock)
        self._host_hex = core.store_host.hex().upper()
        self._configure(core.config.current)
        core.config.on_change.append(lambda _before, now: self._configure(now))

    def plain_topic(self, topic: str) -> TopicConfig | None:
        """The settings of a topic to which messages are just stored, if it is known.

        None also while these settings are not in their file: answers depend on them.
        """
        config = self.half_topic(topic)
        return None if config is None or config.attributes else config

    def half_topic(self, topic: str) -> TopicConfig | None:
        """The settings of a topic for which half messages are just stored."""
        config = self._topic(topic) if topic in self._checked else None
        if (
            config is None
            or self._core.unwritten.touched
            or topic[0] == "%"
            or config.attributes.get("cleanup.policy") == "COMPACTION"
            or config.topic_filter_type != "SINGLE_TAG"
        ):
            return None
        return config

    def forget_topic(self, topic: str) -> None:
        """A topic is gone: the next message to it is checked again."""
        self._checked.discard(topic)

    def _configure(self, config: BrokerConfig) -> None:
        self.region = config.region_id
        self.trace = "true" if config.trace_on else "false"
        self.suffix = (
            f"MSG_REGION\x01{self.region}\x02TRACE_ON\x01{self.trace}\x02"
            f"CLUSTER\x01{config.broker_cluster_name}\x02"
        )
        self.max_body = config.store.max_message_size
        self._writable = bool(config.broker_permission & Permission.WRITE)
        self._accepting_from = config.start_accept_send_request_time_stamp
        self._checked.clear()

    def send(self, channel: Channel, request: Command) -> Answer:
        """SEND_MESSAGE with the long names of its fields."""
        ext = request.ext_fields
        letters = {letter: ext[name] for name, letter in _LETTERS.items() if name in ext}
        try:
            return self._send(channel, request, letters)
        except (KeyError, ValueError):
            SendMessageRequestHeader.from_ext(ext)
            raise

    def send_v2(self, channel: Channel, request: Command) -> Answer:
        """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

        The flag in the header says whether the body is a batch, not the code.
        """
        try:
            return self._send(channel, request, request.ext_fields)
        except (KeyError, ValueError):
            SendMessageRequestHeaderV2.from_ext(request.ext_fields)
            raise

    def _send(self, channel: Channel, request: Command, ext: dict[str, str]) -> Answer:
        topic = ext["b"]
        wish = ext["e"]
        try:
            queue_id, sys_flag, born, flag = int(wish), int(ext["f"]), int(ext["g"]), int(ext["h"])
            reconsume_times = int(ext.get("j") or 0)
        except ValueError:
            SendMessageRequestHeaderV2.from_ext(ext)
            raise
        body = request.body
        if not body:
            raise FieldError("a message without a body cannot be stored")
        config = self._topic(topic)
        created = False
        if config is None or topic not in self._checked:
            created = config is None
            checked = self._check(ext, topic)
            if isinstance(checked, Command):
                return checked
            config = checked
        if queue_id < 0:
            queue_id = random.randrange(max(1, config.write_queue_nums))
            wish = str(queue_id)
        elif queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            return self._error(
                ResponseCode.INVALID_PARAMETER, illegal_queue(queue_id, config, channel)
            )
        text = ext.get("i") or ""
        if text and text[-1] != "\x02":
            text += "\x02"
        found = self._look(text)
        if found is None and has_broker_properties(text):
            text = without_broker_properties(text)
        message = MessageToStore(
            topic,
            queue_id,
            body,
            text,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born,
            born_host=channel.remote_host_packed,
            reconsume_times=reconsume_times,
        )
        if ext.get("m") == "true":
            return self._send_batch(channel, request, message, wish, created)
        return self._send_one(channel, request, ext, config, message, wish, created, found)

    def _send_one(
        self,
        channel: Channel,
        request: Command,
        ext: dict[str, str],
        config: TopicConfig,
        message: MessageToStore,
        wish: str,
        created: bool,
        found: tuple[str, int] | None,
    ) -> Answer:
        """Store a message. `found` is what `PlainProperties` says of its properties."""
        topic, text = message.topic, message.properties
        if found is not None:
            unique, message.tags_code = found
        else:
            unique, text = self._named(text)
            tags = find(text, TAGS)
            if tags is not None:
                message.tags_code = tags_code(tags)
        message.properties = text + self.suffix
        if (
            topic[0] == "%"
            or config.attributes
            or config.topic_filter_type != "SINGLE_TAG"
            or (found is None and is_special(text))
        ):
            try:
                result = self._put_special(request, ext, config, message)
            except _Refused as refused:
                return self._error(refused.code, refused.remark)
            if PRIORITY in text:
                wish = str(message.queue_id)
        elif len(message.body) > self.max_body:
            return self._error(ResponseCode.MESSAGE_ILLEGAL, self._intake.illegal_remark())
        elif self._times.in_turn or self._stats.put_times & EVERY or self._core.store.needs_wait:
            result = self._put(message)
        else:
            result = self._times.measured(partial(self._put, message))
        return self._finish(channel, request, message, result, wish, unique, created)

    def _named(self, text: str) -> tuple[str, str]:
        """The unique key in a text of properties, and the text with it."""
        unique = find(text, UNIQ_KEY)
        if unique is not None:
            return unique, text
        unique = self._ids.next_id()
        return unique, f"{text}UNIQ_KEY\x01{unique}\x02"

    def _finish(
        self,
        channel: Channel,
        request: Command,
        message: MessageToStore,
        result: PutResult,
        wish: str,
        unique: str | None,
        created: bool,
        *,
        inner: bool = False,
    ) -> Answer:
        status, host = result.status, self._host_hex
        code = _SUCCESS if status is _PUT_OK else STORED.get(status)
        if code is None:
            self._stats.put_failed += 1
            if status is PutStatus.MESSAGE_ILLEGAL:
                _check_numbers(request)
            return self._error(*self._intake.failure(status))
        self._stats.put(message.topic, message.queue_id, result.count, result.size)
        if self._stats.figures is not None:
            self._count_kind(self._stats.figures, message, result)
        if request.flag & FLAG_ONEWAY:
            return None
        if result.physical_offsets is None:
            message_id = f"{host}{result.physical_offset:016X}"
        else:
            message_id = offset_ids(host, result.physical_offsets)
        fields = {
            "msgId": message_id,
            "queueId": wish,
            "queueOffset": str(result.queue_offset),
            "MSG_REGION": self.region,
            "TRACE_ON": self.trace,
        }
        if unique is not None:
            fields["transactionId"] = unique
            if inner:
                fields["batchUniqId"] = unique
            elif message.topic == TIMER_TOPIC:
                self._attach_recall_handle(fields, message.properties, unique)
        response = Command(code, flag=FLAG_RESPONSE, ext_fields=fields)
        registered = self._registration.waiting() if created else None
        store, waits = self._core.store, self._core.store.needs_wait
        if (
            registered is not None
            or self._core.unwritten.touched  # whoever has called this holds the answer back
            or (waits and not store.tells_durable)
        ):
            return self._later(response, message, result, registered)
        if not waits or find(message.properties, WAIT) == "false":
            return response
        began = self._times.start()
        store.when_durable(result, partial(self._answer_durable, channel, request, response, began))
        return None

    @staticmethod
    def _count_kind(figures: Figures, message: MessageToStore, result: PutResult) -> None:
        figures.put_text(message.topic, message.properties, result.count, result.size)

    def _answer_durable(
        self,
        channel: Channel,
        request: Command,
        response: Command,
        began: float,
        status: PutStatus,
    ) -> None:
        self._times.put_over(began)
        channel.respond(request, self.told(response, status))

    def told(self, response: Command, status: PutStatus) -> Command:
        """The answer to a send whose wait for the disk ended so."""
        if status not in STORED:
            return self._error(*self._intake.failure(status))
        response.code = STORED[status]
        return response

    def _attach_recall_handle(self, fields: dict[str, str], text: str, unique: str) -> None:
        """Add the handle by which a timer can be recalled; none for a retry topic."""
        topic, out_ms = find(text, REAL_TOPIC), find(text, TIMER_OUT_MS)
        if (
            topic is not None
            and out_ms is not None
            and out_ms.isdecimal()
            and not topic.startswith(RETRY_PREFIX)
        ):
            handle = RecallHandle(
                topic, self._core.config.current.broker_name, str(int(out_ms) + 1), unique
            )
            fields["recallHandle"] = handle.encode()

    def _later(
        self,
        response: Command,
        message: MessageToStore,
        result: PutResult,
        registered: Callable[[], Awaitable[None]] | None,
    ) -> Callable[[], Awaitable[Command]]:
        store, times = self._core.store, self._times
        began = times.start() if store.needs_wait else 0.0

        async def answer() -> Command:
            if store.needs_wait:
                status = await store.wait_durable(
                    result, wait_store_ok=find(message.properties, WAIT) != "false"
                )
                times.put_over(began)
                if status not in STORED:
                    return self._error(*self._intake.failure(status))
                response.code = STORED[status]
            if registered is not None:
                await registered()
            return response

        return answer

    def _error(self, code: int, remark: str) -> Command:
        """An error of the send path; it carries region and trace switch too."""
        return Command(
            code,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields={"MSG_REGION": self.region, "TRACE_ON": self.trace},
        )

    def _check(self, ext: dict[str, str], topic: str) -> TopicConfig | Command:
        """Check a topic in Apache's order; returns the topic or the refusal.

        A missing topic is made when that is allowed.
        """
        core = self._core
        if core.clock.now_ms() < self._accepting_from:
            return self._error(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {self._accepting_from}"
            )
        config = core.topics.get(topic)
        if not self._writable and config is not None and config.order:
            return self._error(
                ResponseCode.NO_PERMISSION,
                f"the broker[{core.address()}] sending message is forbidden",
            )
        problem = topic_remark(topic)
        if problem is not None:
            return self._error(ResponseCode.INVALID_PARAMETER, problem)
        if topic in NOT_SENDABLE_TOPICS:
            return self._error(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        if config is None:
            unit = ext.get("k", "").lower() == "true"
            config = core.topics.create_on_send(
                topic, ext["c"], int(ext["d"]), UNIT_FLAG if unit else 0
            )
            if config is None and topic.startswith(RETRY_PREFIX):
                config = core.topics.create_retry(
                    topic, 1, sys_flag=UNIT_SUBSCRIPTION_FLAG if unit else 0
                )
            if config is None:
                return self._error(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"topic[{topic}] not exist, apply first please!{FAQ}",
                )
        if self._writable and not self._accepting_from:
            self._checked.add(topic)
        return config

    def _put_special(
        self, request: Command, ext: dict[str, str], config: TopicConfig, message: MessageToStore
    ) -> PutResult:
        """Store a message that is not ordinary. Raises `_Refused`."""
        if message.topic.startswith(RETRY_PREFIX):
            self._prepare_retry(request, ext, message)
        if config.topic_filter_type == "MULTI_TAG":
            message.sys_flag |= SysFlag.MULTI_TAGS
        text = message.properties
        if config.attributes.get("cleanup.policy") == "COMPACTION" and find(text, KEYS) is None:
            raise _Refused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        transaction = find(text, TRAN_MSG)
        if (
            transaction is not None
            and transaction.lower() == "true"
            and not (message.reconsume_times > 0 and delay_level(text) > 0)
        ):
            if self._core.config.current.reject_transaction_message:
                remark = (
                    f"the broker[{self._core.address()}] sending transaction message is forbidden"
                )
                raise _Refused(ResponseCode.NO_PERMISSION, remark)
            return self._transactions.put_half(message)
        priority = find(text, PRIORITY)
        if priority is not None:
            _place_by_priority(message, config, priority)
        return self._intake.put(message)

    def _prepare_retry(
        self, request: Command, ext: dict[str, str], message: MessageToStore
    ) -> None:
        """A consumer sends a failed message itself.

        It goes to the dead letter topic when it failed too often or belongs to an
        orderly group.
        """
        core = self._core
        group = message.topic[len(RETRY_PREFIX) :]
        config = core.groups.get(group)
        if config is None:
            raise _Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group} {FAQ}",
            )
        most = config.retry_max_times
        if request.version >= VERSION_RETRY_TIMES_IN_HEADER and ext.get("l"):
            most = int(ext["l"])
        if message.reconsume_times <= most and not self._members.locks.any_alive(group):
            return
        if self._stats.figures is not None:
            self._stats.figures.dead_letters.add((group, message.topic))
        dead = core.topics.create_retry(dead_letter_topic(group), 1)
        message.topic, message.queue_id = dead.topic_name, 0
        message.properties = f"{without_property(message.properties, DELAY)}DELAY\x01-1\x02"
        self._stats.dead_letters += 1

    def _send_batch(
        self, channel: Channel, request: Command, message: MessageToStore, wish: str, created: bool
    ) -> Answer:
        """Messages of one topic in one body; each becomes a record of its own."""
        topic = message.topic
        if len(topic) > MAX_TOPIC_LENGTH:
            return self._error(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}"
            )
        if topic.startswith(RETRY_PREFIX):
            return self._error(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {topic[len(RETRY_PREFIX) :]}",
            )
        unique = find(message.properties, UNIQ_KEY)
        message.properties += self.suffix
        inner = unique is not None and self._core.store.has_batch_queues(topic)
        put = self._intake.put_inner_batch if inner else self._intake.put_batch
        result = put(message)
        return self._finish(channel, request, message, result, wish, unique, created, inner=inner)


def _check_numbers(request: Command) -> None:
    """Raises `FieldError` that names a number of the header that no record can hold."""
    long_names = request.code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
    header = SendMessageRequestHeader if long_names else SendMessageRequestHeaderV2
    header.from_ext(request.ext_fields)


def _place_by_priority(message: MessageToStore, config: TopicConfig, priority: str) -> None:
    """Apply a priority: choose its queue.

    Where Apache does not apply it, it is removed from the message.
    """
    text = message.properties
    applies = (
        find(text, TRAN_MSG) is None
        and delay_level(text) <= 0
        and find(text, SHARDING_KEY) is None
        and "TIMER_" not in text
    )
    if (
        applies
        and priority.isdecimal()
        and len(priority) < 20
        and not message.topic.startswith(DLQ_PREFIX)
    ):
        message.queue_id = min(int(priority), max(0, config.write_queue_nums - 1))
    else:
        message.properties = without_property(text, PRIORITY)
