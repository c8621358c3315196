"""Messages that threads have handed over, as futures, and the quick way of a send."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.model.results import SendResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from rocketmq_sdk.errors import ClosedError
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.producer.gathered import AccumulatedHandle as InnerAccumulatedHandle
    from rocketmq_sdk.producer.handle import SendHandle as InnerSendHandle
    from rocketmq_sdk.producer.producer import Producer as InnerProducer
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.remoting.channel import SocketWait
    from rocketmq_sdk.sync.run import ThreadRun

Aimed = tuple["MessageQueue | None", "QueueSelector | None", object, "float | timedelta | None"]


_UNDER_WAY: Final = "PENDING"
_FINISHED: Final = "FINISHED"
_waiting = threading.RLock()
"""Held to make a future one that somebody waits for, and to end one that is none."""


class _ForWaiters:
    """What a future has only when somebody waits for it; made when it is asked for.

    A descriptor, as `__getattr__` would make each look at any attribute slower.
    """

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: SendHandle, owner: type) -> Any:
        with _waiting:
            if not future._awaited:
                future.__dict__.update(
                    _waiters=[], _done_callbacks=[], _condition=threading.Condition()
                )
                future._awaited = True
        return future.__dict__[self._name]


class SendHandle(Future[SendResult]):
    """A message that was handed over with `Producer.submit`.

    It is a `concurrent.futures.Future`.

    `result()` waits for the `SendResult` and raises what `Producer.send` raises.
    `cancel` has no effect: the message stays under way. Nothing is lost by not asking:
    retries go on without a waiter.
    """

    _condition: Any = _ForWaiters()
    _waiters: Any = _ForWaiters()
    _done_callbacks: Any = _ForWaiters()

    def __init__(self, run: ThreadRun, message: Message) -> None:
        # What `Future.__init__` does, without a condition and lists: they are made for
        # those who wait, which costs a pipeline of sends a third less.
        self._state = _UNDER_WAY
        self._result: SendResult | None = None
        self._exception: BaseException | None = None
        self._context = copy_context()  # observers look for the caller's span in it
        self._run = run
        self._handle: InnerSendHandle | InnerAccumulatedHandle | None = None
        self._seen = self._awaited = False
        self.message = message
        """The message."""

    def _complete(self, result: SendResult | None, error: BaseException | None) -> None:
        with _waiting:
            if not self._awaited:
                self._result, self._exception, self._state = result, error, _FINISHED
                return
        if error is None:
            assert result is not None
            self.set_result(result)
        else:
            self.set_exception(error)

    def done(self) -> bool:
        """Whether the message is finished."""
        return self._state == _FINISHED

    def cancel(self) -> bool:
        """False: the message stays under way."""
        return False

    def running(self) -> bool:
        """Whether it is under way."""
        return not self.done()

    @property
    def message_id(self) -> str:
        """The unique id of the message; waits until it was handed over."""
        if self._handle is None:
            self._run.call_now(int)  # what was posted before is done then
        if self._handle is None:
            self.result()  # raises why it was not taken
            raise AssertionError("a message without a handle has failed")
        return self._handle.message_id

    def result(self, timeout: float | None = None) -> SendResult:
        """The result; waits for it, up to `timeout` seconds (then `TimeoutError`)."""
        self._look()
        if self._state != _FINISHED:
            self._wait(timeout)
        if (result := self._result) is not None:
            return result
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, or None; waits for the end, up to `timeout` seconds."""
        self._look()
        if self._state != _FINISHED:
            self._wait(timeout)
        return super().exception(timeout)

    def wait(self) -> SendResult:
        """As `result` without a limit."""
        return self.result()

    def settled(self) -> None:
        """Wait until the message is finished, however.

        Whoever waits here does not look at the outcome: a failure still counts as seen
        by nobody.
        """
        if self._state != _FINISHED:
            self._wait(None)
        super().exception()

    def _wait(self, timeout: float | None) -> None:
        """Raise an error where nobody would end it, and help if this thread may."""
        self._run.check()
        if timeout is None:
            self._run.help(_Waited(self))

    def outcome(self) -> SendResult:
        """The result of a finished message, or its error raised."""
        return self.result(0)

    def _look(self) -> None:
        """Somebody sees the outcome, so `flush` need not tell of it."""
        self._seen = True
        handle = self._handle
        if handle is not None and handle.done:
            handle.mark(seen=True)

    # --- in trio

    def begin(self, producer: InnerProducer, aimed: Aimed) -> None:
        """Hand the message over. Runs in trio."""
        self._context.run(self._begin, producer, aimed)

    def _begin(self, producer: InnerProducer, aimed: Aimed) -> None:
        try:
            handle = self._hand_over(producer, aimed)
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            self._complete(None, error)
            producer._refused(_Refused(self))
            return
        self._handle = handle
        if handle.done:
            self._finish()
        else:
            self._run.jobs.add(self)
            handle.call_when_done(self._finish)

    def too_late(self, error: ClosedError) -> None:
        """The run has ended, and the message with it."""
        if not self.done():
            self._complete(None, error)

    def _hand_over(
        self, producer: InnerProducer, aimed: Aimed
    ) -> InnerSendHandle | InnerAccumulatedHandle:
        queue, selector, key, timeout = aimed
        return producer.submit(
            self.message, queue=queue, selector=selector, key=key, timeout=timeout
        )

    def _finish(self) -> None:
        handle = self._handle
        assert handle is not None
        self._run.jobs.discard(self)
        try:
            result = handle.outcome()
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            if not self._seen:
                handle.mark(seen=False)
            self._complete(None, error)
        else:
            self._complete(result, None)


class _Refused:
    """A message that was not taken, among the failures of its producer."""

    def __init__(self, future: SendHandle) -> None:
        self._future = future
        self.message = future.message
        self.message_count = len(future.messages) if isinstance(future, BatchHandle) else 1

    @property
    def observed(self) -> bool:
        return self._future._seen

    @property
    def error(self) -> BaseException | None:
        return self._future._exception

    def outcome(self) -> SendResult:
        return self._future.outcome()

    def __repr__(self) -> str:
        return f"<{self.message!r}: {self.error!r}>"


class _Waited:
    """A future that a thread waits for."""

    def __init__(self, future: SendHandle) -> None:
        self._future = future

    @property
    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        self._future.settled()

    def socket_wait(self) -> None:
        """None: others may be under way."""


class BatchHandle(SendHandle):
    """Messages that were handed over with `Producer.submit_batch`.

    A future like any other; `message` is the first of them.
    """

    def __init__(self, run: ThreadRun, messages: Sequence[Message]) -> None:
        super().__init__(run, messages[0])
        self.messages = messages
        """The messages."""

    def _hand_over(self, producer: InnerProducer, aimed: Aimed) -> InnerSendHandle:
        queue, selector, key, timeout = aimed
        return producer.submit_batch(
            self.messages, queue=queue, selector=selector, key=key, timeout=timeout
        )


class AccumulatedHandle(SendHandle):
    """One message among those of a batch, as a future like any other."""


class Sending:
    """A `send` of a thread that waits for it."""

    __slots__ = (
        "_aimed",
        "_context",
        "_finished",
        "_inner",
        "_run",
        "done",
        "error",
        "handle",
        "message",
        "result",
        "waits",
    )

    def __init__(
        self, run: ThreadRun, inner: InnerProducer, message: Message, aimed: Aimed
    ) -> None:
        self._context = copy_context()
        self._run = run
        self._inner = inner
        self._aimed = aimed
        self.message = message
        self.handle: Any = None
        self.result: SendResult | None = None
        self.error: BaseException | None = None
        self.done = False
        self.waits = False
        """Whether the message has to wait before it can be handed over."""
        self._finished = threading.Lock()
        self._finished.acquire()

    def begin(self) -> None:
        """Hand the message over. Runs in trio."""
        self._context.run(self._begin)

    def _begin(self) -> None:
        queue, selector, key, timeout = self._aimed
        try:
            handle = self.handle = self._inner.begin(self.message, queue, selector, key, timeout)
        except BaseException as error:  # noqa: BLE001 - whoever sends is told
            self.error = error
            self._end()
            return
        if handle is None:
            self.waits = True
            self._end()
        elif handle.done:
            self._finish()
        else:
            self._run.jobs.add(self)
            handle.call_when_done(self._finish)

    def too_late(self, error: ClosedError) -> None:
        """The run has ended, and the message with it."""
        if not self.done:
            self.error = error
            self._end()

    def _finish(self) -> None:
        self._run.jobs.discard(self)
        try:
            self.result = self.handle.outcome()
        except BaseException as error:  # noqa: BLE001 - whoever sends is told
            self.error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        self._finished.release()

    def abandon(self) -> None:
        """Give the message up. Runs in trio."""
        self._run.jobs.discard(self)
        if self.handle is not None:
            self.handle.abandon()

    def socket_wait(self) -> SocketWait | None:
        """How whoever gives turns may wait for it at the socket."""
        return None if self.handle is None else self.handle.socket_wait()

    def wait(self) -> None:
        """Wait for the end, in the thread."""
        self._finished.acquire()


def send(run: ThreadRun, inner: InnerProducer, message: Message, aimed: Aimed) -> SendResult:
    """Send a message and wait for it, as its only waiter.

    `KeyboardInterrupt` gives the message up.
    """
    run.check()
    sending = Sending(run, inner, message, aimed)
    try:
        run.make(sending.begin, sending)
    except BaseException:
        run.post(sending.abandon)
        raise
    if sending.waits:
        queue, selector, key, timeout = aimed
        return run.call(
            inner.send, message, queue=queue, selector=selector, key=key, timeout=timeout
        )
    if sending.result is not None:
        return sending.result
    error = sending.error
    assert error is not None
    try:
        raise error
    finally:
        del error, sending


def submit(run: ThreadRun, inner: InnerProducer, message: Message, aimed: Aimed) -> SendHandle:
    """Hand a message over without waiting. Raises what `_check_submit` raises."""
    run.check()
    inner._check_submit(message, *aimed, run.posted)
    handle = SendHandle(run, message)
    run.post(handle.begin, inner, aimed)
    return handle


def submit_batch(
    run: ThreadRun, inner: InnerProducer, messages: Sequence[Message], aimed: Aimed
) -> SendHandle:
    """Hand messages over in one request without waiting.

    Raises what `_check_submit_batch` raises.
    """
    run.check()
    taken = inner._check_submit_batch(messages, *aimed, run.posted)
    handle = BatchHandle(run, taken)
    run.post(handle.begin, inner, aimed)
    return handle
