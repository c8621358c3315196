"""Where messages go: the queues of topics, with their brokers' addresses.

With them are the header fields that all messages of a topic share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, RouteError, WrongTypeError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.producer.queue_selector import QueueIndex, arguments_problem
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.frame_template import CommandTemplate, FrameTemplate

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.brokers import BrokerAddresses
    from rocketmq_sdk.client.routes import RouteCache
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.config import ProducerConfig
    from rocketmq_sdk.producer.fault_strategy import MQFaultStrategy
    from rocketmq_sdk.producer.queue_selector import QueueSelector
    from rocketmq_sdk.protocol.frame_template import Form

_FRESH: Final = -1


class Target:
    """One queue to send to. `address` is that of the broker's master."""

    __slots__ = (
        "address",
        "broker_name",
        "form",
        "half_form",
        "half_template",
        "queue",
        "queue_id_text",
        "template",
    )

    def __init__(self, queue: MessageQueue, address: str) -> None:
        self.queue = queue
        self.broker_name = queue.broker_name
        self.queue_id_text = str(queue.queue_id)
        self.address = address
        self.form: Form | None = None
        """The header of a request to it, once `TopicTargets.form_of` was asked."""
        self.half_form: Form | None = None
        """That of a half message."""
        self.template: CommandTemplate | None = None
        """The requests to it, once `TopicTargets.template_of` was asked."""
        self.half_template: CommandTemplate | None = None
        """Those of half messages."""


# Building the ext fields of a request anew costs more than copying those that all
# messages of the topic share: the keys are there already, in the order in which
# Apache's header has them, and only values are replaced.
def make_template(
    group: str, topic: str, create_topic_key: str, default_topic_queue_nums: int, *, unit_mode: bool
) -> dict[str, str]:
    """The ext fields of SEND_MESSAGE_V2 (310) that all messages of a topic share.

    Follows `SendMessageRequestHeaderV2`.
    """
    return {
        "a": group,
        "b": topic,
        "c": create_topic_key,
        "d": str(default_topic_queue_nums),
        "e": "",
        "f": "0",
        "g": "",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "true" if unit_mode else "false",
        "m": "false",
        "n": "",
    }


def named_queue(queue: MessageQueue, topic: str, named: str) -> MessageQueue:
    """A queue of a topic under its name as users write it.

    Raises `ConfigurationError` for one of another topic.
    """
    if queue.topic == named:
        return queue
    if queue.topic != topic:
        raise ConfigurationError(f"{queue!r} is no queue of topic {named!r}")
    return MessageQueue(named, queue.broker_name, queue.queue_id)


class TopicTargets:
    """The targets of one topic, kept until any route changes.

    Queues have the name of the topic as users write it, `named`.
    """

    __slots__ = (
        "_brokers",
        "_by_queue",
        "_routes",
        "index",
        "named",
        "provisional",
        "queues",
        "several",
        "targets",
        "template",
        "topic",
        "version",
    )

    def __init__(
        self,
        topic: str,
        template: dict[str, str],
        routes: RouteCache,
        brokers: BrokerAddresses,
        named: str,
    ) -> None:
        self.topic = topic
        self.named = named
        self.template = template
        self.index = QueueIndex()
        self.version = _FRESH
        self.provisional = False
        self.several = False
        """Whether more than one broker takes messages."""
        self.queues: list[MessageQueue] = []
        self.targets: list[Target] = []
        self._by_queue: dict[MessageQueue, Target] = {}
        self._routes = routes
        self._brokers = brokers

    def current(self) -> bool:
        """Bring the targets up to date.

        False when there is none yet and the route must be asked for.
        """
        if self.version != self._routes.version:
            self.version = self._routes.version
            info = self._routes.publish_info(self.topic)
            self.provisional = info is not None and info.provisional
            found = (
                []
                if info is None
                else [(queue, self._brokers.address(queue.broker_name)) for queue in info.queues]
            )
            self.targets = [
                Target(self.as_named(queue), address)
                for queue, address in found
                if address is not None
            ]
            self.queues = [target.queue for target in self.targets]
            self._by_queue = {target.queue: target for target in self.targets}
            self.several = len({target.broker_name for target in self.targets}) > 1
        return bool(self.targets)

    def as_named(self, queue: MessageQueue) -> MessageQueue:
        """A queue of the topic under the user's name.

        Raises `ConfigurationError` for one of another topic.
        """
        return named_queue(queue, self.topic, self.named)

    def of_queue(self, queue: MessageQueue) -> Target:
        """The target for one queue, which need not be among those of the route.

        It may be read-only for others, or newer than the route.

        Raises `RouteError` when no route has named its broker.
        """
        target = self._by_queue.get(queue)
        if target is not None:
            return target
        address = self._brokers.address(queue.broker_name)
        if address is None:
            raise RouteError(f"no route has named the broker {queue.broker_name!r} of {queue!r}")
        return Target(queue, address)

    def selected(self, selector: QueueSelector, message: Message, key: object) -> Target:
        """The target that a caller's selector chooses.

        Raises `ConfigurationError` when it returns no queue of the topic, or does not
        take what it is called with.
        """
        try:
            queue = selector(self.queues, message, key)
        except TypeError as error:  # of the call, or from inside of the selector
            if (problem := arguments_problem(selector, self.queues, message, key)) is None:
                raise
            raise WrongTypeError(problem) from error
        target = self._by_queue.get(queue) if isinstance(queue, MessageQueue) else None
        if target is None:
            raise ConfigurationError(
                f"the selector returned {queue!r}, which is none of the {len(self.queues)} queues "
                f"of topic {self.topic!r}"
            )
        return target

    def another(self, strategy: MQFaultStrategy, last_broker: str | None, now: int) -> Target:
        """The target of an attempt by the rules of fault avoidance.

        `last_broker` is that of the failed attempt before.
        """
        queue = strategy.select(
            self.queues, self.index, last_broker=last_broker, retry=last_broker is not None, now=now
        )
        return self._by_queue[queue]

    def form_of(self, target: Target, *, half: bool = False) -> Form:
        """The header of a plain request to a target, for `%` with time, properties and
        opaque; properties as they stand between the quotes of JSON.
        """
        form = target.half_form if half else target.form
        if form is None:
            form = FrameTemplate(self._sample(target, half=half), ("g", "i")).form
            if half:
                target.half_form = form
            else:
                target.form = form
        return form

    def template_of(self, target: Target, *, half: bool = False) -> CommandTemplate:
        """The plain requests to a target, for time and properties, `g` and `i`."""
        template = target.half_template if half else target.template
        if template is None:
            template = CommandTemplate(self._sample(target, half=half))
            if half:
                target.half_template = template
            else:
                target.template = template
        return template

    def _sample(self, target: Target, *, half: bool) -> Command:
        fields = {**self.template, "e": target.queue_id_text, "n": target.broker_name}
        if half:
            fields["f"] = str(SysFlag.TRANSACTION_PREPARED)
        return Command(RequestCode.SEND_MESSAGE_V2, ext_fields=fields)

    def only_broker(self, broker_name: str) -> bool:
        """Whether nobody but this broker has queues of the topic."""
        return all(target.broker_name == broker_name for target in self.targets)


class TopicTable(dict[str, TopicTargets]):
    """The targets of a producer's topics, by the topic's name as users write it.

    A missing topic is added when it is asked for. That raises `ConfigurationError` for
    a topic that nobody can send to, and what `check_open` raises.
    """

    __slots__ = ("_check_open", "_client", "_config", "_group")

    def __init__(
        self, client: Client, config: ProducerConfig, group: str, check_open: Callable[[], object]
    ) -> None:
        super().__init__()
        self._client = client
        self._config = config
        self._group = group
        self._check_open = check_open

    def __missing__(self, topic: str) -> TopicTargets:
        check_send_topic(topic)
        self._check_open()
        client, config = self._client, self._config
        full = client.namespace.wrap(topic)
        template = make_template(
            self._group,
            full,
            config.create_topic_key,
            config.default_topic_queue_nums,
            unit_mode=client.config.unit_mode,
        )
        targets = self[topic] = TopicTargets(
            full, template, client.routes, client.brokers, client.namespace.unwrap(full)
        )
        client.routes.use(full)
        return targets

    def any_topic(self) -> str | None:
        """The full name of some topic, None while there is none."""
        return next((targets.topic for targets in self.values()), None)

    def release(self) -> None:
        """Let the client forget the routes of all topics."""
        for targets in self.values():
            self._client.routes.release(targets.topic)
