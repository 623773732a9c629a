"""The value of a `Combining`: the aggregates of groupings, also with conditions, in any number of stored states."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from stages.aggregates.base import Aggregate
from stages.process.combining import CombinedRows

SCHEMA = pl.Schema({"value": pl.Int64(), "flag": pl.Boolean()})
ROWS = [{"value": value, "flag": value % 2 == 0} for value in (5, 4, 2, 4, None, 7) if value is not None]
EVERY: dict[str, tuple[Aggregate, Any, Any]] = {
    "count": (bl.count(), 5, 3),
    "sum": (bl.sum("value"), 22, 10),
    "count_distinct": (bl.count_distinct("value"), 4, 2),
    "approx_count_distinct": (bl.approx_count_distinct("value"), 4, 2),
    "collect_set": (bl.collect_set("value"), [2, 4, 5, 7], [2, 4]),
    "mode": (bl.mode("value"), 4, 4),
    "top": (bl.top("value", 2), [7, 5], [4, 4]),
    "arg_max": (bl.arg_max("flag", by="value"), False, True),
    "all": (bl.all("flag"), False, True),
    "var": (bl.var("value"), 3.3, 4 / 3),
}
"""Aggregates, each with its result, and its result over rows whose flag is true."""


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("stored", [False, True])
def test_it_gives_what_a_grouping_does(name: str, stored: bool) -> None:
    aggregate, of_all, of_flagged = EVERY[name]
    flagged = attrs.evolve(aggregate, where=ExpressionOfRows(bl.col("flag")))
    for each, wanted in ((aggregate, of_all), (flagged, of_flagged)):
        combined = CombinedRows(each, SCHEMA, None)
        for row in ROWS:
            combined.add(row)
            if stored:
                combined = CombinedRows(each, SCHEMA, combined.stored())
        found = combined.read()
        assert (found.to_list() if isinstance(found, pl.Series) else found) == wanted
