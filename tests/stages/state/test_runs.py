"""Append-only state that is looked up by key: sorted runs, of which small ones are merged into larger ones."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.base import LEFT
from stages.joins.lasting import RetainedRows
from stages.operator import HOLD, PENDING
from stages.state.runs import FAN, LEVEL, RUN, Runs
from stages.state.store import DictStore
from stages.state.tables import open_table
from windowing.clocks import Times
from windowing.columns import EVENT_TIME

KEPT = RetainedRows(
    LEFT, ("key", "other"), pl.Schema({"key": pl.Int64(), "other": pl.String(), LEFT: pl.Int64()})
)

Row = tuple[int | None, str | None, int]


def frame(rows: list[Row]) -> pl.DataFrame:
    nothing = [pl.lit(0, pl.Int64).alias(name) for name in (EVENT_TIME, PENDING)]
    columns = pl.DataFrame(rows, {"key": pl.Int64(), "other": pl.String(), LEFT: pl.Int64()}, orient="row")
    return columns.with_columns(*nothing, pl.lit(None, pl.Int64).alias(HOLD)).select(list(KEPT.table.schema))


def kept(store: DictStore) -> Runs:
    runs = open_table(store, "stage", KEPT)
    assert isinstance(runs, Runs)
    return runs


def put(store: DictStore, rows: list[Row]) -> None:
    kept(store).append(frame(rows), Times()).save(store, "stage")


key, other = st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["x", "y"])
rows = st.lists(st.tuples(key, other, st.integers(0, 99)), max_size=6)


@given(st.lists(rows, max_size=3 * FAN), st.lists(st.tuples(key, other), max_size=4), st.sampled_from([0, 8]))
def test_what_is_found_is_what_was_added_with_these_keys(
    batches: list[list[Row]], asked: list[tuple[int | None, str | None]], few_of: int
) -> None:
    store = DictStore()
    for batch in batches:
        put(store, batch)
    keys = pl.DataFrame(asked, {"key": pl.Int64(), "other": pl.String()}, orient="row")
    everything = [row for batch in batches for row in batch]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.state.runs.FEW_OF", few_of)  # with 0, all rows are found by their hashes
        kept(store).lookup(keys)
        found = kept(store).lookup(keys).select("key", "other", LEFT).rows()
    assert sorted(found) == sorted(row for row in everything if row[:2] in asked and None not in row[:2])
    assert sorted(kept(store).everything()[LEFT]) == sorted(row[2] for row in everything)


def test_eight_runs_become_one_and_what_they_were_is_removed() -> None:
    store = DictStore()
    for number in range(FAN * FAN + 1):
        put(store, [(number, "x", number)])
    index = kept(store).index
    assert index.buckets.select(RUN, LEVEL, "rows").sort(RUN)[[LEVEL, "rows"]].rows() == [
        (2, FAN * FAN),
        (0, 1),
    ]
    assert len(store.values) == 1 + 2
    assert index.rows == FAN * FAN + 1
