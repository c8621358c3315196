"""Store settings with requests of their own: codes 2001-2004 and 5001.

They are thresholds of cold reads (2001-2003), reading ahead (2004) and the engine of
timers (5001). `coldDataFlowControlEnable` is off by default and stays off here, because
cold data is read outside of the broker's loop and delays nobody. So thresholds are kept
and shown and slow nobody down, as in Apache's broker with its default. They are lost
when the process ends, there and here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import SETTINGS, Cost, Request, Writes, refuse
from rocketmq_sdk.broker_embedded.settings.properties_file import read_properties
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.json.dialect import encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.remoting.channel import Channel

MOST_GROUPS: Final = 10_000
GROUP_THRESHOLD: Final = 3 * 1024 * 1024
"""Default limit of cold reads for each group, in bytes for five seconds.

Where flow control is on (`cgColdReadThreshold`).
"""
GLOBAL_THRESHOLD: Final = 100 * 1024 * 1024
"""The same for all groups together (`globalColdReadThreshold`)."""
_READ_MODE: Final = "READ_AHEAD_MODE"
_NORMAL, _RANDOM = "0", "1"


class StoreSettingRequests:
    """What administrators set of the store beside its configuration."""

    __slots__ = ("_core", "_thresholds")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._thresholds: dict[str, int] = {}

    def requests(self) -> Iterable[Request]:
        """The rows. Their arguments are texts or fields without a header class."""
        return (
            Request(
                RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
                self.update,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
                cost=Cost.BODY,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
                self.remove,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
                self.show,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.SET_COMMITLOG_READ_MODE,
                self.read_mode,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
                writes=Writes.SETTINGS,
            ),
            Request(
                RequestCode.SWITCH_TIMER_ENGINE,
                self.timer_engine,
                needs.cluster(Action.UPDATE),
                raw=True,
                body_limit=SETTINGS,
            ),
        )

    def update(self, _channel: Channel, command: Command) -> Command:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG (2001): lines `group=bytes`, all or none."""
        try:
            texts = read_properties(command.body.decode())
        except UnicodeDecodeError as error:
            return refuse(ResponseCode.SYSTEM_ERROR, f"UnsupportedEncodingException {error}")
        if not texts:
            return refuse(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        try:
            wanted = {group: int(text) for group, text in texts.items()}
        except ValueError as error:
            return refuse(ResponseCode.SYSTEM_ERROR, f"a threshold is no number of bytes: {error}")
        if len(self._thresholds | wanted) > MOST_GROUPS:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"more than {MOST_GROUPS} groups have thresholds; remove some first",
            )
        self._thresholds |= wanted
        return Command.response()

    def remove(self, _channel: Channel, command: Command) -> Command:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG (2002): the body is the name of a group."""
        group = command.body.decode("utf-8", "replace").strip()
        if not group:
            return refuse(ResponseCode.SYSTEM_ERROR, "the request names no group")
        self._thresholds.pop(group, None)
        return Command.response()

    def show(self) -> Command:
        """GET_COLD_DATA_FLOW_CTR_INFO (2003)."""
        info = {
            "cgColdReadThreshold": GROUP_THRESHOLD,
            "configTable": self._thresholds,
            "globalAcc": 0,
            "globalColdReadThreshold": GLOBAL_THRESHOLD,
            "runtimeTable": {},
        }
        return Command.response(body=encode_json(info))

    def read_mode(self, _channel: Channel, command: Command) -> Command:
        """SET_COMMITLOG_READ_MODE (2004): whether the system reads the log ahead.

        0 lets it read ahead, 1 tells it that reads are at random.
        """
        mode = command.ext_fields.get(_READ_MODE)
        if mode not in (_NORMAL, _RANDOM):
            return refuse(
                ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error"
            )
        self._core.store.read_log_ahead(wanted=mode == _NORMAL)
        answer = Command.response()
        answer.remark = f"set commitlog readahead mode success, mode: {mode}"
        return answer

    def timer_engine(self, _channel: Channel, command: Command) -> Command:
        """SWITCH_TIMER_ENGINE (5001): accepts only F, the file wheel."""
        engine = command.ext_fields.get("E_T")
        if engine == "F":
            return Command.response()
        reason = (
            "there is no RocksDB here; the wheel in files stays in use"
            if engine == "R"
            else "the engine is R or F"
        )
        return refuse(ResponseCode.INVALID_PARAMETER, f"switch timer engine: {reason}")
