"""SQL92 expressions: against SQLite where both mean the same, and what is Apache's own
one by one.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.filter.conversions import (
    EvaluationError,
    order_doubles,
    to_boolean,
    to_double,
    to_integer,
    to_long,
)
from rocketmq_sdk.broker_embedded.filter.evaluate import compile_expression
from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.protocol.sql92.lexer import END, Lexer
from rocketmq_sdk.protocol.sql92.parser import MAX_DEPTH, MAX_LENGTH, MAX_SIGNS, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

# --- against SQLite. Numbers are in properties of their own, and texts too, so that
# both sides compare the same types; both have three values.

NUMBERS, TEXTS = ("n1", "n2", "n3"), ("t1", "t2", "t3")
_OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_NUMBER = st.integers(-20, 20)
_TEXT = st.text(st.sampled_from("abAB' _%"), max_size=3)
Pair = tuple[str, str]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _same(text: str) -> Pair:
    return text, text


def _search(name: str, operator: str, text: str, negated: bool) -> Pair:
    """CONTAINS and its like, in SQLite by functions; Apache's are never null."""
    size, found = (
        len(text),
        {
            "CONTAINS": f"instr({name}, {_quoted(text)}) > 0",
            "STARTSWITH": f"substr({name}, 1, {len(text)}) = {_quoted(text)}",
        },
    )
    condition = found.get(
        operator, f"length({name}) >= {size} AND substr({name}, -{max(size, 1)}) = {_quoted(text)}"
    )
    condition = f"NOT ({condition})" if negated else condition
    return (
        f"{name} {'NOT ' if negated else ''}{operator} {_quoted(text)}",
        f"({name} IS NOT NULL AND {size} > 0 AND coalesce({condition}, 0))",
    )


_COMPARED = st.builds(
    lambda name, operator, number: _same(f"{name} {operator} {number}"),
    st.sampled_from(NUMBERS),
    _OPERATORS,
    st.integers(0, 20),
)
# A minus sign makes an expression of a number, which is compared all the same.
_COMPARED_MINUS = st.builds(
    lambda name, operator, number: _same(f"{name} {operator} -{number}"),
    st.sampled_from(NUMBERS),
    _OPERATORS,
    st.integers(0, 20),
)
_BETWEEN = st.builds(
    lambda name, negated, low, span: _same(f"{name} {negated}BETWEEN {low} AND {low + span}"),
    st.sampled_from(NUMBERS),
    st.sampled_from(["", "NOT "]),
    st.integers(0, 20),
    st.integers(0, 9),
)
_EQUAL_TEXT = st.builds(
    lambda name, operator, text: _same(f"{name} {operator} {_quoted(text)}"),
    st.sampled_from(TEXTS),
    st.sampled_from(["=", "<>"]),
    _TEXT,
)
_IN = st.builds(
    lambda name, negated, texts: _same(f"{name} {negated}IN ({', '.join(map(_quoted, texts))})"),
    st.sampled_from(TEXTS),
    st.sampled_from(["", "NOT "]),
    st.lists(_TEXT, min_size=1, max_size=4),
)
_NULL = st.builds(
    lambda name, negated: _same(f"{name} IS {negated}NULL"),
    st.sampled_from(NUMBERS + TEXTS),
    st.sampled_from(["", "NOT "]),
)
_SEARCH = st.builds(
    _search,
    st.sampled_from(TEXTS),
    st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]),
    _TEXT,
    st.booleans(),
)
_CONSTANT = st.sampled_from([_same("TRUE"), _same("FALSE"), _same("NULL")])
_LEAVES = st.one_of(
    _COMPARED, _COMPARED_MINUS, _BETWEEN, _EQUAL_TEXT, _IN, _NULL, _SEARCH, _CONSTANT
)


def _joined(pairs: list[Pair], operator: str) -> Pair:
    return f" {operator} ".join(ours for ours, _theirs in pairs), f" {operator} ".join(
        theirs for _ours, theirs in pairs
    )


def _branches(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    grouped = children.map(lambda pair: (f"({pair[0]})", f"({pair[1]})"))
    chains = st.builds(
        _joined, st.lists(grouped | _LEAVES, min_size=2, max_size=4), st.sampled_from(["AND", "OR"])
    )
    return st.one_of(
        chains, grouped.map(lambda pair: (f"NOT {pair[0]}", f"NOT {pair[1]}")), grouped
    )


EXPRESSIONS = st.recursive(_LEAVES, _branches, max_leaves=12)
_VALUES = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NUMBERS, _NUMBER.map(str)),
        **dict.fromkeys(TEXTS, _TEXT.filter(bool)),
    },
)
SQLITE = sqlite3.connect(":memory:")


def by_sqlite(expression: str, properties: Mapping[str, str]) -> bool | None:
    columns = [f"? AS {name}" for name in NUMBERS + TEXTS]
    values = [
        None
        if name not in properties
        else int(properties[name])
        if name in NUMBERS
        else properties[name]
        for name in NUMBERS + TEXTS
    ]
    (value,) = SQLITE.execute(
        f"SELECT ({expression}) FROM (SELECT {', '.join(columns)})", values
    ).fetchone()
    return None if value is None else bool(value)


@settings(deadline=None, max_examples=400)
@given(EXPRESSIONS, _VALUES)
def test_three_valued_logic_is_that_of_sqlite(pair: Pair, properties: dict[str, str]) -> None:
    ours, theirs = pair
    assert compile_expression(ours).evaluate(properties) is by_sqlite(theirs, properties), ours


@settings(deadline=None, max_examples=300)
@given(
    st.text(st.sampled_from("aA1.'()<>=,-+ \nNOT AND OR IN IS NULL BETWEEN"), max_size=40)
    | st.text(max_size=20)
)
def test_no_text_does_anything_but_compile_or_be_refused(text: str) -> None:
    refused: FilterSyntaxError | None = None
    try:
        compile_expression(text).matches({"a": "1", "A": "x"})
    except FilterSyntaxError as error:
        refused = error
    if refused is not None:
        assert 1 <= refused.position <= len(text) + 1
        assert refused.reason in str(refused)


# --- what is Apache's own

ERROR = "refused when compiled"
FAILS = "cannot be evaluated"
P = {
    "a": "1",
    "b": "2.5",
    "c": "abc",
    "t": "true",
    "T": "TRUE",
    "n": "-7",
    "e": "",
    "big": "9223372036854775807",
    "nan": "NaN",
    "zero": "-0.0",
}
QUIRKS = [
    ("NOT binds tighter than comparisons", "NOT a > 3", ERROR),
    ("so its operand is put in parentheses", "NOT (a > 3)", True),
    ("NOT in front of a property makes a truth value of it", "(NOT c) = FALSE", False),
    ("what stands behind a complete expression is ignored", "a = 1 whatever ) , stands here", True),
    ("but the next word has to be one", "a = 1 #", ERROR),
    ("and NOT behind an operand must go on", "a = 1 AND c NOT", ERROR),
    ("a bare property is never TRUE", "t", False),
    ("a bare property that is missing is null", "missing", None),
    ("a property beside a whole number is read as one", "a = 1", True),
    ("what is no whole number ends it all", "b = 2", FAILS),
    ("even behind OR", "b = 2 OR a = 1", FAILS),
    ("unless it was decided before", "a = 1 OR b = 2", True),
    ("and in front of AND FALSE", "b = 2 AND FALSE", FAILS),
    ("an empty text is no number", "e > 0", FAILS),
    ("a property beside a float is read as one", "b = 2.5", True),
    ("the width of the literal counts", "big = 1", FAILS),
    ("a literal over 32 bits makes it wider", "big > 3000000000", True),
    ("numbers on the left read the right side", "1 = a", True),
    ("texts are compared as they are", "a = '1.0'", False),
    ("two properties are equal as texts", "a = n", False),
    ("two properties are ordered as numbers", "n < a", True),
    ("and fail where one is none", "a < c", FAILS),
    ("NaN is above every number", "nan > 1.0", True),
    ("and not below it", "nan < 1.0", False),
    ("-0.0 is below 0.0 as with Double.compareTo", "zero = 0", FAILS),
    ("TRUE on the right reads any case", "T = TRUE", True),
    ("anything else is FALSE", "c = FALSE", True),
    ("TRUE on the left fails", "TRUE = t", FAILS),
    ("TRUE and a number are different", "1 <> TRUE", True),
    ("but not the other way round", "TRUE <> 1", ERROR),
    ("NULL is not compared", "a = NULL", ERROR),
    ("a missing left side is null", "missing = 1", None),
    ("a missing right side is FALSE", "a = missing", False),
    ("two missing sides are equal", "missing = nothing", True),
    ("NOT IN with a missing property is null", "missing NOT IN ('x')", None),
    ("NOT CONTAINS with a missing property is FALSE", "missing NOT CONTAINS 'x'", False),
    ("nothing contains the empty text", "c CONTAINS ''", False),
    ("nor does it not contain it", "c NOT CONTAINS ''", False),
    ("IN takes texts only", "a IN (1)", ERROR),
    ("IN takes a property only", "'a' IN ('a')", ERROR),
    ("the right side of CONTAINS is a literal", "c CONTAINS c", ERROR),
    ("CONTAINS may stand behind a truth value", "NOT c CONTAINS 'a'", False),
    ("minus in front of a property is null", "-a = -1", None),
    ("minus in front of a number is no constant", "n = -7", True),
    ("so BETWEEN does not check its bounds", "a BETWEEN -1 AND -5", False),
    ("bounds that are constants are checked", "a BETWEEN 5 AND 1", ERROR),
    ("NOT BETWEEN does not check them", "a NOT BETWEEN 5 AND 1", True),
    ("the literal 0.0 is refused", "a > 0.0", ERROR),
    ("whole numbers end at 64 bits", "a < 9223372036854775808", ERROR),
    ("a float may end in a point", "b > 2.", True),
    ("texts are not ordered", "c > 'abb'", ERROR),
    ("truth values are not ordered", "TRUE > FALSE", ERROR),
    ("ordering does not chain", "1 < 2 < 3", ERROR),
    ("equality does, as truth values", "a = 1 = TRUE", True),
    ("a line comment needs its line end", "a = 1 -- and\n AND n = 3", False),
    ("without it, it is ignored like the rest", "a = 1 -- and AND n = 3", True),
    ("a block comment is skipped", "a /* = 2 */ = 1", True),
    ("keywords in any case", "A is Null aNd NoT (a iN ('2'))", True),
    ("names as they are", "C = 'abc'", None),
    ("a name cannot hold a point", "a.b = 1", ERROR),
    ("there is no !=", "a != 1", ERROR),
    ("there is no LIKE: a name is ignored behind a property", "c LIKE 'abc'", False),
    ("texts double their quotes", "c = 'it''s'", False),
    ("a text needs its end", "c = 'abc", ERROR),
]


@pytest.mark.parametrize(
    ("what", "expression", "expected"), QUIRKS, ids=[quirk[0] for quirk in QUIRKS]
)
def test_what_is_apaches_own(what: str, expression: str, expected: object) -> None:
    try:
        compiled = compile_expression(expression)
    except FilterSyntaxError:
        assert expected is ERROR
        return
    try:
        result: object = compiled.evaluate(P)
    except EvaluationError:
        result = FAILS
    assert result is expected, what
    assert compiled.matches(P) is (expected is True)


# --- positions, limits, numbers


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("", 1, "end of the expression stands where"),
        ("a = ", 5, "end of the expression stands where"),
        ("a = 'x", 5, "a string without its end"),
        ("a ? 1", 3, "'?' begins no word"),
        ("(a = 1", 7, "end of the expression stands where ')' is expected"),
        ("a IN ('x' 'y')", 11, "stands where ')' is expected"),
        ("a IS 5", 6, "'5' stands where 'NULL' is expected"),
        ("a = 1 OR b > 'x'", 12, "'x' cannot be compared by order"),
        ("a = 99999999999999999999", 5, "beyond the whole numbers of 64 bits"),
        ("a > 1e999", 5, "a float literal that is too large"),
        ("'x' AND a = 1", 5, "'x' is no truth value"),
    ],
)
def test_errors_tell_where_and_why(expression: str, position: int, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(expression)
    assert caught.value.position == position
    assert reason in caught.value.reason


def test_long_chains_and_deep_nesting_work_up_to_the_limits() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(4000))
    assert compile_expression(chain).matches({"a": "3999"})
    deep = "NOT (" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH
    assert compile_expression(deep).matches({"a": "1"})
    right = "a = 1 AND (" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH
    assert compile_expression(right).matches({"a": "1"})
    for too_much in (
        "(" * (MAX_DEPTH + 1) + "a = 1",
        "-" * (MAX_SIGNS + 1) + "1 = 1",
        "a = 1" + " = TRUE" * MAX_SIGNS,
        "a" * (MAX_LENGTH + 1),
    ):
        with pytest.raises(FilterSyntaxError):
            parse(too_much)


def test_nesting_that_the_stack_does_not_hold_is_refused() -> None:
    deep = "(a = 2 AND " * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH

    def sink(frames: int) -> None:
        if frames:
            sink(frames - 1)
        else:
            compile_expression(deep)

    with pytest.raises(FilterSyntaxError, match="nested too deeply"):
        sink(sys.getrecursionlimit() - 300)
    assert compile_expression(deep).matches({"a": "1"}) is False


def test_double_minus_signs_in_the_last_line_are_not_each_searched_for_a_line_end() -> None:
    """Searches to the end for each would take minutes here; they took 16 seconds for an
    expression of 60,000 characters.
    """
    lexer = Lexer("--1 " * 100_000)
    kinds = [lexer.take().kind for _ in range(300_001)]
    assert (kinds[:3], kinds[-1], kinds.count("-")) == (["-", "-", "integer"], END, 200_000)
    for text in ("--x\n1", "--x\r1", "--\n--x\r\n1", "\n/* --\n */1", "/*\n*/--\n1"):
        assert [(token.kind, token.position) for token in (Lexer(text).take(),)] == [
            ("integer", len(text))
        ]
    after = Lexer("--x\n/**/--1")
    assert [after.take().kind for _ in range(4)] == ["-", "-", "integer", END]


def test_a_refused_text_is_refused_again_with_a_fresh_error() -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(FilterSyntaxError) as info:
            compile_expression("a = =")
        caught.append(info.value)
    assert caught[0] is not caught[1]
    assert str(caught[0]) == str(caught[1])


@pytest.mark.parametrize(
    "text",
    [
        "1.0",
        " 1",
        "1 ",
        "",
        "+",
        "-",
        "1_0",
        "0x1",
        "١e",
        "𝟙",
        "2147483648",
        "-2147483649",
        "9" * 5000,
    ],
)
def test_texts_that_are_no_integers(text: str) -> None:
    with pytest.raises(EvaluationError):
        to_integer(text)


def test_texts_that_are_numbers() -> None:
    assert (to_integer("+5"), to_integer("-2147483648"), to_integer("007"), to_integer("١٢")) == (
        5,
        -2147483648,
        7,
        12,
    )
    assert (to_long("9223372036854775807"), to_long("0" * 5000 + "8")) == (9223372036854775807, 8)
    assert (to_double(" 1e3 "), to_double("5."), to_double(".5f"), to_double("-Infinity")) == (
        1000.0,
        5.0,
        0.5,
        float("-inf"),
    )
    assert to_double("0x1.8p1") == 3.0
    assert to_double("0x1p99999") == float("inf")
    assert (to_boolean("TRUE"), to_boolean("yes")) == (True, False)
    for text in ("", "x", "1e", "1__0", "inf", "nan", "1 2"):
        with pytest.raises(EvaluationError):
            to_double(text)


def test_doubles_are_ordered_as_in_java() -> None:
    ordered = [float("-inf"), -1.0, -0.0, 0.0, 1.0, float("inf"), float("nan")]
    for left in range(len(ordered)):
        for right in range(len(ordered)):
            assert order_doubles(ordered[left], ordered[right]) == (left > right) - (left < right)
