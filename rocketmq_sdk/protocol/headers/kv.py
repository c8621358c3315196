"""Requests to name servers about the texts that they keep by namespace and key."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header
from rocketmq_sdk.protocol.limits import Length, limited


@attrs.define(kw_only=True)
class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str = limited(Length(64 * 1024))


@attrs.define(kw_only=True)
class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


@attrs.define(kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Answer to GET_KV_CONFIG."""

    value: str | None = None


@attrs.define(kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@attrs.define(kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
