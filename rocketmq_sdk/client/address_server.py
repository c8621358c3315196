"""Name servers that an address server names over HTTP.

Follows `DefaultTopAddressing` and `MQClientAPIImpl.fetchNameServerAddr` of Apache
RocketMQ 5.4.0: a GET answers with addresses separated by `;`, and clients ask again
every two minutes. It also knows the addresses that name a namespace of a cloud instance
(`NameServerAddressUtils`).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import trio

from rocketmq_sdk.errors import ConfigurationError, ConnectError, RocketMQError
from rocketmq_sdk.model.route import parse_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("rocketmq_sdk.client")
FETCH_TIMEOUT: Final = 3.0
FETCH_INTERVAL: Final = 120.0
RETRY_INTERVAL: Final = 5.0
"""Seconds until an address server that has never answered is asked again."""
_LONGEST: Final = 64 * 1024
_INSTANCE: Final = re.compile(r"^(?:\w+://)?(MQ_INST_\w+_\w+)\.")


def is_address_server(text: str) -> bool:
    """Whether a text is the URL of an address server.

    A URL without a path is the address of a name server, as Apache's client has it.
    """
    if not text.startswith(("http://", "https://")):
        return False
    return urlsplit(text).path.strip("/") != ""


def instance_namespace(text: str) -> str:
    """The namespace in an address like `http://MQ_INST_1_2.example:80`, else "".

    Follows `NameServerAddressUtils.parseInstanceIdFromEndpoint`.
    """
    found = _INSTANCE.match(text.strip())
    return "" if found is None else found[1]


class AddressServer:
    """Asks one address server; `changed` is called with each new list."""

    def __init__(
        self,
        url: str,
        unit_name: str | None,
        changed: Callable[[tuple[str, ...]], None],
        *,
        interval: float = FETCH_INTERVAL,
    ) -> None:
        self.url = f"{url}-{unit_name}?nofix=1" if unit_name else url
        self.addresses: tuple[str, ...] = ()
        self.problem = "it has not been asked yet"
        self._changed = changed
        self._interval = interval

    @property
    def host(self) -> str:
        """`host:port` of the server itself."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 80}"

    async def refresh(self) -> None:
        """Ask once; a failure is logged, and the list stays as it is."""
        try:
            with trio.fail_after(FETCH_TIMEOUT):
                text = await trio.to_thread.run_sync(_get, self.url, abandon_on_cancel=True)
            addresses = parse_addresses(text.strip())
        except (OSError, ValueError, RocketMQError, trio.TooSlowError) as error:
            self.problem = str(error) or type(error).__name__
            logger.warning("the address server %s names no name server: %s", self.url, self.problem)
            return
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


def _get(url: str) -> str:
    # Imported here: few programs need it.
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=FETCH_TIMEOUT) as response:
            body: bytes = response.read(_LONGEST)
    except HTTPError as error:
        error.close()  # it holds the connection
        raise
    text = body.decode("utf-8", "replace")
    if not text.strip():
        raise ConfigurationError("the answer is empty")
    return text
