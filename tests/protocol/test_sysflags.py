"""The numbers of `MessageSysFlag`, `PullSysFlag` and `CompressionType` against Apache's
own arithmetic.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.compression import CompressionType
from rocketmq_sdk.protocol.flags import PullSysFlag, SysFlag
from support.paths import CODEC_VECTORS

ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "sysflags.json").read_text())
MESSAGE = [entry for entry in ENTRIES if "kind" not in entry]
PULL = [entry for entry in ENTRIES if entry.get("kind") == "PullSysFlag.buildSysFlag"]


def test_there_are_vectors() -> None:
    assert (len(MESSAGE), len(PULL)) == (87, 32)


@pytest.mark.parametrize("entry", MESSAGE, ids=lambda entry: hex(entry["flag"]))
def test_message_flags(entry: dict[str, Any]) -> None:
    flag = entry["flag"]
    assert flag & SysFlag.TRANSACTION_ROLLBACK == entry["transaction"]
    assert (
        flag & ~SysFlag.TRANSACTION_ROLLBACK | SysFlag.TRANSACTION_COMMIT
        == entry["reset_to_commit"]
    )
    assert flag & ~SysFlag.TRANSACTION_ROLLBACK == entry["reset_to_none"]
    assert flag & ~SysFlag.COMPRESSED == entry["clear_compressed"]
    assert bool(flag & SysFlag.BORN_HOST_V6) == entry["check_0x10"]
    if isinstance(entry["compression"], str):
        assert CompressionType.from_sys_flag(flag).name == entry["compression"]
    else:
        with pytest.raises(RemoteProtocolError, match="unknown compression type"):
            CompressionType.from_sys_flag(flag)


@pytest.mark.parametrize("entry", PULL, ids=lambda entry: hex(entry["flag"]))
def test_pull_flags(entry: dict[str, Any]) -> None:
    bits = {
        "commitOffset": PullSysFlag.COMMIT_OFFSET,
        "suspend": PullSysFlag.SUSPEND,
        "subscription": PullSysFlag.SUBSCRIPTION,
        "classFilter": PullSysFlag.CLASS_FILTER,
        "litePull": PullSysFlag.LITE_PULL,
    }
    flag = sum(bit for name, bit in bits.items() if entry[name])
    assert flag == entry["flag"]
    assert flag & ~PullSysFlag.COMMIT_OFFSET == entry["clear_commit"]
    assert flag & ~PullSysFlag.SUSPEND == entry["clear_suspend"]
