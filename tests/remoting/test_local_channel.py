"""What is special to channels inside one process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import ConnectError, LocalProtocolError, RocketMQError, WrongRunError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.protocol.frame_template import CommandTemplate
from rocketmq_sdk.remoting.channel import ChannelLimits, PendingCall
from rocketmq_sdk.remoting.local import LocalChannel, open_local_channel
from rocketmq_sdk.remoting.server import RemotingServer

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel, TemplateRequest


def echo(_channel, command: Command) -> Command:
    return Command.response(0, body=command.body)


async def test_an_answer_is_there_at_once():
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(echo, echo, nursery)
        done = []
        call = channel.submit(Command(10, body=b"x"), 3, done.append)
        assert call.done
        assert done == [call]
        assert (await call.wait()).body == b"x"
        await channel.aclose()


async def test_a_shared_answer_is_not_shared():
    shared = Command.response(0)

    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(lambda channel, command: shared, echo, nursery)
        first, second = await channel.call(Command(10), 3), await channel.call(Command(10), 3)
        first.ext_fields["mine"] = "1"
        assert first.opaque != second.opaque
        assert second.ext_fields == shared.ext_fields == {}
        await channel.aclose()


@pytest.mark.parametrize("through_codec", [False, True])
async def test_a_request_from_a_template_has_its_answer_at_once(through_codec: bool):
    held: list[tuple[Channel, Command]] = []

    def serve(channel: Channel, command: Command) -> Command | None:
        if command.ext_fields["n"] == "later":
            return held.append((channel, command))
        fields = {"number": 1} if command.ext_fields["n"] == "odd" else {"text": "\ud800"}
        return Command(0, flag=1, ext_fields=fields, body=command.body)  # type: ignore[arg-type]

    def nested(_call: PendingCall) -> None:
        done.append(channel.submit_template(one, 3, done.append))

    done: list[PendingCall | Command] = []
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(serve, echo, nursery, through_codec=through_codec)
        one, odd, large, later = requests("ж", "odd", "2" * 70_000, "later")
        answers = [channel.submit_template(request, 3, done.append) for request in (one, odd)]
        if through_codec:
            assert done == answers
            answers = [answer.response for answer in done if isinstance(answer, PendingCall)]
            done.clear()
        assert not done
        assert all(isinstance(answer, Command) for answer in answers)
        assert answers[0].ext_fields == {"text": "?"}  # type: ignore[union-attr]
        assert through_codec or "no text" in str(answers[1].remark)  # type: ignore[union-attr]
        for request in (large, later):
            call = channel.submit_template(request, 3, done.append)
            if request is later:
                assert not done.pop().error  # type: ignore[union-attr]
                channel_of, command = held.pop()
                channel_of.respond(command, Command.response(0, body=b"late"))
            assert isinstance(call, PendingCall)
            await call.wait()
        assert done.pop() is call
        channel.submit(Command(10, ext_fields={"n": "x"}), 3, nested)
        inner = done[-1]
        assert isinstance(inner, PendingCall)
        assert not inner.done  # so that a chain of requests cannot grow the stack
        await inner.wait()
        await channel.aclose()
        with pytest.raises(ConnectError):
            channel.submit_template(one, 3, done.append)


async def test_fields_that_are_no_text_are_refused():
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(echo, echo, nursery)
        with pytest.raises(LocalProtocolError, match="no text"):
            channel.submit(Command(10, ext_fields={"number": 1}), 3)  # type: ignore[dict-item]
        await channel.aclose()


async def test_the_server_is_told_of_local_channels():
    told: list[tuple[str, object]] = []
    server = RemotingServer(
        echo,
        on_open=lambda channel: told.append(("open", channel)),
        on_close=lambda channel: told.append(("close", channel)),
    )
    async with trio.open_nursery() as nursery:
        channel = await server.local(echo, nursery, address="broker:1")
        assert channel.remote_address == "broker:1"
        assert list(server.channels.values()) == [channel.peer]
        assert channel.peer.remote_host_packed == bytes([127, 0, 0, 1, 0, 0, 0, 0])
        await server.aclose()
        assert channel.closed
    assert told == [("open", channel.peer), ("close", channel.peer)]
    assert not server.channels


async def test_the_end_of_the_client_nursery_closes_both_ends():
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(lambda channel, command: None, echo, nursery)
        call = channel.submit(Command(10), 30)
        nursery.cancel_scope.cancel()
    assert channel.closed
    assert channel.peer.closed
    assert call.error is not None
    assert call.error.outcome_unknown


async def test_use_from_elsewhere_names_the_remedy():
    server = RemotingServer(echo)
    errors: list[RocketMQError] = []

    async def elsewhere() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(WrongRunError, match="listen") as caught:
                await server.local(echo, nursery)
            errors.append(caught.value)
            with pytest.raises(WrongRunError) as caught:
                channel.submit(Command(10), 3)
            errors.append(caught.value)

    def outside() -> None:
        with pytest.raises(WrongRunError) as caught:
            channel.submit(Command(10), 3)
        errors.append(caught.value)
        trio.run(elsewhere)

    async with trio.open_nursery() as nursery:
        channel = await server.local(echo, nursery)
        thread = threading.Thread(target=outside)
        thread.start()
        while thread.is_alive():
            await trio.sleep(0.01)
        thread.join()
        await channel.aclose()
    assert len(errors) == 3
    assert all(isinstance(error, RuntimeError) for error in errors)


test_use_from_elsewhere_names_the_remedy = pytest.mark.real_time(
    test_use_from_elsewhere_names_the_remedy
)


async def test_a_request_while_the_tasks_of_the_channel_are_cancelled_finds_it_closed() -> None:
    def later(_channel: Channel, _command: Command) -> object:
        async def answer() -> Command:
            return Command.response()

        return answer

    def nothing(_channel: Channel, _command: Command) -> None:
        """The client is asked nothing."""

    for _ in range(50):  # the order of tasks is random
        async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
            # A handler that answers later.
            channel = await open_local_channel(later, nothing, nursery)  # type: ignore[arg-type]

            async def ask(channel: LocalChannel = channel) -> None:
                while True:
                    try:
                        channel.submit(Command.request(1), 1)
                    except ConnectError:
                        return
                    await trio.lowlevel.cancel_shielded_checkpoint()

            outer.start_soon(ask)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


class Several:
    """A server that takes requests together, up to one that says "alone"."""

    def __init__(self) -> None:
        self.log: list[object] = []
        self.error: RocketMQError | None = None

    def __call__(self, _channel, command: Command) -> Command:
        self.log.append(command.ext_fields["n"])
        return Command.response(0, remark=command.ext_fields["n"])

    def together(self, code: int):
        return self.serve if code == 10 else None

    def serve(self, channel, commands) -> list[bytes | Command | None]:
        texts = [command.ext_fields["n"] for command in commands]
        count = texts.index("alone") if "alone" in texts else len(texts)
        if "fault" in texts:
            raise ValueError("no use")
        self.log.append(texts[:count])
        replies: list[bytes | Command | None] = []
        for command in commands[:count]:
            assert not command.ext_fields["n"].count("\ud800")
            answer = Command.response(0, remark=command.ext_fields["n"], body=command.body)
            answer.opaque = command.opaque
            command.ext_fields["n"] = "mine"
            replies.append(answer if len(replies) % 2 else encode_frame(answer))
        return replies

    def begin(self) -> None:
        self.log.append("begin")

    def end(self) -> None:
        self.log.append("end")
        if self.error is not None:
            raise self.error


def requests(*texts: str, code: int = 10) -> list[TemplateRequest]:
    template = CommandTemplate(Command.request(code))
    return [(template, {"n": text}, text.encode("utf-8", "replace")) for text in texts]


def told(answers) -> list[str | None]:
    return [answer.remark for answer in answers]


async def test_requests_are_exchanged_for_answers_at_once() -> None:
    server = Several()
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(server, echo, nursery, turn=server)
        many = [str(number) for number in range(150)]
        answers = channel.exchange(requests(*many))
        assert told(answers) == many
        assert [answer.body.decode() for answer in answers] == many
        assert server.log == ["begin", many[:64], many[64:128], many[128:], "end"]
        assert told(channel.exchange(requests("0", "ж", "a\ud800"), 1)) == ["ж", "a?"]
        assert channel.statistics().in_flight == channel.peer.unsent_bytes() == 0
        await channel.aclose()


async def test_what_the_server_wants_to_see_alone_is_left() -> None:
    server = Several()
    limits = ChannelLimits(max_frame=64 * 1024)
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(server, echo, nursery, limits=limits, turn=server)
        assert channel.exchange(requests("one")) == []
        assert channel.exchange(requests("1", "2"), 1) == []
        assert channel.exchange(requests("1", "2", code=11)) == []
        assert server.log == []
        # Bodies, and then texts, that may not fit into a frame.
        assert channel.exchange(requests("1", "2")) == []
        await channel.aclose()
        channel = await open_local_channel(server, echo, nursery, turn=server)
        assert told(channel.exchange(requests("1", "2" * 70_000, "3"))) == ["1"]
        assert channel.exchange(requests("alone", "1")) == []
        assert channel.exchange(requests("1", "2")) == []  # not tried at once
        assert told(channel.exchange(requests("1", "2", "alone", "3"))) == ["1", "2"]
        assert told(channel.exchange(requests("4", "5", "6"))) == ["4", "5", "6"]
        await channel.aclose()
        assert channel.exchange(requests("9", "10")) == []
        coded = await open_local_channel(server, echo, nursery, through_codec=True)
        assert coded.exchange(requests("1", "2")) == []
        await coded.aclose()


async def test_errors_of_what_was_served_together_reach_each_request() -> None:
    server = Several()
    async with trio.open_nursery() as nursery:
        channel = await open_local_channel(server, echo, nursery, turn=server)
        for answer in channel.exchange(requests("1", "fault")):
            assert "no use" in str(answer.remark)
        server.error = LocalProtocolError("it did not last")
        answers = channel.exchange(requests("1", "2", "3"))
        assert [(answer.code, answer.remark) for answer in answers] == [(1, "it did not last")] * 3
        await channel.aclose()
