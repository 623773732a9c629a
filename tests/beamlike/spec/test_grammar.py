"""Law: an expression that is written as text is read as the same expression, and so has the same values."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.expressions.grammar import BadExpression, expression_from_text
from beamlike.expressions.tree import expression_identity
from beamlike.expressions.written import expression_as_text

FRAME = pl.DataFrame({"a": [1, 2, None, -4], "b": [0.5, None, 3.0, 8.0], "class": [3, 1, 4, 1]})
NUMBERS = st.one_of(st.integers(-9, 9), st.sampled_from([0.5, -2.25]))
COLUMNS = st.sampled_from(["a", "b", "class"]).map(bl.col)


def conditions(numbers: st.SearchStrategy[nw.Expr]) -> st.SearchStrategy[nw.Expr]:
    """Draws comparisons, also negated and connected."""
    compared = st.builds(
        lambda left, right, kind: getattr(left, kind)(right),
        numbers,
        st.one_of(numbers, NUMBERS),
        st.sampled_from(["__lt__", "__ge__", "__eq__", "__ne__"]),
    )
    both = st.builds(
        lambda one, other, kind: getattr(one, kind)(other),
        compared,
        compared,
        st.sampled_from(["__and__", "__or__"]),
    )
    return st.one_of(compared, both, both.map(lambda one: ~one), numbers.map(lambda one: one.is_null()))


def deeper(numbers: st.SearchStrategy[nw.Expr]) -> st.SearchStrategy[nw.Expr]:
    """Draws sums, products, choices and calls of other expressions."""
    kinds = ["__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__"]
    operand = st.one_of(numbers, NUMBERS)
    infix = st.builds(
        lambda left, right, kind: getattr(left, kind)(right), numbers, operand, st.sampled_from(kinds)
    )
    reflected = st.one_of(
        st.builds(lambda left, right: right - left, numbers, NUMBERS),
        st.builds(lambda left, right: right**left, numbers, NUMBERS),
    )
    chosen = st.builds(
        lambda test, yes, no: nw.when(test).then(yes).otherwise(no), conditions(numbers), numbers, numbers
    )
    called: st.SearchStrategy[Any] = st.one_of(
        numbers.map(lambda one: one.abs()),
        numbers.map(lambda one: -one),
        numbers.map(lambda one: one.fill_null(0)),
        numbers.map(lambda one: one.cast(nw.Float64)),
    )
    return st.one_of(infix, reflected, chosen, called)


EXPRESSIONS = st.recursive(COLUMNS, deeper, max_leaves=8)


@given(st.one_of(EXPRESSIONS, conditions(EXPRESSIONS)))
def test_a_written_expression_reads_as_the_same(expression: nw.Expr) -> None:
    again = expression_from_text(expression_as_text(expression))
    assert expression_identity(again) == expression_identity(expression)
    values, same = (computed(one) for one in (expression, again))
    assert (
        values.equals(same)
        if isinstance(values, pl.Series) and isinstance(same, pl.Series)
        else values == same
    )


def computed(expression: nw.Expr) -> pl.Series | str:
    """Returns the values of an expression, or its error: some powers cannot be computed."""
    try:
        return nw.from_native(FRAME).select(x=expression).to_native()["x"]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("text", ["F.round(1)", "pl.is_in([1, 2])", "0 < (u & 3) < 4", "0 < ( u & 3) < 4"])
def test_columns_may_have_the_names_of_packages_and_brackets_are_seen(text: str) -> None:
    expression_from_text(text)


@pytest.mark.parametrize("text", ["pl.col('x')", "F.lit(1)", "a == 1 & b == 2"])
def test_what_other_packages_write_is_explained(text: str) -> None:
    with pytest.raises(BadExpression, match=r"leave out|bind closer"):
        expression_from_text(text)
