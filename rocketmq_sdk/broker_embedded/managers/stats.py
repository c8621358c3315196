"""What the broker counts (`BrokerStatsManager`): plain sums since the start, by topic and by group.

Rates are for those who look: two looks at a sum and the time between them. Counting happens on the way of every message, hence plain dictionaries.
"""


class TopicCounts:
    """What was put into one topic."""

    __slots__ = ("bytes", "messages", "times")

    def __init__(self) -> None:
        self.times = 0
        self.messages = 0
        self.bytes = 0


class GroupCounts:
    """What one group got from one topic."""

    __slots__ = ("bytes", "messages", "sent_back", "times")

    def __init__(self) -> None:
        self.times = 0
        self.messages = 0
        self.bytes = 0
        self.sent_back = 0


class BrokerStats:
    """The sums."""

    __slots__ = ("dead_letters", "groups", "pull_found", "pull_missed", "put_failed", "put_messages", "put_times", "topics")

    def __init__(self) -> None:
        self.put_times = 0
        self.put_messages = 0
        self.put_failed = 0
        self.pull_found = 0
        self.pull_missed = 0
        self.dead_letters = 0
        self.topics: dict[str, TopicCounts] = {}
        self.groups: dict[tuple[str, str], GroupCounts] = {}

    def put(self, topic: str, messages: int, size: int) -> None:
        """A put that succeeded."""
        self.put_times += 1
        self.put_messages += messages
        counts = self.topics.get(topic)
        if counts is None:
            counts = self.topics[topic] = TopicCounts()
        counts.times += 1
        counts.messages += messages
        counts.bytes += size

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """A pull that found messages."""
        self.pull_found += 1
        counts = self._group(topic, group)
        counts.times += 1
        counts.messages += messages
        counts.bytes += size

    def sent_back(self, topic: str, group: str) -> None:
        """A message that a group sent back."""
        self._group(topic, group).sent_back += 1

    def _group(self, topic: str, group: str) -> GroupCounts:
        counts = self.groups.get((topic, group))
        if counts is None:
            counts = self.groups[topic, group] = GroupCounts()
        return counts

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        self.topics.pop(topic, None)
        for key in [key for key in self.groups if key[0] == topic]:
            del self.groups[key]

    def remove_group(self, group: str) -> None:
        """Forget a group that was deleted."""
        for key in [key for key in self.groups if key[1] == group]:
            del self.groups[key]
