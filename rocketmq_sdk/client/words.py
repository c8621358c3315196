"""The words of commit and roll-back that a producer gives to brokers (END_TRANSACTION).

Those that are given in one turn of the loop leave together, in front of the messages of
this turn: their requests are written from forms, one for each topic and broker. One
that is alone leaves at once, and its task waits at the socket itself. What is special
about a word is for a call of its own, `end_transaction`: where interceptors look at
requests, to a broker in the process or one that is not connected, and after GO_AWAY.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.transactions import end_transaction
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.frame_template import FrameTemplate
from rocketmq_sdk.protocol.text import valid_text
from rocketmq_sdk.remoting.channel import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.protocol.frame_template import Form
    from rocketmq_sdk.protocol.headers.transactions import EndTransactionRequestHeader
    from rocketmq_sdk.remoting.channel import Channel, PendingCall, SocketWait

_VARYING: Final = (
    "tranStateTableOffset",
    "commitLogOffset",
    "commitOrRollback",
    "msgId",
    "transactionId",
)
"""The fields of a word that are its own, in the order in which the header has them."""
_MOST_FORMS: Final = 1024


class Word:
    """One word that is about to leave, or under way.

    It is over with a response, with an error, or with neither where it cannot leave
    with others.
    """

    __slots__ = (
        "call",
        "channel",
        "error",
        "form",
        "over",
        "response",
        "since",
        "task",
        "timeout",
        "values",
        "wait",
    )

    def __init__(
        self,
        channel: Channel,
        form: Form,
        values: tuple[str, ...],
        since: float,
        timeout: float,
    ) -> None:
        self.channel = channel
        self.form = form
        self.values = values
        self.since = since
        self.timeout = timeout
        self.over = False
        self.response: Command | None = None
        self.error: RocketMQError | None = None
        self.call: PendingCall | None = None
        self.task: trio.lowlevel.Task | None = None
        self.wait: SocketWait | None = None
        """Where its task waits, if it is alone."""

    def end(self, call: PendingCall | None) -> None:
        """It is over; without a call it could not leave."""
        self.over = True
        if call is not None:
            self.response, self.error = call.response, call.error
        self.call = None  # it has this word: no circle is left
        if self.wait is not None:
            self.wait.wake()
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def give_up(self) -> None:
        """Nobody waits for it any more; if it has not left, it does not."""
        self.over = True
        call, self.call = self.call, None
        if call is not None:
            call.forget()

    async def park(self) -> None:
        """Wait until it is over. Cancelling gives it up."""

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self.task = None
            self.give_up()
            return trio.lowlevel.Abort.SUCCEEDED

        if not self.over:
            self.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)

    async def wait_at(self, wait: SocketWait) -> None:
        """Wait at the socket, as the only one, as long as that is possible."""
        self.wait = wait
        try:
            while await wait.turn() and not self.over:
                pass
        except BaseException:
            self.give_up()
            raise
        finally:
            self.wait = None
            wait.leave()


class Words(Sweep):
    """The words of one producer."""

    __slots__ = ("_client", "_forms", "_gathered", "waiting")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._forms: dict[tuple[str | None, str | None], Form] = {}
        self._gathered: list[Word] = []
        self.waiting = 0
        """Words that are about to leave, or under way."""

    async def tell(
        self,
        broker_name: str,
        header: EndTransactionRequestHeader,
        seconds: float,
        stir: Callable[[], None] | None,
    ) -> Command:
        """Tell a broker the outcome of a half message that it has; returns the answer.

        Whether the answer is a success is for the caller to see. `stir` asks for
        `leave` at the end of this turn of the loop, where more may leave with it;
        without it the word leaves at once. Raises what `end_transaction` raises.
        Cancelling leaves open whether the broker hears it.
        """
        began = trio.current_time()
        channel = self._free_channel(broker_name)
        if channel is not None:
            word = Word(channel, self._form_of(header), _values_of(header), began, seconds)
            await self._say(word, stir)
            if word.error is not None:
                raise word.error
            response = word.response
            if response is not None and response.code != ResponseCode.GO_AWAY:
                return response
            if response is not None:
                self._client.remoting.retire(self._client.broker_address(broker_name), channel)
            seconds = max(0.0, began + seconds - trio.current_time())
        return await end_transaction(self._client, broker_name, header, seconds)

    def _free_channel(self, broker_name: str) -> Channel | None:
        """The connection to a broker by which a plain word may leave."""
        client = self._client
        if client.remoting.interceptors or client.config.header_encoding is not HeaderEncoding.JSON:
            return None
        client.check_run()
        address = client.broker_address(broker_name)
        channel = None if address is None else client.remoting.channel_nowait(address)
        return None if channel is None or channel.in_process else channel

    def _form_of(self, header: EndTransactionRequestHeader) -> Form:
        """The form of words about a topic to a broker."""
        key = header.topic, header.bname
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
            sample = Command.request(RequestCode.END_TRANSACTION, header)
            form = self._forms[key] = FrameTemplate(sample, _VARYING).form
        return form

    @trio.lowlevel.enable_ki_protection
    async def _say(self, word: Word, stir: Callable[[], None] | None) -> None:
        """Send a word and wait until it is over."""
        alone = not self.waiting and stir is None
        self.waiting += 1
        try:
            if stir is None:
                self._submit(word.channel, [word])
                wait = word.channel.socket_wait(0) if alone and not word.over else None
                if wait is not None:
                    await word.wait_at(wait)
            else:
                self._gathered.append(word)
                stir()
            await word.park()
        finally:
            self.waiting -= 1

    def leave(self) -> None:
        """Let all words leave that were given in this turn of the loop."""
        words, self._gathered = self._gathered, []
        by_channel: dict[Channel, list[Word]] = {}
        for word in words:
            if not word.over:
                by_channel.setdefault(word.channel, []).append(word)
        for channel, some in by_channel.items():
            self._submit(channel, some)

    def _submit(self, channel: Channel, words: Sequence[Word]) -> None:
        """Hand words to a connection; those that it does not take are over."""
        requests = ((each.form, each.values, b"", each.since, each.timeout, each) for each in words)
        calls = channel.submit_forms(requests, self)
        for word, call in zip(words, calls, strict=False):
            word.call = call
        for word in words[len(calls) :]:
            word.end(None)

    def __call__(self, call: PendingCall, /) -> None:
        word: Word = call.tag  # type: ignore[assignment]
        word.end(call)

    def together(self, calls: Sequence[PendingCall], /) -> None:
        for call in calls:
            self(call)


def _values_of(header: EndTransactionRequestHeader) -> tuple[str, ...]:
    """What a word has of its own, as it stands between the quotes of JSON."""
    return (
        str(header.tran_state_table_offset),
        str(header.commit_log_offset),
        str(header.commit_or_rollback),
        _escaped(header.msg_id),
        _escaped(header.transaction_id or ""),
    )


def _escaped(text: str) -> str:
    """A text as it stands between the quotes of JSON; ids are mostly plain."""
    if text.isascii() and text.isalnum():
        return text
    return encode_basestring(valid_text(text))[1:-1]
