"""Law: any text is an expression or a `BadExpression` with a place in it, and never another error."""

from __future__ import annotations

import warnings
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beamlike.expressions.grammar import (
    AGGREGATES,
    FUNCTIONS,
    NAMESPACES,
    VALUES,
    BadExpression,
    aggregate_from_text,
    expression_from_text,
)
from beamlike.rows.type_text import BadType, dtype_from_text

METHODS = [
    "abs",
    "cast",
    "is_in",
    "fill_null",
    "then",
    "otherwise",
    "to_uppercase",
    "hour",
    "over",
    "alias",
    "replace_strict",
]
ATOMS = [
    "a",
    "b_c",
    "1",
    "2.5",
    "1e999",
    '"x"',
    "'2026-01-31'",
    "None",
    "True",
    "...",
    "b''",
    "1j",
    "é",
    "[]",
    "{}",
    "()",
]
OPERATORS = [
    *["+", "-", "*", "/", "//", "%", "**", "==", "<", ">=", "&", "|", "and", "or", "in", "is", "@", "<<"],
    "not in",
    "is not",
]
ODD = [
    "lambda: 1",
    "x for x in a",
    "a if b else c",
    "a := 1",
    *["f'{a}'", "*a", "**a", "yield", "{**a}", "'\\d'"],
]


VALUE_TYPES = date | time | timedelta | Decimal


def calls(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Draws operators, calls and methods of other texts."""
    names = st.sampled_from([*FUNCTIONS, *AGGREGATES, *VALUES, "lookup", "a", "Int64", "List"])
    by_name = st.builds("{}={}".format, st.sampled_from(["where", "on", "by", "dtype"]), inner)
    arguments = st.lists(st.one_of(inner, by_name), max_size=3).map(", ".join)
    method = st.one_of(st.sampled_from(METHODS), st.sampled_from(dir(nw.Expr)), st.sampled_from(NAMESPACES))
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("{}{}".format, st.sampled_from(["-", "~", "not ", "+"]), inner),
        st.builds("({})".format, inner),
        st.builds("[{}]".format, arguments),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}({})".format, names, arguments),
        st.builds("{}.{}({})".format, inner, method, arguments),
        st.builds("{}.{}.{}({})".format, inner, st.sampled_from(NAMESPACES), method, arguments),
    )


TEXTS = st.one_of(
    st.recursive(st.sampled_from([*ATOMS, *ATOMS, *ODD]), calls, max_leaves=8),
    st.lists(st.sampled_from([*ATOMS, *OPERATORS, *ODD, *FUNCTIONS, *"()[].,\n \0"])).map(" ".join),
    st.text(),
)


def require_a_place(text: str, read: Any) -> Any:
    """Returns the expression of a text, or None for an error with a place in the text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return read(text)
    except BadExpression as error:
        found = error
    lines = text.strip().split("\n")
    assert 0 <= found.line <= len(lines)
    assert 0 <= found.column <= max(map(len, lines)) + 1
    assert str(found)
    return None


@given(TEXTS)
@example('-"a"')
@example("-None")
@example("{[1]: 2}")
@example("{**a}")
@example("when(a)")
@example("(" * 300 + "a" + ")" * 300)
@example("-" * 5000 + "a")
@example("a" + ".abs()" * 2000)
@example("9" * 5000)
@example("'\\d'")
def test_any_text_is_an_expression_or_an_error_with_a_place(text: str) -> None:
    made = require_a_place(text, expression_from_text)
    assert made is None or isinstance(made, nw.Expr | str | int | float | list | dict | VALUE_TYPES)


@given(TEXTS)
@example("-1")
@example("sum(-'a')")
@example("combine(1, 2)")
@example("top(a, {})")
def test_any_text_is_an_aggregate_or_an_error_with_a_place(text: str) -> None:
    require_a_place(text, aggregate_from_text)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ('a + -"x"', 4, "'-\"x\"' is no number or column, and has no negative"),
        ('"éé" == a.b()', 8, "there is no method 'b' of a"),
        ("+a", 0, "'+a' has an operator that expressions do not have"),
        ("when(a)", 0, "'when(a)' is no value yet; end it with .then(...)"),
        ("{**a}", 0, "'{**a}' is not in the grammar of expressions"),
    ],
)
def test_an_error_names_the_part_and_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(BadExpression) as caught:
        expression_from_text(text)
    assert (caught.value.column, str(caught.value)) == (column, message)


@pytest.mark.parametrize(
    "text", ["(" * 5000, "Struct({**a})", "Struct({a: int})", "List(**x)", "'a'[0]", "-int", ""]
)
def test_text_that_is_no_type_is_an_error_of_types(text: str) -> None:
    with pytest.raises(BadType):
        dtype_from_text(text)
