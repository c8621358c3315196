"""`rocketmq doctor`: what is wrong between here and a cluster, with the remedy."""

from __future__ import annotations

import re
import socket
from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.cli.operate.command import Command, Session
from rocketmq_sdk.cli.operate.topics import topic_argument
from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.errors import (
    ConfigurationError,
    GroupNotFoundError,
    NotPermittedError,
    RocketMQError,
)
from rocketmq_sdk.model.route import split_address

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rocketmq_sdk.admin.cluster import Broker

CONNECT_TIMEOUT: Final = 3.0
CLOCK_TOLERANCE: Final = 5.0
"""Seconds by which clocks may differ; brokers tell whole seconds only."""
DISK_WARNS: Final = 0.75
"""`diskMaxUsedSpaceRatio`: above it brokers delete old files at any hour.

A tenth of the disk further they delete the oldest ones before their time.
"""
DISK_FULL: Final = 0.90
"""`diskSpaceWarningLevelRatio`: above it brokers take no more messages."""
FEW_FILES: Final = 1024
_NO_POLICY: Final = (
    "with the credentials of an administrator, rocketmq createAcl -s User:NAME -r Cluster:* -a Get "
    "-d Allow, or -r Topic:... for a topic"
)
HEALTH: Final = "embeddedBrokerHealth"
TAKING: Final = "taking messages"


class State(Enum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@attrs.frozen
class Finding:
    """What one check found, and what helps."""

    check: str
    state: State
    found: str
    remedy: str | None = None


class Doctor:
    """Checks in their order: what a later one needs is checked before it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._admin = session.admin
        self.findings: list[Finding] = []

    def _say(self, check: str, state: State, found: str, remedy: str | None = None) -> None:
        self.findings.append(Finding(check, state, found, remedy))

    async def examine(self) -> None:
        """Run all checks that make sense."""
        self._files()
        for address in filter(None, self._admin.client.name_server_text.split(";")):
            await self._reach("name server", address)
        brokers = await self._brokers()
        for broker in brokers:
            if await self._reach(f"broker {broker.name}", broker.address):
                await self._ask(broker)
        if brokers:
            options = self._session.options
            if options.topic:
                await self._topic(options.topic)
            if options.group_name:
                await self._group(options.group_name, options.topic)

    def _files(self) -> None:
        try:
            import resource
        except ModuleNotFoundError:  # not on Windows
            return
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < FEW_FILES:
            self._say(
                "open files",
                State.WARNING,
                f"this process may have {soft} open files and connections",
                "raise it: ulimit -n 65536, or LimitNOFILE= of the service",
            )
        else:
            self._say("open files", State.OK, f"at most {soft:,}")

    async def _reach(self, what: str, address: str) -> bool:
        """Resolve a name and connect to a port."""
        try:
            host, port = split_address(address)
        except ConfigurationError as error:
            self._say(what, State.BAD, str(error), "write it as host:port")
            return False
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._say(
                what,
                State.BAD,
                f"{host} has no address: {error.strerror or error}",
                "mend the name, DNS or /etc/hosts; for a broker set brokerIP1 to an address that "
                "clients can reach",
            )
            return False
        where = found[0][4][0]
        start = trio.current_time()
        try:
            with trio.fail_after(CONNECT_TIMEOUT):
                stream = await trio.open_tcp_stream(host, port)
        except trio.TooSlowError:
            self._say(
                what,
                State.BAD,
                f"{address} ({where}) does not answer within {CONNECT_TIMEOUT:g} s",
                "a firewall drops the packets, or the address is of another network; for a "
                "broker set brokerIP1 to an address that clients can reach",
            )
            return False
        except OSError as error:
            self._say(
                what,
                State.BAD,
                f"{address} ({where}) refuses connections: {error}",
                "nothing listens there: start it, or correct host and port; for a broker set "
                "brokerIP1 to an address that clients can reach",
            )
            return False
        spent = trio.current_time() - start
        await stream.aclose()
        self._say(what, State.OK, f"{address} ({where}) connects in {spent * 1000:.1f} ms")
        return True

    async def _brokers(self) -> list[Broker]:
        try:
            brokers = await self._admin.cluster.brokers()
        except RocketMQError as error:
            self._say(
                "cluster",
                State.BAD,
                f"no name server tells the brokers: {error}",
                _NO_POLICY
                if isinstance(error, NotPermittedError) and self._admin.client.config.credentials
                else "check -n and NAMESRV_ADDR; a port of a broker or a proxy is not one of a "
                "name server; with TLS give --tls, with users --credentials",
            )
            return []
        masters = sum(broker.is_master for broker in brokers)
        if not masters:
            self._say(
                "cluster",
                State.BAD,
                f"the name server knows {len(brokers)} brokers and no master",
                "start a master with namesrvAddr set to this name server",
            )
        else:
            self._say("cluster", State.OK, f"{masters} masters, {len(brokers)} brokers in all")
        return brokers

    async def _ask(self, broker: Broker) -> None:
        what = f"broker {broker.name}"
        try:
            told = await self._admin.cluster.runtime_info(broker.address)
        except RocketMQError as error:
            self._say(
                what,
                State.BAD,
                f"it does not tell its state: {error}",
                "16 or 'no permission' means users are on: give --credentials of an administrator",
            )
            return
        self._say(what, State.OK, told.get("brokerVersionDesc", "unknown version"))
        self._health(what, told)
        self._disk(what, told)
        self._clock(what, told)

    def _health(self, what: str, told: Mapping[str, str]) -> None:
        """What a broker of this package says of itself."""
        health = told.get(HEALTH)
        if health is None:
            return
        state, _, reasons = health.partition(": ")
        if state != TAKING:
            self._say(
                f"{what}: health",
                State.BAD,
                health,
                "make room on its disk or connect its slaves, as the reasons say; the log of the "
                "broker says more",
            )
        elif reasons:
            self._say(f"{what}: health", State.WARNING, reasons, "see the log of the broker")
        else:
            self._say(f"{what}: health", State.OK, state)

    def _disk(self, what: str, told: Mapping[str, str]) -> None:
        ratio = max(
            (
                float(value)
                for name, value in told.items()
                if name.startswith(("commitLogDiskRatio", "consumeQueueDiskRatio"))
                and re.fullmatch(r"\d+(\.\d+)?", value)
            ),
            default=None,
        )
        if ratio is None:
            return
        if ratio >= DISK_FULL:
            self._say(
                f"{what}: disk",
                State.BAD,
                f"{ratio:.0%} used: it takes no messages",
                "make room, or lower fileReservedTime",
            )
        elif ratio >= DISK_WARNS:
            self._say(
                f"{what}: disk",
                State.WARNING,
                f"{ratio:.0%} used: from 85% on old messages are deleted before their time",
                "make room, or lower fileReservedTime",
            )
        else:
            self._say(f"{what}: disk", State.OK, f"{ratio:.0%} used")

    def _clock(self, what: str, told: Mapping[str, str]) -> None:
        """Compare clocks: a broker tells when it started, and how long it has run."""
        boot, parts = told.get("bootTimestamp", ""), re.findall(r"\d+", told.get("runtime", ""))
        if not boot.isdecimal() or len(parts) != 4:
            return
        days, hours, minutes, seconds = map(int, parts)
        theirs = int(boot) / 1000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        ahead = theirs - SystemClock().now_ms() / 1000
        if abs(ahead) > CLOCK_TOLERANCE:
            self._say(
                f"{what}: clock",
                State.WARNING,
                f"its clock is about {abs(ahead):,.0f} s {'ahead' if ahead > 0 else 'behind'}",
                "run NTP on both machines: delays, timers and offsets by time follow the clocks. A "
                "broker keeps the clock that it was started with: start it again",
            )
        else:
            self._say(f"{what}: clock", State.OK, "within some seconds of this machine's")

    async def _topic(self, topic: str) -> None:
        what = f"topic {topic}"
        try:
            route = await self._admin.topics.route(topic)
        except RocketMQError as error:
            self._say(what, State.BAD, str(error), f"make it: rocketmq updateTopic -t {topic}")
            return
        readable = len(route.subscribe_queues(topic))
        writable = len(route.publish_queues(topic))
        if not readable or not writable:
            lacks = "read from" if not readable else "written to"
            self._say(
                what,
                State.WARNING,
                f"none of its queues may be {lacks}",
                f"rocketmq updateTopicPerm -t {topic} -p 6, if that is not on purpose; queues "
                "that are written to need a master",
            )
        else:
            self._say(what, State.OK, f"{writable} queues to write to, {readable} to read")

    async def _group(self, group: str, topic: str | None) -> None:
        what = f"group {group}"
        try:
            config = await self._admin.groups.config(group)
            members = await self._admin.groups.members(group)
            progress = await self._admin.groups.progress(group, topic)
        except GroupNotFoundError as error:
            self._say(
                what,
                State.WARNING,
                str(error),
                f"it is made when its first consumer comes, or by updateSubGroup -g {group}",
            )
            return
        except RocketMQError as error:
            self._say(what, State.BAD, str(error))
            return
        if not config.consume_enable:
            self._say(
                what,
                State.BAD,
                "it may not consume",
                f"rocketmq updateSubGroup -g {group} -s true",
            )
        elif not members and progress.lag:
            self._say(
                what,
                State.WARNING,
                f"no member is connected, and {progress.lag:,} messages wait",
                "start its consumers",
            )
        else:
            self._say(what, State.OK, f"{len(members)} members, {progress.lag:,} messages wait")


def _arguments(parser: argparse.ArgumentParser) -> None:
    topic_argument(parser, required=False)
    parser.add_argument("-g", "--group-name", metavar="GROUP")


async def _run(session: Session) -> int:
    doctor = Doctor(session)
    await doctor.examine()
    session.out.rows(
        {
            "state": finding.state.value,
            "check": finding.check,
            "found": finding.found,
            "remedy": finding.remedy,
        }
        for finding in doctor.findings
    )
    return int(any(finding.state is State.BAD for finding in doctor.findings))


COMMANDS: Final = (
    Command("doctor", "say what is wrong between here and a cluster", _run, _arguments),
)
