"""Bugs that users of RocketMQ and Kafka clients have reported, by their reference: each
has a test that fails with that bug.

Most tests are beside what they are about, and the table names them; those that belong
nowhere else are here.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.push.member import PushMember
from rocketmq_sdk.protocol.bodies.members import UnlockBatchRequestBody
from rocketmq_sdk.protocol.command import Command
from support.consuming import Collector, Switch, committed, open_sender, refuse
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.message import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel

HERE = "consumer.test_known_bugs"
BUGS = [
    # reference, what went wrong, module, test
    (
        "rocketmq-clients#1168",
        "starts and never receives",
        "consumer.push.test_consumer",
        "test_a_topic_that_is_created_after_the_start",
    ),
    (
        "rocketmq-clients#1189",
        "the start hangs",
        "consumer.push.test_life",
        "test_a_start_may_be_cancelled",
    ),
    (
        "rocketmq-clients#1331",
        "recursion under back-pressure",
        HERE,
        "test_hours_of_a_full_cache_end_without_recursion",
    ),
    ("rocketmq#9035", "threads for each consumer", HERE, "test_consumers_add_no_threads"),
    (
        "rocketmq-client-go#947",
        "consumption blocked for good",
        "consumer.push.test_consumer",
        "test_pulling_stops_above_the_threshold_and_goes_on_below",
    ),
    (
        "rocketmq#9170",
        "stops receiving after a restart",
        "consumer.group.test_members",
        "test_a_broker_that_is_restarted",
    ),
    (
        "rocketmq-clients#1137",
        "the broker forgets settings at its restart",
        "consumer.group.test_members",
        "test_a_broker_that_is_restarted",
    ),
    (
        "rocketmq-clients#818",
        "no start while one server is down",
        "consumer.push.test_life",
        "test_a_start_without_any_name_server_goes_on_trying",
    ),
    (
        "rocketmq-client-go#1071",
        "queues of a restarted broker stay unread",
        "consumer.group.test_members",
        "test_a_broker_that_is_restarted",
    ),
    (
        "rocketmq-client-go#1085",
        "queues of a restarted broker stay unread",
        "consumer.group.test_members",
        "test_a_broker_that_is_restarted",
    ),
    (
        "rocketmq-client-go#657",
        "a broker's new address is never noticed",
        "consumer.test_address_change",
        "test_a_broker_that_comes_back_at_another_address_is_found",
    ),
    (
        "rocketmq-client-go#497",
        "a second consumer reuses a closed connection",
        "consumer.push.test_consumer",
        "test_a_group_goes_on_where_it_ended",
    ),
    (
        "rocketmq-client-go#611",
        "a second consumer reuses a closed connection",
        "consumer.push.test_consumer",
        "test_a_group_goes_on_where_it_ended",
    ),
    (
        "rocketmq-client-go#285",
        "leaks by starting and closing",
        HERE,
        "test_starting_and_closing_again_and_again_leaves_nothing_behind",
    ),
    (
        "rocketmq-clients#1305",
        "leaks by starting and closing",
        HERE,
        "test_starting_and_closing_again_and_again_leaves_nothing_behind",
    ),
    (
        "rocketmq#9737",
        "leaks by failing connections",
        HERE,
        "test_a_long_time_without_a_broker_leaves_nothing_behind",
    ),
    (
        "rocketmq#10906",
        "leaks by many instances",
        HERE,
        "test_starting_and_closing_again_and_again_leaves_nothing_behind",
    ),
    (
        "aiokafka#1154",
        "stuck, and nobody can ask",
        "consumer.test_health",
        "test_a_broker_that_is_away_is_the_reason_and_back_it_is_not",
    ),
    (
        "kafka-python#3108",
        "closing stalls without brokers",
        "consumer.push.test_life",
        "test_leaving_is_bounded_when_the_connection_is_gone",
    ),
    (
        "kafka-python#2086",
        "closing stalls while no message comes",
        "consumer.push.test_life",
        "test_leaving_is_bounded_when_the_broker_does_not_answer",
    ),
    (
        "nats.py#234",
        "dead after a reconnection",
        "consumer.group.test_members",
        "test_a_connection_that_is_cut_for_a_while",
    ),
    (
        "rocketmq-client-go#976",
        "the offset passes a message that was not sent back",
        "consumer.push.test_retry",
        "test_a_message_that_no_broker_takes_back_is_consumed_again_here_and_holds_the_offset",
    ),
    (
        "rocketmq-client-go#797",
        "the same",
        "consumer.push.test_retry",
        "test_a_message_that_could_not_be_sent_back_is_delivered_again_after_a_restart",
    ),
    (
        "rocketmq-client-go#183",
        "wrong offsets with batches below the pull size",
        HERE,
        "test_batches_smaller_than_pulls_lose_and_double_nothing",
    ),
    (
        "rocketmq-client-go#571",
        "no correction behind expired messages",
        "consumer.push.test_consumer",
        "test_an_offset_that_the_broker_refuses_is_corrected_at_once",
    ),
    (
        "rocketmq#7182",
        "Ctrl-C commits nothing and doubles messages",
        HERE,
        "test_ctrl_c_in_a_listener_commits_what_is_done_and_sends_no_copies",
    ),
    (
        "alibaba/rocketmq#367",
        "offsets saved before the drain",
        "consumer.push.test_life",
        "test_leaving_waits_for_running_listeners_and_commits_what_they_did",
    ),
    (
        "rocketmq#2181",
        "an unreachable broker sets the offset to 0",
        HERE,
        "test_a_queue_whose_offset_is_not_known_is_not_taken",
    ),
    (
        "rocketmq#5465",
        "not locked at the start",
        "consumer.push.test_orderly",
        "test_the_lock_of_a_queue_is_taken_before_it_is_owned_renewed_and_given_back",
    ),
    (
        "rocketmq#2632",
        "not locked at the start",
        "consumer.push.test_orderly",
        "test_the_lock_of_a_queue_is_taken_before_it_is_owned_renewed_and_given_back",
    ),
    (
        "alibaba/rocketmq#459",
        "an ordered queue never resumes",
        "consumer.push.test_dynamic",
        "test_nothing_is_pulled_while_suspended_and_all_of_it_later_also_after_hours",
    ),
    (
        "rocketmq#4086",
        "the lock is freed before the offset is committed",
        HERE,
        "test_a_lock_is_given_back_only_when_the_offset_is_committed",
    ),
    (
        "rocketmq-client-go#1220",
        "locks kept after a queue has gone",
        HERE,
        "test_a_lock_is_given_back_only_when_the_offset_is_committed",
    ),
    (
        "rocketmq-client-go#313",
        "rebalances at the same time",
        "consumer.group.test_members",
        "test_members_come_and_go_under_load_and_nothing_is_lost",
    ),
    (
        "rocketmq-client-go#574",
        "an endless loop behind a rebalance",
        HERE,
        "test_an_idle_group_asks_little",
    ),
    (
        "rocketmq-client-go#1056",
        "added queues are ignored",
        "consumer.push.test_dynamic",
        "test_queues_that_are_added_to_a_topic_are_picked_up",
    ),
    (
        "rocketmq-client-cpp#293",
        "stuck in a rebalance",
        "consumer.group.test_members",
        "test_members_come_and_go_under_load_and_nothing_is_lost",
    ),
    (
        "rocketmq-client-go#558",
        "a reset is ignored",
        "consumer.push.test_administrators",
        "test_a_reset_is_obeyed_at_once",
    ),
    (
        "rocketmq-client-go#605",
        "a reset is ignored",
        "consumer.push.test_administrators",
        "test_a_reset_is_obeyed_at_once",
    ),
    (
        "rocketmq-client-go#956",
        "a reset takes minutes",
        "consumer.push.test_administrators",
        "test_a_reset_is_obeyed_at_once",
    ),
    (
        "rocketmq-client-cpp#481",
        "a reset takes minutes",
        "consumer.push.test_administrators",
        "test_a_reset_is_obeyed_at_once",
    ),
    (
        "librdkafka#2933",
        "a commit during a rebalance stalls",
        HERE,
        "test_commits_that_are_not_answered_hold_up_no_rebalance",
    ),
    # Simple and lite pull consumers
    (
        "rocketmq#9170",
        "stops receiving after a restart",
        "consumer.test_bad_days",
        "test_consumption_goes_on_behind_a_restart_of_the_broker",
    ),
    (
        "rocketmq-clients#1137",
        "receives fail for minutes",
        "consumer.test_bad_days",
        "test_consumption_goes_on_behind_a_restart_of_the_broker",
    ),
    (
        "rocketmq-clients#1168",
        "starts and never receives",
        "consumer.simple.test_consumer",
        "test_an_unknown_topic_is_received_once_it_exists",
    ),
    (
        "nats.py#234",
        "dead after a reconnection",
        "consumer.simple.test_consumer",
        "test_a_broken_connection_raises_and_iterating_goes_on",
    ),
    (
        "nats.py#234",
        "dead after a reconnection",
        "consumer.lite_pull.test_consumer",
        "test_consumption_goes_on_behind_a_broken_connection",
    ),
    (
        "kafka-python#2086",
        "closing stalls while no message comes",
        "consumer.simple.test_consumer",
        "test_leaving_ends_receives_that_wait",
    ),
    (
        "kafka-python#2086",
        "closing stalls while no message comes",
        "consumer.lite_pull.test_consumer",
        "test_a_poll_that_waits_ends_when_the_block_does",
    ),
    (
        "rocketmq-clients#1305",
        "leaks by starting and closing",
        "consumer.test_bad_days",
        "test_cancelled_at_any_moment_a_consumer_leaves_nothing_behind",
    ),
    (
        "rocketmq-client-go#976",
        "lost when it cannot be put aside",
        "consumer.simple.test_consumer",
        "test_a_message_that_can_not_be_buried_is_not_lost",
    ),
    (
        "rocketmq-client-go#183",
        "wrong offsets below the pull size",
        "consumer.lite_pull.test_consumer",
        "test_what_a_poll_gave_is_committed_when_the_next_one_has_begun",
    ),
    (
        "rocketmq-client-go#571",
        "no correction behind expired messages",
        "consumer.lite_pull.test_consumer",
        "test_an_offset_that_the_queue_does_not_reach_is_corrected",
    ),
    (
        "rocketmq#7182",
        "Ctrl-C commits nothing and doubles messages",
        "consumer.lite_pull.test_consumer",
        "test_a_block_that_fails_commits_only_what_was_finished",
    ),
    (
        "rocketmq-connect#546",
        "what is in memory is lost at a restart",
        "consumer.lite_pull.test_consumer",
        "test_a_cancelled_poll_loses_nothing",
    ),
    (
        "rocketmq-connect#546",
        "what is in memory is lost at a restart",
        "consumer.simple.test_consumer",
        "test_a_cancelled_receive_loses_nothing",
    ),
    (
        "rocketmq-clients#708",
        "order blocked behind a lost answer",
        "consumer.simple.test_fifo",
        "test_messages_of_a_lost_answer_come_at_once",
    ),
    (
        "rocketmq-client-go#313",
        "rebalances at the same time",
        "consumer.lite_pull.test_consumer",
        "test_two_members_share_the_queues_and_take_over",
    ),
    (
        "rocketmq-client-go#956",
        "a reset takes minutes",
        "consumer.lite_pull.test_consumer",
        "test_an_administrator_moves_the_group",
    ),
]


@pytest.mark.parametrize(
    ("reference", "module", "test"),
    [(reference, module, test) for reference, _what, module, test in BUGS],
)
def test_each_reported_bug_has_its_test(reference: str, module: str, test: str) -> None:
    path = module.replace(".", "/") + ".py"
    loaded = next(
        (
            found
            for found in sys.modules.values()
            if str(getattr(found, "__file__", "")).endswith(f"tests/{path}")
        ),
        None,
    )
    found = loaded or importlib.import_module(
        module.rpartition(".")[2] if module == HERE else module
    )
    assert callable(getattr(found, test, None)), f"{reference}: {path} has no {test}"


def billing(broker: EmbeddedBroker | Switch, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
    )  # type: ignore[arg-type]  # any


def tasks() -> int:
    """How many tasks of this run there are."""
    todo, count = [trio.lowlevel.current_root_task()], 0
    while todo:
        task = todo.pop()
        if task is not None:
            count += 1
            todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return count


async def test_hours_of_a_full_cache_end_without_recursion(autojump_clock: MockClock) -> None:
    done = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal done
        await trio.sleep(20)
        done += 1

    limit = sys.getrecursionlimit()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(500)), queue=0)
        async with billing(
            broker, listener, concurrency=2, pull_threshold_for_queue=4, pull_batch_size=2
        ):
            await until(lambda: done >= 450, 5 * 3600, step=60)
    assert sys.getrecursionlimit() == limit


async def test_consumers_add_no_threads(autojump_clock: MockClock) -> None:
    before = threading.active_count()
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders", 1)
        stop = trio.Event()

        async def consume(number: int) -> None:
            async with PushConsumer(
                f"group{number}",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=Collector(),
            ):
                await stop.wait()

        for number in range(50):
            nursery.start_soon(consume, number)
        await until(lambda: len(broker.context.consumers.client_ids("group49")) == 1)
        await trio.sleep(60)
        assert threading.active_count() <= before + 2
        stop.set()


async def test_starting_and_closing_again_and_again_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)

        async def once() -> None:
            collector = Collector()
            await sender.send("orders", "a", queues=2)
            async with billing(broker, collector, orderly=True):
                await until(lambda: collector.messages)

        for _ in range(3):
            await once()
        await trio.sleep(10)
        before = tasks()
        for _ in range(20):
            await once()
        await trio.sleep(10)
        assert tasks() <= before
        gc.collect()
        assert sum(isinstance(each, PushMember) for each in gc.get_objects()) <= 2
        assert not broker.context.consumers.client_ids("billing")


async def test_a_long_time_without_a_broker_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        switch = Switch(broker)
        async with billing(switch, collector):
            switch.cut()
            await trio.sleep(120)
            before = tasks()
            await trio.sleep(1200)
            assert tasks() <= before + 3
            switch.connect(broker)
            await sender.send("orders", "a", queues=2)
            await until(lambda: collector.bodies == ["a"], 60)


async def test_batches_smaller_than_pulls_lose_and_double_nothing(
    autojump_clock: MockClock,
) -> None:
    counts: Counter[str] = Counter()

    async def listener(messages: list[ReceivedMessage]) -> None:
        await trio.sleep(0.1)
        for message in messages:
            counts[message.body.decode()] += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(200)), queue=0)
        for _ in range(4):
            async with billing(broker, listener, batch=3, pull_batch_size=10, concurrency=2):
                await trio.sleep(2)
        async with billing(broker, listener, batch=3, pull_batch_size=10):
            await until(lambda: len(counts) == 200)
        assert committed(broker, "billing", "orders", 1) == [200]
    assert set(counts.values()) == {1}


async def test_ctrl_c_in_a_listener_commits_what_is_done_and_sends_no_copies(
    autojump_clock: MockClock,
) -> None:
    async def listener(message: ReceivedMessage) -> None:
        if message.body == b"5":
            raise KeyboardInterrupt

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        sent_back = Counter[int]()
        served = broker.handler.handlers[RequestCode.CONSUMER_SEND_MSG_BACK]

        def count(channel: Channel, command: Command) -> object:
            sent_back[command.code] += 1
            return served(channel, command)

        broker.handler.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = count  # type: ignore[assignment]  # as the served one
        await sender.send("orders", *map(str, range(10)), queue=0)
        ended = False
        try:
            async with billing(broker, listener, concurrency=1):
                await trio.sleep_forever()
        except* KeyboardInterrupt:
            ended = True
        assert ended
        await trio.sleep(1)
        assert committed(broker, "billing", "orders", 1) == [5]
        assert not sent_back


async def test_a_queue_whose_offset_is_not_known_is_not_taken(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10)), queue=0)
        async with billing(broker, collector):
            await until(lambda: len(collector.messages) == 10)
        served = broker.handler.handlers[RequestCode.QUERY_CONSUMER_OFFSET]
        refuse(broker, RequestCode.QUERY_CONSUMER_OFFSET)
        async with billing(broker, collector) as consumer:
            await trio.sleep(60)
            assert not [queue for queue in consumer.statistics().queues if queue.topic == "orders"]
            broker.handler.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = served
            await sender.send("orders", "new", queue=0)
            await until(lambda: len(collector.messages) == 11)
    assert collector.bodies[10:] == ["new"]


async def test_a_lock_is_given_back_only_when_the_offset_is_committed(
    autojump_clock: MockClock,
) -> None:
    order: list[str] = []
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ):
            served = broker.handler.handlers[code]

            def watch(channel: Channel, command: Command, served: object = served) -> object:
                if command.code == RequestCode.UNLOCK_BATCH_MQ:
                    order.extend(
                        f"unlock {queue.topic}"
                        for queue in UnlockBatchRequestBody.decode(command.body).mq_set
                    )
                else:
                    order.append(
                        f"{command.ext_fields['topic']} {command.ext_fields['commitOffset']}"
                    )
                return served(channel, command)  # type: ignore[operator]  # a handler

            broker.handler.handlers[code] = watch  # type: ignore[assignment]  # as the served one
        await sender.send("orders", "a", "b", queue=0)
        async with billing(broker, collector, orderly=True):
            await until(lambda: len(collector.messages) == 2)
            order.clear()
    assert [step for step in order if "RETRY" not in step][-2:] == ["orders 2", "unlock orders"]


async def test_an_idle_group_asks_little(autojump_clock: MockClock) -> None:
    asked: Counter[int] = Counter()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        for code, served in list(broker.handler.handlers.items()):

            def watch(channel: Channel, command: Command, served: object = served) -> object:
                asked[command.code] += 1
                return served(channel, command)  # type: ignore[operator]  # a handler

            broker.handler.handlers[code] = watch  # type: ignore[assignment]  # as the served one
        async with billing(broker, Collector()), billing(broker, Collector(), orderly=False):
            await trio.sleep(120)
            asked.clear()
            await trio.sleep(3600)
    assert asked[RequestCode.GET_CONSUMER_LIST_BY_GROUP] <= 2 * 3 * 3600 / 20
    assert asked[RequestCode.HEART_BEAT] <= 2 * (3600 / 30 + 1)
    assert asked[RequestCode.PULL_MESSAGE] <= 5 * (3600 / 15 + 2)
    assert sum(asked.values()) < 6000


async def test_commits_that_are_not_answered_hold_up_no_rebalance(
    autojump_clock: MockClock,
) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)

        def silent(_channel: Channel, _command: Command) -> object:
            async def never() -> Command:
                await trio.sleep(4)
                return Command.response()

            return never

        broker.handler.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = silent  # type: ignore[assignment]  # a broker that is slow at commits
        async with billing(broker, first) as one, billing(broker, second) as two:
            await until(
                lambda: len(one.statistics().queues) + len(two.statistics().queues) == 5, 30
            )
            await sender.send("orders", *map(str, range(100)))
            await until(lambda: {*first.bodies, *second.bodies} == set(map(str, range(100))))
            assert first.bodies
            assert second.bodies
