"""The identity of a client: its address, its id, and the ids of its messages.

Follows `ClientConfig.buildMQClientId` and `RemotingUtil.getLocalAddress`.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.distinct import next_instance, process_id
from rocketmq_sdk.model.route import split_address

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOOPBACK: Final = "127.0.0.1"
# An address of the documentation range: nothing is sent, the system only tells which of
# its addresses it would use.
_ELSEWHERE: Final = ("192.0.2.1", 9)


def local_ip(name_servers: Sequence[str]) -> str:
    """The address of this host that a name server sees, else loopback.

    Found without a look-up of names.
    """
    for address in name_servers:
        host, port = split_address(address)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            continue
        found = _source_address(host, port)
        if found is not None:
            return found
    return _source_address(*_ELSEWHERE) or _LOOPBACK if name_servers else _LOOPBACK


def _source_address(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port or 9))
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None


def make_client_id(ip: str, instance_name: str | None, unit_name: str | None) -> str:
    """`ip@instance[@unit]`; without an instance name one that nobody else has."""
    instance = instance_name or f"{process_id()}#{next_instance()}"
    return f"{ip}@{instance}@{unit_name}" if unit_name else f"{ip}@{instance}"
