"""Compiles the tree of a SQL92 expression to a function of message properties.

It is done once for an expression (the `Expression` classes of Apache RocketMQ 5.4.0).
Types are known from the tree (a property is a text), so the conversion that a
comparison needs is chosen here and not for each message. Logic has three values; None
is "null". Values that cannot be compared raise `EvaluationError`, through AND and OR as
well, because Apache rejects the message then.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from rocketmq_sdk.broker_embedded.filter.conversions import (
    EvaluationError,
    order_doubles,
    to_boolean,
    to_double,
    to_integer,
    to_long,
)
from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.protocol.sql92.parser import NO_STACK, parse
from rocketmq_sdk.protocol.sql92.tree import (
    NUMBERS,
    AsBoolean,
    Compare,
    In,
    Kind,
    Literal,
    Logic,
    Negate,
    Node,
    Not,
    Search,
    Variable,
    kind_of,
)

logger = logging.getLogger(__name__)

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], bool | None]
_Value = Callable[[Properties], Any]
_Order = Callable[[Any, Any], bool]
_Convert = Callable[[Any], Any]

_CACHED_LENGTH: Final = 1024
_FROM_TEXT: Final[dict[Kind, Callable[[str], object]]] = {
    Kind.INTEGER: to_integer,
    Kind.LONG: to_long,
    Kind.DOUBLE: to_double,
    Kind.BOOLEAN: to_boolean,
}
_PLAIN: Final[dict[str, _Order]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_DOUBLES: Final[dict[str, _Order]] = {
    "=": lambda left, right: order_doubles(left, right) == 0,
    "<": lambda left, right: order_doubles(left, right) < 0,
    "<=": lambda left, right: order_doubles(left, right) <= 0,
    ">": lambda left, right: order_doubles(left, right) > 0,
    ">=": lambda left, right: order_doubles(left, right) >= 0,
}


class CompiledExpression:
    """One expression, ready to be asked about messages."""

    __slots__ = ("evaluate", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.evaluate: Evaluate = _boolean(parse(text))
        """TRUE, FALSE or None for null; raises `EvaluationError`."""

    def matches(self, properties: Properties) -> bool:
        """Whether the expression is TRUE; False for null and when evaluation fails."""
        try:
            return self.evaluate(properties) is True
        except EvaluationError as error:
            logger.debug(
                "%s cannot be evaluated for a message, which does not match: %s", self.text, error
            )
            return False


def compile_expression(text: str) -> CompiledExpression:
    """The compiled expression of a text; cached. Raises `FilterSyntaxError`."""
    found = _compile_cached_long(text) if len(text) > _CACHED_LENGTH else _compile_cached(text)
    if isinstance(found, FilterSyntaxError):
        raise FilterSyntaxError(found.expression, found.position, found.reason)
    return found


def _compile(text: str) -> CompiledExpression | FilterSyntaxError:
    try:
        return CompiledExpression(text)
    except FilterSyntaxError as error:
        if error.reason == NO_STACK:
            raise  # another caller may have more of it, so this is not kept
        return error.with_traceback(None)
    except RecursionError:
        raise FilterSyntaxError(text, 1, NO_STACK) from None


_compile_cached = lru_cache(maxsize=1024)(_compile)
# Long ones take megabytes, and who sends one with each pull would have it parsed each
# time.
_compile_cached_long = lru_cache(maxsize=16)(_compile)


# --- logic


def _boolean(node: Node) -> Evaluate:
    if isinstance(node, Literal):
        constant = node.value if isinstance(node.value, bool) else None
        return lambda _properties: constant
    if isinstance(node, AsBoolean):
        name = node.operand.name
        return lambda properties: None if properties.get(name) is None else False
    if isinstance(node, Not):
        return _negation(_boolean(node.operand))
    if isinstance(node, Logic):
        return _logic(node)
    if isinstance(node, In):
        return _in(node)
    if isinstance(node, Search):
        return _search(node)
    assert isinstance(node, Compare)  # the parser lets nothing else stand for a truth value
    return _compare(node)


def _negation(inner: Evaluate) -> Evaluate:
    def negate(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return negate


def _logic(node: Logic) -> Evaluate:
    """A chain of AND or of OR.

    The deciding value (FALSE for AND, TRUE for OR) ends it; otherwise one null makes it
    null.
    """
    chain: list[Evaluate] = []
    current: Node = node
    while isinstance(current, Logic) and current.operator == node.operator:
        chain.append(_boolean(current.right))
        current = current.left
    chain.append(_boolean(current))
    chain.reverse()
    decides = node.operator == "OR"
    if len(chain) == 2:  # the usual length, for which a loop would be dear
        return _pair(chain[0], chain[1], decides)
    parts = tuple(chain)

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decides
        for part in parts:
            value = part(properties)
            if value is decides:
                return decides
            if value is None:
                result = None
        return result

    return evaluate


def _pair(left: Evaluate, right: Evaluate, decides: bool) -> Evaluate:
    otherwise = not decides

    def evaluate(properties: Properties) -> bool | None:
        first = left(properties)
        if first is decides:
            return decides
        second = right(properties)
        if second is decides:
            return decides
        return None if first is None or second is None else otherwise

    return evaluate


# --- tests of one operand


def _in(node: In) -> Evaluate:
    name, values, negated = node.operand.name, frozenset(node.values), node.negated

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in values) is not negated

    return evaluate


_FINDERS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _search(node: Search) -> Evaluate:
    """A text search; FALSE, negated or not, without a text or without a search term."""
    value, wanted, negated = _value(node.operand), node.text, node.negated
    if not wanted or kind_of(node.operand) is not Kind.STRING:
        return _after(value, False)
    find = _FINDERS[node.operator]

    def evaluate(properties: Properties) -> bool | None:
        text = value(properties)
        return text is not None and find(text, wanted) is not negated

    return evaluate


# --- values and comparisons


def _value(node: Node) -> _Value:
    if isinstance(node, Literal):
        constant = node.value
        return lambda _properties: constant
    if isinstance(node, Variable):
        name = node.name
        return lambda properties: properties.get(name)
    if isinstance(node, Negate):
        inner = _value(node.operand)
        if kind_of(node) in NUMBERS:
            negated = -inner({})
            return lambda _properties: negated
        return _after(inner, None)
    return _boolean(node)


def _after(value: _Value, result: bool | None) -> Evaluate:
    """One result for all messages, once an operand was evaluated: that may fail."""

    def evaluate(properties: Properties) -> bool | None:
        value(properties)
        return result

    return evaluate


def _constant(node: Node) -> int | float | str | bool | None:
    """The value of a node that no message changes, None for others."""
    if isinstance(node, Literal):
        return node.value
    constant: int | float | None = _value(node)({}) if kind_of(node) in NUMBERS else None
    return constant


def _compare(node: Compare) -> Evaluate:
    if isinstance(node.left, Variable):
        fast = _property_with_constant(node.operator, node.left.name, node.right)
        if fast is not None:
            return fast
    pairing = _pairing(node.operator, kind_of(node.left), kind_of(node.right))
    left, right = _value(node.left), _value(node.right)
    return (
        _equality(left, right, pairing) if node.operator == "=" else _ordering(left, right, pairing)
    )


def _property_with_constant(sign: str, name: str, right: Node) -> Evaluate | None:
    """The comparisons that most expressions consist of; None for others."""
    if isinstance(right, Literal) and right.kind is Kind.NULL:
        return lambda properties: properties.get(name) is None
    constant, kind = _constant(right), kind_of(right)
    if constant is None:
        return None
    if kind is Kind.STRING:

        def same(properties: Properties) -> bool | None:
            text = properties.get(name)
            return None if text is None else text == constant

        return same
    return _ORDERED[sign](name, constant, _FROM_TEXT[kind], _QUICK_DIGITS[kind])


# One function for each sign: calling another one to compare two numbers would cost as
# much as all the rest. A text of few ASCII digits is read at once, whatever the type. A
# constant is neither NaN nor 0.0, so `not` in front of the opposite keeps NaN above all
# numbers.
def _equal_to(name: str, constant: Any, convert: _Convert, quick: int) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        result: bool = (
            int(text) if len(text) < quick and text.isdigit() and text.isascii() else convert(text)
        ) == constant
        return result

    return evaluate


def _below(name: str, constant: Any, convert: _Convert, quick: int) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        result: bool = (
            int(text) if len(text) < quick and text.isdigit() and text.isascii() else convert(text)
        ) < constant
        return result

    return evaluate


def _up_to(name: str, constant: Any, convert: _Convert, quick: int) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        result: bool = (
            int(text) if len(text) < quick and text.isdigit() and text.isascii() else convert(text)
        ) <= constant
        return result

    return evaluate


def _above(name: str, constant: Any, convert: _Convert, quick: int) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        return (
            not (
                int(text)
                if len(text) < quick and text.isdigit() and text.isascii()
                else convert(text)
            )
            <= constant
        )

    return evaluate


def _from(name: str, constant: Any, convert: _Convert, quick: int) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        return (
            not (
                int(text)
                if len(text) < quick and text.isdigit() and text.isascii()
                else convert(text)
            )
            < constant
        )

    return evaluate


_ORDERED: Final = {"=": _equal_to, "<": _below, "<=": _up_to, ">": _above, ">=": _from}
# Texts shorter than this are in range when they are digits; truth values are never read
# as numbers.
_QUICK_DIGITS: Final = {Kind.INTEGER: 10, Kind.LONG: 19, Kind.DOUBLE: 16, Kind.BOOLEAN: 0}


def _pairing(sign: str, left: Kind, right: Kind) -> Callable[[Any, Any], bool]:
    """Compares two values that are not null (`ComparisonExpression.compare`)."""
    if left is Kind.STRING and right is Kind.STRING and sign != "=":
        return _converting(_OF_DOUBLES[sign], to_double, to_double)
    if left is right or Kind.NULL in (left, right):
        return _OF_DOUBLES[sign] if left is Kind.DOUBLE else _PLAIN[sign]
    if left is Kind.STRING:
        return _converting(
            _OF_DOUBLES[sign] if right is Kind.DOUBLE else _PLAIN[sign], _FROM_TEXT[right], None
        )
    if right is Kind.STRING:
        if left is Kind.BOOLEAN:
            return _impossible
        return _converting(
            _OF_DOUBLES[sign] if left is Kind.DOUBLE else _PLAIN[sign], None, _FROM_TEXT[left]
        )
    if Kind.BOOLEAN in (left, right):
        return lambda _left, _right: False
    if Kind.DOUBLE in (left, right):
        return _converting(_OF_DOUBLES[sign], float, float)
    return _PLAIN[sign]


def _converting(
    compare: _Order, convert_left: _Convert | None, convert_right: _Convert | None
) -> _Order:
    def converted(left: Any, right: Any) -> bool:
        first = left if convert_left is None else convert_left(left)
        return compare(first, right if convert_right is None else convert_right(right))

    return converted


def _impossible(left: object, right: object) -> bool:
    # Apache's class converts the wrong side here and fails.
    raise EvaluationError(
        f"the truth value {left} stands before the text {right!r}; write the text first"
    )


def _equality(left: _Value, right: _Value, pairing: _Order) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and pairing(first, second)

    return evaluate


def _ordering(left: _Value, right: _Value, pairing: _Order) -> Evaluate:
    def evaluate(properties: Properties) -> bool | None:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        return None if second is None else pairing(first, second)

    return evaluate
