"""What the control endpoint answers, as JSON Schema for its description."""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}


def items(schema: Schema) -> Schema:
    """A list of something."""
    return {"type": "array", "items": schema}


def named(schema: Schema) -> Schema:
    """An object with something by name."""
    return {"type": "object", "additionalProperties": schema}


def members(optional: tuple[str, ...] = (), **schemas: Schema) -> Schema:
    """An object with these members; all are there but the optional ones."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name in schemas if name not in optional],
        "properties": schemas,
    }


def one_of_parts(name: str) -> Schema:
    """A reference to one of `PARTS`."""
    return {"$ref": f"#/components/schemas/{name}"}


NOTHING: Final = members()

PARTS: Final[dict[str, Schema]] = {
    "Error": members(("kind",), error=TEXT, kind=TEXT),
    "Broker": members(
        running=FLAG,
        brokerName=TEXT,
        emulates=_TEXT_OR_NULL,
        address=_TEXT_OR_NULL,
        namesrvAddress=_TEXT_OR_NULL,
        takingMessages=FLAG,
        reasons=items(TEXT),
    ),
    "Topic": members(
        messages=NUMBER,
        queues=named({**items(NUMBER), "minItems": 2, "maxItems": 2}),
    ),
    "Group": members(members=items(TEXT), lag=named(NUMBER), deadLetters=NUMBER),
    "Message": members(
        topic=TEXT,
        messageId=TEXT,
        body=TEXT,
        bodyBase64=TEXT,
        tags=_TEXT_OR_NULL,
        keys=items(TEXT),
        properties=named(TEXT),
        queueId=NUMBER,
        queueOffset=NUMBER,
        bornTimestamp=NUMBER,
        storeTimestamp=NUMBER,
        reconsumeTimes=NUMBER,
    ),
    "Request": members(
        name=TEXT,
        code=NUMBER,
        where={"type": "string", "enum": ["broker", "name server"]},
        host=TEXT,
        clientId=_TEXT_OR_NULL,
        topics=items(TEXT),
        groups=items(TEXT),
        queueId={"type": ["integer", "null"]},
        fields=named(TEXT),
        answer={"type": ["integer", "null"]},
        time=NUMBER,
    ),
    "Fault": members(id=NUMBER, hits=NUMBER, fault=TEXT),
    "Clock": members(now=NUMBER, virtual=FLAG),
}
"""The things that answers are about, by name."""

REPORT: Final = members(report=TEXT)
WAITED: Final = members(
    ("messages", "members"), messages=items(one_of_parts("Message")), members=items(TEXT)
)
"""Of `stored` and `dead_letter` the messages, of `group` the members."""
KEPT: Final = members(id=NUMBER, size=NUMBER)
