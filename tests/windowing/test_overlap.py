"""Arrivals that overlap existing windows, compared with a check of all pairs; the search is one sort."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.grouping.grouping import Grouping
from stages.state.buckets import BUCKET
from stages.state.due_soon import MAYBE_OVERLAPS, DueSoonBuffer
from tests.support.strategies import us
from windowing import Sessions, Windowing
from windowing.columns import WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.overlap import merges_with, merges_with_any

KEYS = ("device", "user")
SESSIONS = Sessions(us(1))
Row = tuple[float | None, str | None, int, int]

keys = st.tuples(st.sampled_from([None, math.nan, 0.0, 1.0]), st.sampled_from([None, "", "a"]))
spans = st.tuples(st.integers(-20, 40), st.integers(1, 30)).map(lambda span: (span[0], sum(span)))


def frame(rows: list[Row]) -> pl.DataFrame:
    schema = {"device": pl.Float64(), "user": pl.String(), **dict.fromkeys(WINDOW_COLUMNS, pl.Int64())}
    return pl.DataFrame(rows, schema=schema, orient="row")


@st.composite
def overlapping(draw: st.DrawFn) -> list[Row]:
    """Draws windows as they are in state: a closed session may overlap any other."""
    return [(*draw(keys), *draw(spans)) for _ in range(draw(st.integers(0, 12)))]


@st.composite
def disjoint(draw: st.DrawFn) -> list[Row]:
    """Draws arrivals that have been merged with each other, shuffled."""
    rows = []
    for key in draw(st.lists(keys, max_size=5, unique_by=str)):
        cuts = sorted(draw(st.sets(st.integers(-20, 60), max_size=10)))
        rows += [(*key, *window) for window in pairwise(cuts) if draw(st.booleans())]
    return draw(st.permutations(rows))


def overlap(one: Row, other: Row) -> bool:
    same = str(one[:2]) == str(other[:2])  # NaN is a key, too
    return same and one[2] < other[3] and other[2] < one[3]


@given(disjoint(), overlapping())
def test_arrivals_reach_the_rows_whose_windows_they_overlap(arrivals: list[Row], rows: list[Row]) -> None:
    sessions = Grouping(KEYS, Windowing(SESSIONS), {}, frame([]).schema)
    buffer = DueSoonBuffer(
        frame(rows).with_columns(pl.lit(False).alias(MAYBE_OVERLAPS), pl.lit(0).alias(BUCKET)), sessions
    )
    expected = [any(overlap(arrival, row) for row in rows) for arrival in arrivals]
    reached = buffer.matches(frame(arrivals))
    assert ([False] * len(arrivals) if reached is None else reached.to_list()) == expected


@given(overlapping(), overlapping(), st.sampled_from([KEYS, ("user",), ()]))
def test_rows_meet_others_also_over_rows_between_them(
    rows: list[Row], others: list[Row], names: tuple[str, ...]
) -> None:
    def seen(row: Row) -> Row:
        device, user, *span = row
        return (device if "device" in names else None, user if "user" in names else None, *span)

    met, waiting = [seen(row) for row in others], [seen(row) for row in rows]
    while any(reached := [any(overlap(row, other) for other in met) for row in waiting]):
        met += [row for row, hit in zip(waiting, reached, strict=True) if hit]
        waiting = [row for row, hit in zip(waiting, reached, strict=True) if not hit]
    expected = [str(seen(row)) not in map(str, waiting) for row in rows]
    assert merges_with(frame(rows), frame(others), SESSIONS, names).to_list() == expected


@given(overlapping(), overlapping(), st.sampled_from([KEYS, ()]))
def test_rows_in_company_are_those_that_overlap_another(
    rows: list[Row], more: list[Row], names: tuple[str, ...]
) -> None:
    everything = [row if names else (None, None, *row[2:]) for row in [*rows, *more]]
    expected = [
        any(overlap(row, other) for number, other in enumerate(everything) if number != place)
        for place, row in enumerate(everything[: len(rows)])
    ]
    assert merges_with_any(frame(rows), frame(more), SESSIONS, names).to_list() == expected


def test_a_key_with_everything_takes_no_pairs() -> None:
    """A search by pairs would compare ten thousand million of them."""
    starts = 3 * np.arange(100_000)
    there = pl.DataFrame({"user": "a", WINDOW_START: starts, WINDOW_END: starts + 1})
    come = there.with_columns(pl.col(*WINDOW_COLUMNS) + (pl.int_range(pl.len()) % 2))
    met = merges_with(come, there, SESSIONS, ("user",))
    assert met.to_list() == [True, False] * 50_000
