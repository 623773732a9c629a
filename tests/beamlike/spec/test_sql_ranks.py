"""Ranks in SQL select the rows that DuckDB selects, whatever nulls and NaN are in the columns of ORDER BY."""

from __future__ import annotations

from typing import Any

import duckdb
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import BadQuery

NAN = float("nan")
COLUMNS: dict[str, list[Any]] = {
    "x": [5, None, None, 7, None, 8, 8, -1, None, 7],
    "f": [0.5, NAN, None, -0.0, None, NAN, float("-inf"), 0.0, 1.5, None],
    "s": ["b", None, "", "a", None, "B", "é", None, "a", "b"],
    "b": [True, None, False, None, True, False, None, True, False, None],
    "none": [None] * 10,
}
ROWS = [
    {"id": n, "k": "aabcccbbda"[n], "at": n, **{name: values[n] for name, values in COLUMNS.items()}}
    for n in range(10)
]
FRAME = pl.DataFrame(ROWS, schema_overrides={"none": pl.Int64})

ORDERS = [
    f"{name}{' DESC' if down else ''}{nulls}"
    for name in COLUMNS
    for down in (False, True)
    for nulls in ("", " NULLS FIRST", " NULLS LAST")
]
"""Each column in both directions, with nulls at the default place and at both others."""


def written(order: str) -> str:
    """Returns an order with its default place of nulls: first, or last with DESC, as in Spark."""
    if "NULLS" in order:
        return order
    return f"{order} NULLS {'LAST' if 'DESC' in order else 'FIRST'}"


def both(order: str, rank: str, limit: int) -> tuple[list[Any], list[Any]]:
    """Returns the ids that a query selects here and in DuckDB. The id decides between equal rows."""
    tie = "" if rank == "RANK()" else f", id{' DESC' if 'DESC' in order else ''}"
    tied = tie if not tie or "NULLS" not in order else f"{tie} NULLS {order.split('NULLS ')[1]}"
    query = "SELECT id FROM (SELECT *, {} OVER (PARTITION BY k ORDER BY {}) AS n FROM r) WHERE n <= {}"
    how: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    r = bl.Pipeline("p").read("r", bl.Rows(FRAME), **how)
    here = bl.sql(query.format(rank, order + tied, limit), r=r).collect()["id"].to_list()
    with duckdb.connect() as database:
        database.register("r", FRAME.to_arrow())
        there = database.execute(query.format(rank, written(order) + tied, limit)).fetchall()
    return sorted(here), sorted(one for (one,) in there)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rank", ["ROW_NUMBER()", "RANK()"])
def test_the_first_rows_are_those_of_duckdb(order: str, rank: str) -> None:
    for limit in (1, 2):
        here, there = both(order, rank, limit)
        assert here == there, (order, rank, limit)


def test_columns_with_unlike_places_of_nulls_are_refused() -> None:
    with pytest.raises(BadQuery, match="write NULLS FIRST or NULLS LAST for all columns"):
        both("x NULLS FIRST, f NULLS LAST", "RANK()", 1)
