"""Commands of operators, for this broker and for Apache's: names and option letters are
those of Apache's mqadmin where it has the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.cli.operate import (
    access,
    bench,
    cluster,
    dead_letters,
    doctor,
    groups,
    messages,
    statistics,
    tail,
    topics,
    transfer,
)

if TYPE_CHECKING:
    from rocketmq_sdk.cli.operate.command import Command

COMMANDS: Final[dict[str, Command]] = {
    command.name: command
    for module in (
        *(topics, groups, messages, cluster, statistics, access),
        *(tail, dead_letters, transfer, doctor, bench),
    )
    for command in module.COMMANDS
}
