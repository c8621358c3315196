"""From messages to requests: checks, unique ids, compression, batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.compiling import mypyc_attr
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import RETRY_PREFIX, check_send_topic
from rocketmq_sdk.protocol.batch_codec import FRAME_OVERHEAD, batch_head, batch_heads
from rocketmq_sdk.protocol.compression import compress
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_id import encoded_ids_of, ids_of, write_ids
from rocketmq_sdk.protocol.text import encode_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.protocol.message_id import IdRange, UniqueIdGenerator

MAX_PROPERTIES: Final = 32767
"""Bytes of UTF-8 in which a record holds its properties.

Their length is a signed short.
"""
_ID_OVERHEAD: Final = len("UNIQ_KEY\x01\x02")
_LONGEST_ID: Final = _ID_OVERHEAD + 56
_REMEMBERED: Final = 1024
_SHORT: Final = 512
"""Characters of texts that are remembered."""
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


def leaving_body(message: Message, config: ProducerConfig) -> tuple[bytes, int]:
    """The body as it leaves, compressed from `compress_over` bytes on, and its flag."""
    body = message.body
    return (body, 0) if len(body) < config.compress_over else compressed(body, config)


def tail_of(message: Message, id_digits: int, more: str = "") -> str:
    """The property text of a request behind the unique id; `more` is its end.

    Raises `ConfigurationError` for one that is too long with an id of `id_digits`.
    """
    text = message._text or message.property_text()
    if more:
        text += more
    if len(text) > MAX_UTF8_CHARACTERS - _LONGEST_ID:
        size = len(text.encode("utf-8", "surrogatepass")) + _ID_OVERHEAD + id_digits
        if size > MAX_PROPERTIES:
            raise _too_long(size)
    return text


def _too_long(size: int) -> ConfigurationError:
    return ConfigurationError(f"the properties have {size} bytes, more than {MAX_PROPERTIES}")


class Form(NamedTuple):
    """What messages with the same properties have in common in a batch."""

    before: bytes
    """Length of the properties, and what stands in front of the unique id."""
    behind: bytes
    """The rest of the properties."""
    overhead: int
    """Bytes of such a message besides its body."""


class Forms(dict[str, Form]):
    """Forms by property texts without a unique id, of which all have `id_digits`.

    `more` goes behind each text. Most messages of a program have one of few texts. A
    look-up raises `ConfigurationError` for one that is too long.
    """

    __slots__ = ("_id_digits", "_more")

    def __init__(self, id_digits: int, more: str = "") -> None:
        super().__init__()
        self._id_digits = id_digits
        self._more = more

    def __missing__(self, text: str) -> Form:
        encoded = encode_text(text + self._more)
        size = len(encoded) + _ID_OVERHEAD + self._id_digits
        if size > MAX_PROPERTIES:
            raise _too_long(size)
        form = Form(
            size.to_bytes(2, "big") + b"UNIQ_KEY\x01",
            b"\x02" + encoded,
            FRAME_OVERHEAD + size,
        )
        if len(text) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[text] = form
        return form


# By columns, and each by C: most messages of a batch are alike.
def encode_batch(
    flags: Sequence[int], bodies: Sequence[bytes], forms: Sequence[Form], ids: Sequence[IdRange]
) -> bytes:
    """The body of a batch of messages with these unique ids."""
    count, lengths, form = len(bodies), list(map(len, bodies)), forms[0]
    befores: Iterable[bytes]
    behinds: Iterable[bytes]
    if forms.count(form) == count:
        flag, length = flags[0], lengths[0]
        if flags.count(flag) == count == lengths.count(length):
            head = batch_head(form.overhead + length, flag, length)
            return _encode_alike(bodies, form, ids, head)
        befores, behinds = repeat(form.before, count), repeat(form.behind, count)
        totals = [form.overhead + length for length in lengths]
    else:
        befores, behinds = [form.before for form in forms], [form.behind for form in forms]
        totals = [form.overhead + length for form, length in zip(forms, lengths, strict=True)]
    heads = batch_heads(totals, flags, lengths)
    parts = zip(heads, bodies, befores, encoded_ids_of(ids), behinds, strict=True)
    return b"".join(chain.from_iterable(parts))


def _encode_alike(
    bodies: Sequence[bytes], form: Form, ids: Sequence[IdRange], head: bytes
) -> bytes:
    """The body of a batch of messages that differ in what is in bodies and ids only."""
    tail = b"%b%b00%b" % (form.before, ids[0][0].encode(), form.behind)
    pieces = bytearray(b"".join((head, (tail + head).join(bodies), tail)))
    length = len(bodies[0])
    write_ids(ids, pieces, form.overhead + length, len(head) + length + len(form.before))
    return bytes(pieces)


def no_message(given: object) -> WrongTypeError:
    """The error for what is no message, or was not made as one."""
    if isinstance(given, Message):
        return WrongTypeError(
            f"{type(given).__name__} has made a message without Message.__init__; call "
            "super().__init__(topic, body) in its own"
        )
    return WrongTypeError(f'{given!r:.200} is no Message; send Message("topic", b"body")')


def check_message(message: object) -> None:
    """Raise `WrongTypeError` for what is no message, or was not made as one."""
    if not (isinstance(message, Message) and hasattr(message, "_body")):
        raise no_message(message)


_ONLY_MESSAGES: Final = {Message}


def check_messages(messages: Sequence[object]) -> None:
    """Raise `WrongTypeError` for what is no sequence of messages."""
    if not isinstance(messages, (list, Sequence)):  # a list is told at once
        raise WrongTypeError(f"messages is {messages!r:.200}; give a list of Message")
    if {*map(type, messages)} == _ONLY_MESSAGES:
        return
    for message in messages:
        check_message(message)


class Batch(NamedTuple):
    """What a request for several messages carries."""

    topic: str
    message_ids: str
    properties: str
    body: bytes
    message: Message
    """What hooks and selectors see."""


Parts = tuple[list[int], list[bytes], list[Form]]


@mypyc_attr(native_class=False)  # as mypyc compiles no heirs of `list`
class CheckedMessages(list[Message]):
    """Messages of one request that `batch_parts` has looked at, with what it gave."""

    __slots__ = ("_parts",)

    def __init__(self, messages: Iterable[Message], parts: Parts) -> None:
        super().__init__(messages)
        self._parts: Parts | None = parts

    def take_parts(self) -> Parts | None:
        """What `batch_parts` gave; None the second time."""
        parts, self._parts = self._parts, None
        return parts


def check_one_sharding_key(messages: Sequence[Message]) -> None:
    """Refuse a batch for which sharding keys name several queues, or some and none."""
    special = [message for message in messages if not message._is_plain]
    keys = {message.sharding_key for message in special}
    if keys and len(special) < len(messages):
        keys.add(None)
    if len(keys) > 1:
        raise ConfigurationError(
            f"a batch goes to one queue, but its messages have {len(keys)} different sharding "
            "keys; send one batch for each, or give queue="
        )


# The rules of `MessageBatch.generateFromList`, and one more: Apache's client lets a
# batch pass whose messages have a time to be delivered at, and the broker then delivers
# them at once.
def make_batch(
    messages: Sequence[Message], config: ProducerConfig, ids: UniqueIdGenerator, known: Forms
) -> Batch:
    """Encode messages of one topic as one request; `known` are the producer's forms.

    Raises what `batch_parts` raises.
    """
    parts = messages.take_parts() if isinstance(messages, CheckedMessages) else None
    flags, bodies, forms = parts or batch_parts(messages, config, known)
    first = messages[0]
    ranges, own_id = ids.next_ranges(len(messages)), ids.next_id()
    wait = "true" if first.wait_store_ok else "false"
    properties = f"UNIQ_KEY\x01{own_id}\x02WAIT\x01{wait}\x02"
    body = encode_batch(flags, bodies, forms, ranges)
    return Batch(first.topic, ",".join(ids_of(ranges)), properties, body, first)


def batch_parts(messages: Sequence[Message], config: ProducerConfig, known: Forms) -> Parts:
    """Flags, bodies and forms of messages that go in one request.

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
    count, most = len(messages), config.max_message_size
    flags, bodies = [0] * count, [message._body for message in messages]
    texts = [message._text or message.property_text() for message in messages]
    plain = wait and [message._is_plain for message in messages].count(True) == count
    if not plain or {message._topic for message in messages} != {topic}:
        for message in messages:
            _check_for_batch(message, first)
        flags = [message.flag for message in messages]
    lengths = list(map(len, bodies))
    for size in set(lengths):
        check_size(size, most)
    if texts.count(texts[0]) == count:
        forms = [known[texts[0]]] * count
        total = count * forms[0].overhead
    else:
        forms = [known[text] for text in texts]
        total = sum([form.overhead for form in forms])
    total += sum(lengths)
    if total > most:
        raise ConfigurationError(
            f"the batch has {total} bytes, more than max_message_size = {most}; send it in parts"
        )
    return flags, bodies, forms


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
