"""Signing of requests with keys that may change while a query runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.protocol.signing import SIGNATURE
from rocketmq_sdk.remoting.credentials import Signing

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.credentials import Credentials

logger = logging.getLogger("rocketmq_sdk.spark")
_IN_REMARKS: Final = ("AclException", "AuthenticationException", "AuthorizationException")
"""How brokers before 5.0 name refused keys, under the code SYSTEM_ERROR.

See `NettyRemotingAbstract.processRequestCommand`: what an `RPCHook` throws is put into
the remark.
"""


class KeysChangedError(RocketMQError):
    """A broker refused keys that have changed; asked again, it gets the new ones."""

    retryable = True


class FreshSigning(Signing):
    """Signs with keys that are read again when a broker refuses them.

    Where the source has others now, the call that was refused fails with
    `KeysChangedError`, so that it is made again with these.
    """

    def __init__(self, keys: Credentials, read: Callable[[], Credentials | None]) -> None:
        super().__init__(keys)
        self._read = read

    def after(self, command: Command, response: Command, address: str | None) -> None:
        """Read the keys again where the answer is a refusal.

        A request that was signed with keys older than those in use is repeated, too:
        several are refused at once when keys change.
        """
        if not _is_refusal(response):
            return
        used = command.ext_fields.get(SIGNATURE)
        try:
            keys = self._read()
        except ConfigurationError as error:  # as while the file is being replaced
            logger.warning("the keys were refused and cannot be read again: %s", error)
            return
        if keys is not None and keys != self._credentials:
            logger.warning("the broker at %s refuses the keys; others are there now", address)
            self._credentials = keys
        self.before(command, address)
        if command.ext_fields.get(SIGNATURE) != used:
            raise KeysChangedError(
                f"the broker at {address} refuses keys that have changed: {response.remark}"
            )


def _is_refusal(response: Command) -> bool:
    if response.code == ResponseCode.NO_PERMISSION:
        return True
    return response.code == ResponseCode.SYSTEM_ERROR and any(
        name in (response.remark or "") for name in _IN_REMARKS
    )
