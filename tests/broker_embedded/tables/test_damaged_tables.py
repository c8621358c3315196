"""A broker whose tables hold something else says which file is meant."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.errors import StoreCorruptError
from support.broker import open_on

NAMES = ["consumerOffset.json", "consumerOrderInfo.json", "delayOffset.json", "timermetrics"]


@pytest.mark.parametrize("name", [*NAMES, "messageRequestMode.json"])
@pytest.mark.parametrize("value", [[], 1, "text", {"dataVersion": 1, "table": 1}])
async def test_the_file_is_named(name: str, value: object) -> None:
    files = MemoryFileSystem()
    ConfigFile(files, name).store(value)
    if isinstance(value, dict) and name == "messageRequestMode.json":
        return  # it knows neither member, and keeps them
    with pytest.raises(StoreCorruptError, match=name):
        async with open_on(files):
            pass
