"""One remoting command: a request or a response, before it is bytes and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rocketmq_sdk.codes import CLIENT_VERSION, LanguageCode, request_name, response_name
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE, HeaderEncoding

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.header import Header

_PYTHON = LanguageCode.PYTHON
_JSON = HeaderEncoding.JSON


class Command:
    """A request or a response (`RemotingCommand`).

    Mutable: the channel fills in the opaque, hooks add ext fields before it is sent.

    `ext_fields` holds texts only and is never None; `body` is empty when there is none
    (the wire knows no difference). `language` is None when the peer named one that is
    unknown here. `encoding` says how the header is written, or was written by the peer.
    """

    __slots__ = (
        "body",
        "code",
        "encoding",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "version",
    )

    code: int
    flag: int
    opaque: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes
    language: LanguageCode | None
    version: int
    encoding: HeaderEncoding

    def __init__(
        self,
        code: int,
        *,
        flag: int = 0,
        opaque: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        language: LanguageCode | None = _PYTHON,
        version: int = CLIENT_VERSION,
        encoding: HeaderEncoding = _JSON,
    ) -> None:
        self.code = code
        self.flag = flag
        self.opaque = opaque
        self.remark = remark
        self.ext_fields = {} if ext_fields is None else ext_fields
        self.body = body
        self.language = language
        self.version = version
        self.encoding = encoding

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        oneway: bool = False,
        remark: str | None = None,
    ) -> Self:
        """A request with the fields of `header`.

        A one-way request is never answered.
        """
        ext_fields = None if header is None else header.to_ext()
        return cls(
            code, flag=FLAG_ONEWAY if oneway else 0, remark=remark, ext_fields=ext_fields, body=body
        )

    @classmethod
    def response(
        cls,
        code: int = 0,
        header: Header | None = None,
        *,
        remark: str | None = None,
        body: bytes = b"",
    ) -> Self:
        """A response; its opaque is filled in from the request when it is sent."""
        ext_fields = None if header is None else header.to_ext()
        return cls(code, flag=FLAG_RESPONSE, remark=remark, ext_fields=ext_fields, body=body)

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the receiver."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender of this request expects no answer."""
        return self.flag & FLAG_ONEWAY != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Command.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind, name = (
            ("response", response_name(self.code))
            if self.is_response
            else ("request", request_name(self.code))
        )
        remark = f" remark={self.remark!r}" if self.remark else ""
        return (
            f"<{kind} {name} opaque={self.opaque} fields={sorted(self.ext_fields)}{remark} "
            f"body={len(self.body)} bytes>"
        )
