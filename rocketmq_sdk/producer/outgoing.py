"""From messages to requests: checks, unique ids, compression, batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import RETRY_PREFIX, check_send_topic
from rocketmq_sdk.protocol.batch_codec import FRAME_OVERHEAD, encode_batch
from rocketmq_sdk.protocol.compression import compress
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.protocol.message_id import UniqueIdGenerator

MAX_PROPERTIES: Final = 32767
"""Bytes of UTF-8 in which a record holds its properties.

Their length is a signed short.
"""
_ID_OVERHEAD: Final = len("UNIQ_KEY\x01\x02")
MAX_UTF8_CHARACTERS: Final = MAX_PROPERTIES // 4
"""So many characters fit in any case; shorter texts need not be looked at."""


def check_size(size: int, limit: int) -> None:
    """Refuse an empty body and one over the limit (`Validators.checkMessage`)."""
    if not size:
        raise ConfigurationError("the body is empty; brokers do not store empty messages")
    if size > limit:
        raise ConfigurationError(f"the body has {size} bytes, more than max_message_size = {limit}")


def compressed(body: bytes, config: ProducerConfig) -> tuple[bytes, int]:
    """The body made smaller and the system flag that says how.

    The result is used even when it is bigger, as Apache's client does.
    """
    return compress(
        body, config.compression, config.compression_level
    ), SysFlag.COMPRESSED | config.compression.sys_flag_bits


def properties_of(message: Message, message_id: str, more: str = "") -> str:
    """The property text of one request; `more` goes behind it."""
    text = f"UNIQ_KEY\x01{message_id}\x02{message.property_text()}{more}"
    size = len(text)
    if size > MAX_UTF8_CHARACTERS and not text.isascii():
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_PROPERTIES:
        raise _too_long(size)
    return text


def _too_long(size: int) -> ConfigurationError:
    return ConfigurationError(f"the properties have {size} bytes, more than {MAX_PROPERTIES}")


Element = tuple[int, bytes, str]
"""Flag, body and property text of a message of a batch that has no unique id yet."""


def element_of(message: Message, id_digits: int, more: str = "") -> tuple[Element, int]:
    """A message for a batch, and its bytes there. Raises as `properties_of`.

    `id_digits` is the length of its unique id.
    """
    text = message.property_text() + more
    if not text.isascii():
        text = encode_text(text).decode()
        properties_size = len(text.encode()) + _ID_OVERHEAD + id_digits
    else:
        properties_size = len(text) + _ID_OVERHEAD + id_digits
    if properties_size > MAX_PROPERTIES:
        raise _too_long(properties_size)
    body = message.body
    flag = 0 if message.is_plain else message.flag
    return (flag, body, text), FRAME_OVERHEAD + len(body) + properties_size


def element_size(element: Element, id_digits: int) -> int:
    """The bytes of an element in a batch."""
    _flag, body, text = element
    return FRAME_OVERHEAD + len(body) + len(text.encode()) + _ID_OVERHEAD + id_digits


def encode_elements(elements: Iterable[Element], ids: Iterable[str]) -> bytes:
    """The body of a batch of messages with these unique ids."""
    items = zip(elements, ids, strict=True)
    return encode_batch(
        [
            (flag, body, f"UNIQ_KEY\x01{message_id}\x02{text}".encode())
            for (flag, body, text), message_id in items
        ]
    )


class Batch(NamedTuple):
    """What a request for several messages carries."""

    topic: str
    message_ids: str
    properties: str
    body: bytes
    message: Message
    """What hooks and selectors see."""


def check_one_sharding_key(messages: Sequence[Message]) -> None:
    """Refuse a batch for which sharding keys name several queues, or some and none."""
    keys = {None if message.is_plain else message.sharding_key for message in messages}
    if len(keys) > 1:
        raise ConfigurationError(
            f"a batch goes to one queue, but its messages have {len(keys)} different sharding "
            "keys; send one batch for each, or give queue="
        )


# The rules of `MessageBatch.generateFromList`, and one more: Apache's client lets a
# batch pass whose messages have a time to be delivered at, and the broker then delivers
# them at once.
def make_batch(
    messages: Sequence[Message], config: ProducerConfig, ids: UniqueIdGenerator
) -> Batch:
    """Encode messages of one topic as one request.

    Raises `ConfigurationError` when there is none, when they differ in topic or
    `wait_store_ok`, when one of them is delayed or goes to a retry topic, and when they
    are more than `max_message_size` bytes together.
    """
    if not messages:
        raise ConfigurationError("the batch is empty")
    first = messages[0]
    topic, wait = first.topic, first.wait_store_ok
    check_send_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise ConfigurationError(f"messages to the retry topic {topic!r} cannot be sent in a batch")
    id_digits, most = ids.digits, config.max_message_size
    elements: list[Element] = []
    total = 0
    for message in messages:
        if message.topic != topic or not (wait and message.is_plain):
            _check_for_batch(message, first)
        if not 0 < len(message.body) <= most:
            check_size(len(message.body), most)
        element, size = element_of(message, id_digits)
        elements.append(element)
        total += size
    if total > most:
        raise ConfigurationError(
            f"the batch has {total} bytes, more than max_message_size = {most}; send it in parts"
        )
    *message_ids, own_id = ids.next_ids(len(elements) + 1)
    properties = f"UNIQ_KEY\x01{own_id}\x02WAIT\x01{'true' if wait else 'false'}\x02"
    return Batch(
        topic, ",".join(message_ids), properties, encode_elements(elements, message_ids), first
    )


def _check_for_batch(message: Message, first: Message) -> None:
    """Refuse a message that cannot be in a batch that begins with another one."""
    if message.topic != first.topic or message.wait_store_ok != first.wait_store_ok:
        raise ConfigurationError(
            f"a batch has one topic and one wait_store_ok; {message!r} differs from {first!r}"
        )
    if message.is_delayed:
        raise ConfigurationError(
            f"{message!r} is delayed; delayed messages cannot be sent in a batch"
        )
    if message.priority is not None:
        raise ConfigurationError(
            f"{message!r} has a priority, which brokers do not heed in a batch; send it alone"
        )


def wrap_batch(topic: str, body: bytes, config: ProducerConfig, ids: UniqueIdGenerator) -> Batch:
    """The request for messages that `protocol.batch_codec` has encoded.

    Each of them has its unique id.

    Raises `ConfigurationError` for a topic that no batch can be sent to, and for an
    empty or too large body.
    """
    check_send_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise ConfigurationError(f"messages to the retry topic {topic!r} cannot be sent in a batch")
    check_size(len(body), config.max_message_size)
    own_id = ids.next_id()
    return Batch(
        topic, own_id, f"UNIQ_KEY\x01{own_id}\x02WAIT\x01true\x02", body, Message(topic, body)
    )
