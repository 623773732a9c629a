"""The sweep that merges the overlapping windows of a key, compared with a loop over the windows of each key."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windowing import sweep
from windowing.columns import WINDOW_COLUMNS
from windowing.sweep import begins_run, by_key_and_start
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

SCHEMA = pl.Schema({"k": pl.String(), "n": pl.Int64(), **dict.fromkeys(WINDOW_COLUMNS, pl.Int64())})

near = st.integers(-20, 20)
ever = st.sampled_from([MIN_TIME, MIN_TIME + 1, -1, 0, 1, GLOBAL_WINDOW_END - 1, GLOBAL_WINDOW_END])
spans = st.tuples(near | ever, near | ever).filter(lambda span: span[0] < span[1])
rows_of_keys = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 1), spans), max_size=12
)


def frame(rows: list[tuple[str | None, int | None, tuple[int, int]]]) -> pl.DataFrame:
    return pl.DataFrame([(k, n, *span) for k, n, span in rows], SCHEMA, orient="row")


def swept(rows: pl.DataFrame, keys: list[str]) -> list[list[tuple[object, ...]]]:
    """Returns the rows of each merged window, in the order of the sweep."""
    ordered, begins = by_key_and_start(rows, keys)
    start, end = (ordered[column].to_numpy() for column in WINDOW_COLUMNS)
    runs: list[list[tuple[object, ...]]] = []
    for row, new in zip(ordered.rows(), begins_run(begins, start, end), strict=True):
        if new:
            runs.append([])
        runs[-1].append(row)
    return runs


def by_hand(rows: pl.DataFrame, keys: list[str]) -> list[list[tuple[object, ...]]]:
    """Returns the rows of each merged window, by a loop over the windows of each key in order of their starts."""
    runs = []
    for part in rows.partition_by(keys, maintain_order=True) if keys else [rows]:
        until = None
        for row in sorted(part.rows(), key=lambda row: row[2]):
            if until is None or row[2] >= until:
                runs.append([row])
                until = row[3]
            else:
                runs[-1].append(row)
                until = max(until, row[3])
    return runs


def in_any_order(runs: list[list[tuple[object, ...]]]) -> list[str]:
    """Returns runs as sorted texts: hashes determine the order of runs, but the order of their rows is significant."""
    return sorted(map(repr, runs))


@pytest.mark.parametrize("few", [0, 1_000])
@pytest.mark.parametrize("keys", [[], ["k"], ["k", "n"]])
@given(rows=rows_of_keys)
def test_windows_that_overlap_are_one_run(
    few: int, keys: list[str], rows: list[tuple[str | None, int | None, tuple[int, int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "_FEW", few)  # both ways of sorting give one order
        assert in_any_order(swept(frame(rows), keys)) == in_any_order(by_hand(frame(rows), keys))


def test_both_sorts_give_one_order() -> None:
    random = np.random.default_rng(7)
    times = random.integers(-50, 50, 500)
    columns = {"k": random.integers(0, 40, 500), "n": np.arange(500)}
    rows = pl.DataFrame({**columns, WINDOW_COLUMNS[0]: times, WINDOW_COLUMNS[1]: times + 3})
    few, _ = by_key_and_start(rows, ["k"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "_FEW", 0)
        many, _ = by_key_and_start(rows, ["k"])
    assert few.equals(many)
