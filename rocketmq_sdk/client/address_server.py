"""Name servers that an address server names over HTTP.

Follows `DefaultTopAddressing` and `MQClientAPIImpl.fetchNameServerAddr` of Apache
RocketMQ 5.4.0: the first line of the answer to a GET has addresses separated by `;`,
and clients ask again every two minutes. It also knows the addresses that name a
namespace of a cloud instance (`NameServerAddressUtils`).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio

from rocketmq_sdk.client.troubles import one_line
from rocketmq_sdk.errors import ConfigurationError, ConnectError, RocketMQError
from rocketmq_sdk.model.route import join_address, parse_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rocketmq_sdk.client")
FETCH_TIMEOUT: Final = 3.0
FETCH_INTERVAL: Final = 120.0
RETRY_INTERVAL: Final = 5.0
"""Seconds until an address server that has never answered is asked again."""
_LONGEST: Final = 64 * 1024
_SHOWN: Final = 200
"""Characters of an odd answer that an error shows."""
_ADDRESS: Final = re.compile(r"[\w.:%\[\]-]+", re.ASCII)
_INSTANCE: Final = re.compile(r"^(?:\w+://)?(MQ_INST_\w+_\w+)\.")


def is_address_server(text: str) -> bool:
    """Whether a text is the URL of an address server.

    A URL without a path is the address of a name server, as Apache's client has it.
    """
    if not text.startswith(("http://", "https://")):
        return False
    try:
        return urlsplit(text).path.strip("/") != ""
    except ValueError:
        return True  # it is refused as one


def instance_namespace(text: str) -> str:
    """The namespace in an address like `http://MQ_INST_1_2.example:80`, else "".

    Follows `NameServerAddressUtils.parseInstanceIdFromEndpoint`.
    """
    found = _INSTANCE.match(text.strip())
    return "" if found is None else found[1]


class AddressServer:
    """Asks one address server; `changed` is called with each new list.

    Raises `ConfigurationError` for a URL that nobody can be asked by.
    """

    def __init__(
        self,
        url: str,
        unit_name: str | None,
        changed: Callable[[tuple[str, ...]], None],
        *,
        interval: float = FETCH_INTERVAL,
    ) -> None:
        self.url = f"{url}-{unit_name}?nofix=1" if unit_name else url
        _check_url(url)
        self.addresses: tuple[str, ...] = ()
        self.problem = "it has not been asked yet"
        self._changed = changed
        self._interval = interval
        # A server that drips keeps its thread; the next question waits for it, so that
        # it has one of them at most.
        self._one = trio.CapacityLimiter(1)

    @property
    def host(self) -> str:
        """`host:port` of the server itself."""
        parts = urlsplit(self.url)
        return join_address(parts.hostname or "", parts.port or 80)

    async def refresh(self) -> None:
        """Ask once; a failure is logged, and the list stays as it is."""
        try:
            with trio.fail_after(FETCH_TIMEOUT):
                text = await trio.to_thread.run_sync(
                    _get, self.url, abandon_on_cancel=True, limiter=self._one
                )
            addresses = _named_in(text)
        except (OSError, ValueError, RocketMQError, trio.TooSlowError) as error:
            late = f"it has not answered within {FETCH_TIMEOUT:g} s"
            self.problem = one_line(str(error)) or late
            logger.warning("the address server %s names no name server: %s", self.url, self.problem)
            return
        self.problem = ""
        if addresses != self.addresses:
            logger.info("the name servers are now %s", ";".join(addresses))
            self.addresses = addresses
            self._changed(addresses)

    async def run(self) -> None:
        """Ask again and again until cancelled."""
        while True:
            await trio.sleep(self._interval if self.addresses else RETRY_INTERVAL)
            await self.refresh()

    def unknown(self) -> ConnectError:
        """The error while no name server is known."""
        return ConnectError(
            f"no name server is known, because the address server {self.url} names none: "
            f"{self.problem}",
            address=self.url,
        )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.hostname and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"{url!r} is no URL of an address server; write http://host:port/path"
        )


def _named_in(text: str) -> tuple[str, ...]:
    """The addresses in an answer. Raises `ConfigurationError` for anything else."""
    first = text.strip().partition("\n")[0].strip()
    if not first:
        raise ConfigurationError("the answer is empty")
    try:
        addresses = parse_addresses(first)
    except ConfigurationError:
        addresses = ()
    if not addresses or not all(map(_ADDRESS.fullmatch, addresses)):
        raise ConfigurationError(
            f"the answer is {first[:_SHOWN]!r}, and not addresses as host:port;host:port"
        )
    return addresses


def _get(url: str) -> str:
    # Imported here: few programs need it.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=FETCH_TIMEOUT) as response:
            body: bytes = response.read(_LONGEST + 1)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise
    except HTTPException as error:
        raise ConfigurationError(
            f"it does not speak HTTP: {type(error).__name__}: {error}"
        ) from error
    if len(body) > _LONGEST:
        raise ConfigurationError(f"the answer is longer than {_LONGEST} bytes")
    return body.decode("utf-8", "replace")
