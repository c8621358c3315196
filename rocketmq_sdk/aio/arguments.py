"""Types of arguments that mean something of their own in asyncio."""

from __future__ import annotations

from rocketmq_sdk.aio.life import InProcessBroker
from rocketmq_sdk.client.config import NamesrvSource as AnySource

NamesrvSource = AnySource | InProcessBroker
"""Where the name servers are.

Addresses separated by `;`, a sequence of addresses, the URL of an address server, or an
in-process broker of this door.
"""
