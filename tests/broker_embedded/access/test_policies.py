"""Decisions about policies, as `AclAuthorizationHandler` of Apache RocketMQ 5.4.0 makes
them, and what is accepted as a policy.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.access.policies import (
    Acl,
    Decision,
    Pattern,
    PolicyType,
    Resource,
    in_range,
)
from rocketmq_sdk.broker_embedded.needs import Action, Need, ResourceType
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from support.access import policy

ALLOW, DENY = Decision.ALLOW, Decision.DENY


def acl(*entries: tuple[str, str, str], default: tuple[tuple[str, str, str], ...] = ()) -> Acl:
    policies = [policy(*entries)] if entries else []
    if default:
        policies.append(policy(*default, kind="Default"))
    return Acl.from_info("User:u", AclInfo(None, tuple(policies)))


def topic(name: str, actions: Action = Action.PUB) -> Need:
    return Need(ResourceType.TOPIC, name, actions)


@pytest.mark.parametrize(
    ("entries", "need", "decision"),
    [
        ([("Topic:a", "Pub", "Allow")], topic("a"), ALLOW),
        ([("Topic:a", "Pub", "Allow")], topic("ab"), None),
        ([("Topic:a", "Sub", "Allow")], topic("a"), None),
        ([("Topic:a", "Sub", "Allow")], topic("a", Action.PUB | Action.SUB), ALLOW),
        ([("Topic:a", "All", "Allow")], topic("a", Action.DELETE), ALLOW),
        ([("Group:a", "All", "Allow")], topic("a"), None),
        ([("Topic:*", "Pub", "Allow")], topic("a"), ALLOW),
        ([("*", "Pub", "Allow")], topic("a"), ALLOW),
        ([("Topic:ab*", "Pub", "Allow")], topic("abc"), ALLOW),
        ([("Topic:ab*", "Pub", "Allow")], topic("a"), None),
        # The more specific entry decides, wherever it stands.
        ([("*", "Pub", "Allow"), ("Topic:*", "Pub", "Deny")], topic("a"), DENY),
        ([("Topic:*", "Pub", "Deny"), ("Topic:a*", "Pub", "Allow")], topic("ab"), ALLOW),
        ([("Topic:a*", "Pub", "Allow"), ("Topic:ab*", "Pub", "Deny")], topic("abc"), DENY),
        ([("Topic:ab*", "Pub", "Deny"), ("Topic:abc", "Pub", "Allow")], topic("abc"), ALLOW),
        # An entry about other actions does not count.
        ([("Topic:abc", "Sub", "Deny"), ("Topic:ab*", "Pub", "Allow")], topic("abc"), ALLOW),
        # Deny wins among those that are as specific.
        ([("Any:x", "Pub", "Allow"), ("Any:y", "Pub", "Deny")], topic("a"), DENY),
    ],
)
def test_the_most_specific_entry_decides(
    entries: list[tuple[str, str, str]], need: Need, decision: Decision | None
) -> None:
    assert acl(*entries).decide(need, "10.0.0.1") is decision
    assert acl(*reversed(entries)).decide(need, "10.0.0.1") is decision


def test_default_policies_count_where_no_custom_one_matches() -> None:
    both = acl(("Topic:a", "Pub", "Deny"), default=(("*", "Pub,Sub", "Allow"),))
    assert both.decide(topic("a"), "") is DENY
    assert both.decide(topic("a", Action.SUB), "") is ALLOW
    assert both.decide(topic("b"), "") is ALLOW


@pytest.mark.parametrize(
    ("address", "ranged", "inside"),
    [
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.4", "10.1.2.3", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.99/24", True),
        ("10.1.2.3", "0.0.0.0/0", True),
        ("::ffff:10.1.2.3", "10.0.0.0/8", True),
        ("fe80::1", "fe80::/10", True),
        ("[fe80::1]", "fe80::1/128", True),
        ("10.1.2.3", "fe80::/10", False),
        ("unknown", "0.0.0.0/0", False),
    ],
)
def test_addresses(address: str, ranged: str, inside: bool) -> None:
    assert in_range(address, ranged) is inside


def test_an_entry_for_some_addresses() -> None:
    entry = PolicyEntryInfo("Topic:a", ("Pub",), ("10.0.0.0/8", "192.0.2.7"), "Allow")
    limited = Acl.from_info("User:u", AclInfo(None, (PolicyInfo(None, (entry,)),)))
    assert limited.decide(topic("a"), "10.9.9.9") is ALLOW
    assert limited.decide(topic("a"), "192.0.2.7") is ALLOW
    assert limited.decide(topic("a"), "192.0.2.8") is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (PolicyEntryInfo(None, ("Pub",), None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Thing:a", ("Pub",), None, "Allow"), "The resource is null."),
        (PolicyEntryInfo("Topic:a", None, None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", ("Fly",), None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", ("Any",), None, "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:a", ("Pub",), ("",), "Allow"), "The source ip is empty."),
        (PolicyEntryInfo("Topic:a", ("Pub",), ("10.0.0",), "Allow"), "The source ip is invalid."),
        (PolicyEntryInfo("Topic:a", ("Pub",), None, "Maybe"), "The decision is null or illegal."),
    ],
)
def test_what_is_no_entry(entry: PolicyEntryInfo, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Acl.from_info("User:u", AclInfo(None, (PolicyInfo("Custom", (entry,)),)))
    assert str(error.value) == problem


def test_no_policies_at_all() -> None:
    for info in (AclInfo(None, ()), AclInfo(None, (PolicyInfo("Custom", ()),))):
        with pytest.raises(ConfigurationError, match="The policies is empty"):
            Acl.from_info("User:u", info)


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("*", Resource(ResourceType.ANY, "", Pattern.ANY)),
        ("topic:a", Resource(ResourceType.TOPIC, "a", Pattern.LITERAL)),
        ("Topic:a*", Resource(ResourceType.TOPIC, "a", Pattern.PREFIXED)),
        ("GROUP:*", Resource(ResourceType.GROUP, "", Pattern.ANY)),
        ("Topic:a:b", Resource(ResourceType.TOPIC, "a:b", Pattern.LITERAL)),
        ("Topic", None),
        ("", None),
        (None, None),
    ],
)
def test_resources_as_texts(text: str | None, resource: Resource | None) -> None:
    assert Resource.parse(text) == resource


@given(
    st.sampled_from(ResourceType),
    st.text(st.characters(exclude_characters="*"), min_size=1),
    st.sampled_from(Pattern),
)
def test_a_resource_survives_its_text(kind: ResourceType, name: str, pattern: Pattern) -> None:
    if kind is ResourceType.ANY:
        return
    resource = Resource(kind, "" if pattern is Pattern.ANY else name, pattern)
    assert Resource.parse(str(resource)) == resource


def test_updates_add_and_replace_by_type_and_resource() -> None:
    before = acl(("Topic:a", "Pub", "Allow"), default=(("*", "Sub", "Allow"),))
    after = before.updated(acl(("Topic:a", "Sub", "Deny"), ("Topic:b", "Pub", "Allow")))
    info = after.info()
    assert [policy.policy_type for policy in info.policies] == ["Custom", "Default"]
    assert [(one.resource, one.actions, one.decision) for one in info.policies[0].entries] == [
        ("Topic:a", ("Sub",), "Deny"),
        ("Topic:b", ("Pub",), "Allow"),
    ]
    left = after.without(PolicyType.DEFAULT, Resource(ResourceType.ANY, "", Pattern.ANY))
    assert list(left.policies) == [PolicyType.CUSTOM]
    assert Acl.from_info("User:u", info) == after
