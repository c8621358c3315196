"""Trees of SQL92 expressions.

The text of a node is that of Apache's classes (`ComparisonExpression.toString` and so
on), which makes trees comparable with theirs.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs


class Kind(Enum):
    """Type of what a node evaluates to, known before any message is.

    A property is a text, and every value may be null.
    """

    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    STRING = "String"
    BOOLEAN = "Boolean"
    NULL = "null"


NUMBERS: Final = frozenset({Kind.INTEGER, Kind.LONG, Kind.DOUBLE})


@attrs.frozen(eq=False)
class Literal:
    """A constant; TRUE, FALSE and NULL are boolean expressions as well."""

    kind: Kind
    value: int | float | str | bool | None

    def __str__(self) -> str:
        if self.kind is Kind.STRING:
            return "'" + str(self.value).replace("'", "''") + "'"
        return (
            "NULL"
            if self.value is None
            else str(self.value).upper()
            if self.kind is Kind.BOOLEAN
            else str(self.value)
        )


@attrs.frozen(eq=False)
class Variable:
    """A property of the message."""

    name: str

    def __str__(self) -> str:
        return self.name


@attrs.frozen(eq=False)
class Negate:
    """Minus; null unless the operand is a number."""

    operand: Node

    def __str__(self) -> str:
        return f"(- {self.operand})"


@attrs.frozen(eq=False)
class AsBoolean:
    """A property where a truth value is needed: null when absent, else FALSE."""

    operand: Variable

    def __str__(self) -> str:
        return str(self.operand)


@attrs.frozen(eq=False)
class Not:
    """Logical negation."""

    operand: Node

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@attrs.frozen(eq=False)
class Logic:
    """AND or OR, as `operator` says."""

    operator: str
    left: Node
    right: Node

    def __str__(self) -> str:
        # The left side of a long chain is as deep as the chain is long.
        tails: list[str] = []
        node: Node = self
        while isinstance(node, Logic):
            tails.append(f" {'&&' if node.operator == 'AND' else '||'} {node.right})")
            node = node.left
        return "(" * len(tails) + str(node) + "".join(reversed(tails))


@attrs.frozen(eq=False)
class Compare:
    """`=`, `<`, `<=`, `>` or `>=`; `<>` is the negation of `=`."""

    operator: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} {'==' if self.operator == '=' else self.operator} {self.right})"


@attrs.frozen(eq=False)
class In:
    """Whether a property is one of some texts."""

    operand: Variable
    values: tuple[str, ...]
    negated: bool

    def __str__(self) -> str:
        return f"{self.operand} {'NOT ' if self.negated else ''}IN ( {', '.join(self.values)} )"


@attrs.frozen(eq=False)
class Search:
    """CONTAINS, STARTSWITH or ENDSWITH."""

    operator: str
    operand: Node
    text: str
    negated: bool

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.operator} {self.operand})"


Node = Literal | Variable | Negate | AsBoolean | Not | Logic | Compare | In | Search
_BOOLEAN: Final = (AsBoolean, Not, Logic, Compare, In, Search)


def is_boolean(node: Node) -> bool:
    """Whether a node is a boolean expression, NULL included (`BooleanExpression`)."""
    return isinstance(node, _BOOLEAN) or (
        isinstance(node, Literal) and node.kind in (Kind.BOOLEAN, Kind.NULL)
    )


def kind_of(node: Node) -> Kind:
    """The type of a node's values.

    Minus keeps the type of numbers; of all else it makes null.
    """
    negated = isinstance(node, Negate)
    while isinstance(node, Negate):
        node = node.operand
    kind = (
        node.kind
        if isinstance(node, Literal)
        else Kind.STRING
        if isinstance(node, Variable)
        else Kind.BOOLEAN
    )
    return kind if not negated or kind in NUMBERS else Kind.NULL
