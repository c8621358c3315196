"""Parser of SQL92 expressions, with the checks that need no message.

Follows `SelectorParser` of Apache RocketMQ 5.4.0:

    or         := and ( OR and )*
    and        := equality ( AND equality )*
    equality   := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison := unary ( > unary | >= unary | < unary | <= unary
                        | [NOT] CONTAINS string | [NOT] STARTSWITH string
                        | [NOT] ENDSWITH string
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( string, ... ) )*
    unary      := + unary | - unary | NOT unary | primary
    primary    := literal | name | ( or )

What Apache's parser does differently from the books is kept: NOT binds tighter than
comparisons, and what stands behind a complete expression is ignored.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.protocol.sql92 import lexer
from rocketmq_sdk.protocol.sql92.lexer import Lexer, Token
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
    is_boolean,
)

MAX_LENGTH: Final = 65_536
"""Characters of an expression.

Apache sets no limit of its own; here nobody else is served while one is parsed.
"""
MAX_DEPTH: Final = 200
"""Parentheses within parentheses."""
MAX_SIGNS: Final = 64
"""Most signs and NOT before one operand, and chained comparisons."""
NO_STACK: Final = "it is nested too deeply for what is left of this task's stack"
_INT_MAX: Final = 0x7FFFFFFF
_LONG_MAX: Final = 0x7FFFFFFFFFFFFFFF
_DOUBLE_MIN: Final = 5e-324
_DOUBLE_MAX: Final = 1.7976931348623157e308
_ORDERINGS: Final = frozenset({"<", "<=", ">", ">="})
_SEARCHES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_NEGATABLE: Final = _SEARCHES | {"BETWEEN", "IN"}
_OPERANDS: Final = frozenset(
    {lexer.NAME, lexer.STRING, lexer.INTEGER, lexer.FLOAT, "TRUE", "FALSE", "NULL"}
)
_AND, _EQUALITY, _COMPARISON = 1, 2, 3
_LEVELS: Final = (
    {"OR": 0, "AND": _AND}
    | dict.fromkeys(("=", "<>", "IS"), _EQUALITY)
    | dict.fromkeys((*_ORDERINGS, *_NEGATABLE, "NOT"), _COMPARISON)
)


def parse(text: str) -> Node:
    """The tree of an expression; a boolean one. Raises `FilterSyntaxError`."""
    if len(text) > MAX_LENGTH:
        raise FilterSyntaxError(
            text, MAX_LENGTH + 1, f"it has {len(text)} characters, {MAX_LENGTH} is the limit"
        )
    try:
        return _Parser(text).parse()
    except RecursionError:
        raise FilterSyntaxError(text, 1, NO_STACK) from None


class _Parser:
    """One text's way through the grammar."""

    __slots__ = ("_depth", "_words")

    def __init__(self, text: str) -> None:
        self._words = Lexer(text)
        self._depth = 0

    def parse(self) -> Node:
        return self._boolean(self._expression(), self._words.peek())

    # --- the grammar

    def _expression(self, level: int = 0) -> Node:
        """An operand and the operators after it, of a level and tighter ones.

        It takes few frames, so that deep nesting fits onto the stack.

        Behind an operator of one level none that binds tighter can follow: its right
        operand has taken those.
        """
        words = self._words
        node = self._unary()
        ceiling, count = 3, 0
        while True:
            sign = words.peek()
            own = _LEVELS.get(sign.kind, -1)
            if not level <= own <= ceiling:
                return node
            ceiling = own
            if own <= _AND:
                words.take()
                right = self._expression(own + 1)
                node = Logic(sign.kind, self._boolean(node, sign), self._boolean(right, sign))
                continue
            count += 1
            if count > MAX_SIGNS:
                words.fail(sign, f"more than {MAX_SIGNS} comparisons in a row")
            node = self._equality(node) if own == _EQUALITY else self._comparison(node)

    def _equality(self, node: Node) -> Node:
        words = self._words
        sign = words.take()
        if sign.kind != "IS":
            equal = self._equal(node, self._expression(_COMPARISON), sign)
            return equal if sign.kind == "=" else Not(equal)
        negated = words.peek().kind == "NOT"
        if negated:
            words.take()
        self._expect("NULL")
        is_null = Compare("=", node, Literal(Kind.NULL, None))
        return Not(is_null) if negated else is_null

    def _comparison(self, node: Node) -> Node:
        words = self._words
        sign = words.take()
        negated = sign.kind == "NOT"
        if negated:
            if words.peek().kind not in _NEGATABLE:
                self._unexpected("IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH behind NOT")
            sign = words.take()
        if sign.kind in _SEARCHES:
            return Search(sign.kind, node, _unquoted(self._expect(lexer.STRING)), negated)
        if sign.kind == "BETWEEN":
            return self._between(sign, node, negated=negated)
        if sign.kind == "IN":
            return self._in(sign, node, negated=negated)
        return self._ordering(sign.kind, node, self._unary(), sign)

    def _unary(self) -> Node:
        words = self._words
        signs: list[Token] = []
        while words.peek().kind in ("+", "-", "NOT"):
            signs.append(words.take())
            if len(signs) > MAX_SIGNS:
                words.fail(signs[-1], f"more than {MAX_SIGNS} signs in front of one operand")
        if words.peek().kind == "(":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                words.fail(words.peek(), f"more than {MAX_DEPTH} parentheses within each other")
            words.take()
            node = self._expression()
            self._expect(")")
            self._depth -= 1
        else:
            node = self._operand()
        for sign in reversed(signs):
            if sign.kind == "-":
                node = Negate(node)
            elif sign.kind == "NOT":
                node = Not(self._boolean(node, sign))
        return node

    def _operand(self) -> Node:
        words = self._words
        kind = words.peek().kind
        if kind not in _OPERANDS:
            self._unexpected("a value, a property or an expression in parentheses")
        token = words.take()
        if kind == lexer.NAME:
            return Variable(token.text)
        if kind == lexer.STRING:
            return Literal(Kind.STRING, _unquoted(token))
        if kind == lexer.INTEGER:
            return self._integer(token)
        if kind == lexer.FLOAT:
            return self._float(token)
        return Literal(Kind.NULL, None) if kind == "NULL" else Literal(Kind.BOOLEAN, kind == "TRUE")

    # --- parts of it

    def _unexpected(self, wanted: str) -> None:
        token = self._words.peek()
        self._words.fail(token, f"{token.describe()} stands where {wanted} is expected")

    def _expect(self, kind: str) -> Token:
        if self._words.peek().kind != kind:
            self._unexpected(repr(kind) if kind != lexer.STRING else "a text in single quotes")
        return self._words.take()

    def _boolean(self, node: Node, where: Token) -> Node:
        if is_boolean(node):
            return node
        if not isinstance(node, Variable):
            self._words.fail(where, f"{_shown(node)} is no truth value")
        return AsBoolean(node)

    def _integer(self, token: Token) -> Literal:
        digits = token.text.rstrip("lL")
        if len(digits) > len(str(_LONG_MAX)) or int(digits) > _LONG_MAX:
            self._words.fail(token, f"{token.describe()} is beyond the whole numbers of 64 bits")
        value = int(digits)
        return Literal(Kind.INTEGER if value <= _INT_MAX else Kind.LONG, value)

    def _float(self, token: Token) -> Literal:
        value = float(token.text)
        if not _DOUBLE_MIN <= value <= _DOUBLE_MAX:
            size = "small (0.0 is not allowed either)" if value < 1 else "large"
            self._words.fail(token, f"{token.describe()} is a float literal that is too {size}")
        return Literal(Kind.DOUBLE, value)

    def _equal(self, left: Node, right: Node, sign: Token) -> Node:
        for operand in (left, right):
            if isinstance(operand, Literal) and operand.value is None:
                self._words.fail(sign, "NULL cannot be compared; write IS NULL or IS NOT NULL")
        if (
            isinstance(left, Literal)
            and isinstance(right, Literal)
            and left.kind is Kind.BOOLEAN
            and right.kind is not Kind.BOOLEAN
        ):
            self._words.fail(sign, f"{_shown(left)} cannot be compared with {_shown(right)}")
        return Compare("=", left, right)

    def _ordering(self, operator: str, left: Node, right: Node, sign: Token) -> Node:
        for operand in (left, right):
            if is_boolean(operand) or (
                isinstance(operand, Literal) and operand.kind not in NUMBERS
            ):
                self._words.fail(
                    sign,
                    (
                        f"{_shown(operand)} cannot be compared by order, only numbers and "
                        "properties "
                        "can"
                    ),
                )
        return Compare(operator, left, right)

    def _between(self, sign: Token, value: Node, *, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            return Logic(
                "OR", self._ordering("<", value, low, sign), self._ordering(">", value, high, sign)
            )
        if isinstance(low, Literal) and isinstance(high, Literal):
            if low.value is None or high.value is None:
                self._words.fail(sign, "NULL cannot be a bound of BETWEEN")
            numbers = low.kind in NUMBERS and high.kind in NUMBERS
            if numbers and high.value < low.value:  # type: ignore[operator]
                self._words.fail(
                    sign, f"the lower bound {_shown(low)} is above the upper bound {_shown(high)}"
                )
        return Logic(
            "AND", self._ordering(">=", value, low, sign), self._ordering("<=", value, high, sign)
        )

    def _in(self, sign: Token, left: Node, *, negated: bool) -> Node:
        self._expect("(")
        values = [_unquoted(self._expect(lexer.STRING))]
        while self._words.peek().kind == ",":
            self._words.take()
            values.append(_unquoted(self._expect(lexer.STRING)))
        self._expect(")")
        if not isinstance(left, Variable):
            self._words.fail(sign, f"{_shown(left)} cannot stand before IN, only a property can")
        return In(left, tuple(values), negated)


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _shown(node: Node) -> str:
    if isinstance(node, Literal | Variable):
        text = str(node)
        return text if len(text) <= 40 else f"{text[:40]}..."
    return "an expression"
