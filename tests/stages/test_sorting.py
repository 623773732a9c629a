"""Sorted rows, also with nulls and with columns that are constant."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.frames import in_order

SCHEMA = {
    "n": pl.Int64(),
    "flag": pl.Boolean(),
    "text": pl.String(),
    "x": pl.Float64(),
    "s": pl.Struct({"n": pl.Int64()}),
}
VALUES = {
    "n": st.integers(0, 2),
    "flag": st.booleans(),
    "text": st.sampled_from(["", "a", "b"]),
    "x": st.sampled_from([0.0, float("nan"), float("-inf")]),
    "s": st.builds(lambda n: {"n": n}, st.none() | st.integers(0, 1)),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    count = draw(st.integers(0, 6))
    columns: dict[str, list[Any]] = {}
    for name, values in VALUES.items():
        some = draw(st.sampled_from([values, st.none() | values, st.just(draw(values))]))
        columns[name] = draw(st.lists(some, min_size=count, max_size=count))
    return pl.DataFrame(columns, schema=SCHEMA)


@given(
    frames(),
    st.permutations(list(VALUES)),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(1, 5),
)
def test_rows_are_in_the_order_that_polars_gives_with_nulls_last(
    rows: pl.DataFrame, names: list[str], descending: list[bool], some: int
) -> None:
    by, down = names[:some], descending[:some]
    expected = rows.sort(by, descending=down, nulls_last=True).select(by)
    assert in_order(rows, [pl.col(name) for name in by], down).select(by).equals(expected)


def test_without_descending_all_ascend() -> None:
    rows = pl.DataFrame({"n": [2, None, 1], "same": [0, 0, 0]})
    assert in_order(rows, [pl.col("same"), pl.col("n")])["n"].to_list() == [1, 2, None]
