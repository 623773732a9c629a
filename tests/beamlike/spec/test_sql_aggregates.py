"""Aggregates in SQL are those of DuckDB, also of groups without values."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import polars as pl
import pytest

import beamlike as bl

VALUES: dict[str, list[Any]] = {
    "k": ["some", "some", "some", "one", "none", "none", "even", "even"],
    "v": [1, None, 100, 7, None, None, -3, 10],
    "f": [0.5, None, -0.25, 1e10, None, None, 2.0, 2.0],
    "b": [True, None, False, True, None, None, False, False],
}
FRAME = pl.DataFrame({**VALUES, "at": range(8)})
EXACT = [
    *(f"{name}({column})" for name in ("SUM", "MIN", "MAX", "AVG", "MEDIAN") for column in ("v", "f")),
    *("SUM(v) + 1", "COALESCE(SUM(v), -1)", "SUM(v) / COUNT(*)", "SUM(v) IS NULL", "SUM(v * 2)", "COUNT(v)"),
    *("BOOL_OR(b)", "BOOL_AND(b)", "COALESCE(BOOL_AND(b), FALSE)", "SUM(HOUR(TIMESTAMP '2024-01-01 23:00:00') * 60)"),
    *("SUM(v) FILTER (WHERE v > 5)", "BOOL_AND(b) FILTER (WHERE v > 5)", "MEDIAN(v) FILTER (WHERE v < 50)"),
    *("SUM(v) + SUM(v) FILTER (WHERE b)", "VARIANCE(v)", "STDDEV(f)", "COUNT(*) FILTER (WHERE LENGTH(k) - 10 < 0)"),
]  # fmt: skip


def here(what: str, having: str = "") -> list[Any]:
    """Returns each group and its result."""
    how: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    r = bl.Pipeline("p").read("r", bl.Rows(FRAME), **how)
    query = f"SELECT k, {what} AS x FROM r GROUP BY k{having}"
    return bl.sql(query, r=r).collect().select("k", "x").sort("k").rows()


def there(what: str, having: str = "") -> list[Any]:
    """Returns each group and its result in DuckDB."""
    with duckdb.connect() as database:
        database.register("r", FRAME.to_arrow())
        found = database.execute(f"SELECT k, {what} AS x FROM r GROUP BY k{having} ORDER BY k")
        return found.fetchall()


@pytest.mark.parametrize("what", EXACT)
def test_aggregates_of_groups_with_and_without_values_are_those_of_duckdb(what: str) -> None:
    ours, theirs = here(what), there(what)
    assert [key for key, _ in ours] == [key for key, _ in theirs]
    for (key, one), (_, other) in zip(ours, theirs, strict=True):
        assert one == other or math.isclose(one, other, rel_tol=1e-12), (key, one, other)


@pytest.mark.parametrize("having", ["SUM(v) > 5", "SUM(v) IS NULL", "NOT BOOL_OR(b)"])
def test_a_condition_on_groups_knows_that_nothing_has_no_sum(having: str) -> None:
    assert here("COUNT(*)", f" HAVING {having}") == there("COUNT(*)", f" HAVING {having}")


def test_a_quantile_is_interpolated_and_its_estimate_is_named_as_one() -> None:
    found = dict(here("QUANTILE(v, 0.25)"))
    assert found == {"even": 0.25, "none": None, "one": 7.0, "some": 25.75}
    about = dict(here("APPROX_QUANTILE(v, 0.5)"))["one"]
    assert about != 7.0
    assert math.isclose(about, 7.0, rel_tol=0.01)
