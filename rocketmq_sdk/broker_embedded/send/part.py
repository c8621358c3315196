"""Taking messages in: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part
from rocketmq_sdk.broker_embedded.request import (
    WHOLE_FRAME,
    Asked,
    Cost,
    Request,
    Wait,
    Writes,
)
from rocketmq_sdk.broker_embedded.send.half_sends import HalfSends
from rocketmq_sdk.broker_embedded.send.plain_sends import PlainSends
from rocketmq_sdk.broker_embedded.send.reply import ReplyProcessor
from rocketmq_sdk.broker_embedded.send.send_back import SendBackProcessor
from rocketmq_sdk.broker_embedded.send.send_requests import SendProcessor
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketmq_sdk.protocol.shapes.sends import CutSend
from rocketmq_sdk.remoting.housekeeper import housekeeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.registration.service import RegistrationService
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.broker_embedded.transactions.part import TransactionPart
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Reply


class SendPart(Part):
    """Sends of producers, messages that consumers send back, replies to requests."""

    __slots__ = ("_back", "_cluster", "_core", "_halves", "_plain", "_replies", "_sends")

    def __init__(
        self,
        core: Core,
        intake: Intake,
        transactions: TransactionPart,
        members: MemberPart,
        registration: RegistrationService,
    ) -> None:
        self._core = core
        self._sends = SendProcessor(core, intake, transactions, members, registration)
        self._plain = PlainSends(core, self._sends)
        self._halves = HalfSends(core, self._sends, transactions.table)
        self._replies = ReplyProcessor(core, intake, transactions, members, registration)
        self._back = SendBackProcessor(core, intake)
        self._cluster = core.config.current.broker_cluster_name

    async def load(self) -> None:
        """Let some of the work of sends be done once their answers have left."""
        keeper = housekeeper()
        self._core.store.put_off(answered=keeper.after_answer, idle=keeper.behind_chunk)

    def requests(self) -> Iterable[Request]:
        """Three ways to send, two to reply, and sending back."""
        return (*self._of_sends(), *self._of_replies(), self._of_sending_back())

    def _of_sends(self) -> Iterable[Request]:
        sends, old, new = self._sends, SendMessageRequestHeader, SendMessageRequestHeaderV2
        together = self._serve_together
        return (
            Request(
                code,
                serve,
                needs.sending(field),
                header,
                raw=True,
                together=together if code == RequestCode.SEND_MESSAGE_V2 else None,
                body_limit=WHOLE_FRAME,
                asked=Asked.MASTER,
                wait=Wait.SEND,
                cost=Cost.BODY,
                writes=Writes.LOG | Writes.TOPICS,
            )
            for code, serve, field, header in (
                (RequestCode.SEND_MESSAGE, sends.send, "topic", old),
                (RequestCode.SEND_MESSAGE_V2, sends.send_v2, "b", new),
                (RequestCode.SEND_BATCH_MESSAGE, sends.send_v2, "b", new),
            )
        )

    def _serve_together(self, channel: Channel, requests: Sequence[Command]) -> Sequence[Reply]:
        """Store the first of what arrived: plain messages, or half messages."""
        served = self._plain.serve(channel, requests) or self._halves.serve(channel, requests)
        if type(first := requests[0]) is CutSend:
            first.form.served(len(served))
        return served

    def _of_replies(self) -> Iterable[Request]:
        replies, old, new = self._replies, SendMessageRequestHeader, SendMessageRequestHeaderV2
        return (
            Request(
                code,
                serve,
                needs.replying(field, self._cluster),
                header,
                raw=True,
                body_limit=WHOLE_FRAME,
                wait=Wait.UNLIMITED,
                cost=Cost.BODY,
                writes=Writes.LOG | Writes.TOPICS,
            )
            for code, serve, field, header in (
                (RequestCode.SEND_REPLY_MESSAGE, replies.reply, "topic", old),
                (RequestCode.SEND_REPLY_MESSAGE_V2, replies.reply_v2, "b", new),
            )
        )

    def _of_sending_back(self) -> Request:
        return Request(
            RequestCode.CONSUMER_SEND_MSG_BACK,
            self._back.send_back,
            needs.topic_and_group(Action.SUB, "group", "originTopic"),
            ConsumerSendMsgBackRequestHeader,
            connection=True,
            asked=Asked.MASTER,
            wait=Wait.SEND,
            cost=Cost.MESSAGES,
            writes=Writes.LOG | Writes.TOPICS,
        )

    def topic_deleted(self, topic: str) -> None:
        """The next message to the topic is checked again."""
        self._sends.forget_topic(topic)
        self._replies.forget_topic(topic)
