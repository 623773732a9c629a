"""Rows are sorted by one integer as by the columns that are packed into it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.packed import packed, sorted_by

NUMBERS = st.none() | st.integers(-3, 3)
WIDE = NUMBERS | st.sampled_from([-(2**63), -(2**62), 2**62 - 1, 2**62, 2**63 - 1])
FLAGS = st.sampled_from([None, False, True])
TEXTS = st.sampled_from([None, "", "a", "b"])

SCHEMA = {"a": pl.Int64, "b": pl.Boolean, "c": pl.Int64, "text": pl.String}


def rows(numbers: st.SearchStrategy[int | None]) -> st.SearchStrategy[pl.DataFrame]:
    row = st.tuples(numbers, FLAGS, numbers, TEXTS)
    return st.lists(row, max_size=12).map(lambda rows: pl.DataFrame(rows, schema=SCHEMA, orient="row"))


def in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns a sort key by which null is first."""
    return tuple((value is not None, 0 if value is None else value) for value in row)


@given(rows(NUMBERS))
def test_packed_integers_compare_as_the_rows_do(frame: pl.DataFrame) -> None:
    columns = frame.drop("text")
    keys = packed(columns)
    assert keys is not None
    both = sorted(zip(map(in_order, columns.rows()), keys.tolist(), strict=True))
    assert all((one[0] == other[0]) == (one[1] == other[1]) for one, other in pairwise(both))
    assert all(one[1] <= other[1] for one, other in pairwise(both))


@given(rows(NUMBERS) | rows(WIDE), st.permutations([*SCHEMA]), st.integers(1, 4))
def test_rows_are_sorted_by_columns_of_any_type_with_null_first(
    frame: pl.DataFrame, names: list[str], count: int
) -> None:
    by = names[:count]
    numbered = frame.with_row_index("number")
    ordered = sorted_by(numbered, [*by, "number"])
    expected = sorted(
        numbered.rows(named=True),
        key=lambda row: in_order(tuple(row[name] for name in by)),
    )
    assert ordered.rows(named=True) == expected


def test_text_and_no_columns_are_not_packed() -> None:
    assert packed(pl.DataFrame({"text": ["a"]})) is None
    assert packed(pl.DataFrame({"a": [1]}).select([])) is None
