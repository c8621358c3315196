"""Bugs that users of RocketMQ and Kafka clients have reported, by their reference: each
has a test that fails with that bug, and the table says where.
"""

from __future__ import annotations

import importlib
import sys

import pytest

REPORTED = "consumer.push.test_reported_bugs"
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
        REPORTED,
        "test_hours_of_a_full_cache_end_without_recursion",
    ),
    ("rocketmq#9035", "threads for each consumer", REPORTED, "test_consumers_add_no_threads"),
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
        REPORTED,
        "test_starting_and_closing_periodically_leaves_nothing_behind",
    ),
    (
        "rocketmq-clients#1305",
        "leaks by starting and closing",
        REPORTED,
        "test_starting_and_closing_periodically_leaves_nothing_behind",
    ),
    (
        "rocketmq#9737",
        "leaks by failing connections",
        REPORTED,
        "test_a_long_time_without_a_broker_leaves_nothing_behind",
    ),
    (
        "rocketmq#10906",
        "leaks by many instances",
        REPORTED,
        "test_starting_and_closing_periodically_leaves_nothing_behind",
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
        REPORTED,
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
        REPORTED,
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
        REPORTED,
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
        REPORTED,
        "test_a_lock_is_given_back_only_when_the_offset_is_committed",
    ),
    (
        "rocketmq-client-go#1220",
        "locks kept after a queue has gone",
        REPORTED,
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
        REPORTED,
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
        REPORTED,
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
        "consumer.simple.test_failures",
        "test_a_message_that_cannot_be_buried_is_not_lost",
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
        "consumer.lite_pull.test_queues",
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
    found = loaded or importlib.import_module(module)
    assert callable(getattr(found, test, None)), f"{reference}: {path} has no {test}"
