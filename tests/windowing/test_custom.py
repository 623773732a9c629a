"""User-defined windows: the windows that their functions assign and merge, and the errors of wrong functions."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.support.examples import share
from tests.support.runs import StageRun, in_order
from tests.support.strategies import Stream, crowded_streams, windowings
from tests.windowing.test_windows import placed, sizes, times, us
from windowing import (
    AfterCount,
    AfterWatermark,
    CustomWindows,
    FixedWindows,
    Sessions,
    SlidingWindows,
    WindowFn,
    Windowing,
)
from windowing.columns import EVENT_TIME, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME
from windowing.windows import RUN

Bounds = tuple[int, int]
Merges = Iterable[tuple[Iterable[Bounds], Bounds]]


class OwnSliding(CustomWindows):
    """Sliding windows, defined by a plain class."""

    def __init__(self, size: int, every: int) -> None:
        self.size, self.every = size, every

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        last = time - time % self.every
        starts = [start for start in range(last, time - self.size, -self.every) if start > time - self.size]
        return [(start, start + self.size) for start in reversed(starts)]


@attrs.frozen
class OwnSessions(CustomWindows):
    """Sessions, defined by an attrs class."""

    gap: int

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        yield (time, time + self.gap)

    def merge_windows(self, windows: list[Bounds]) -> Merges:
        parts: list[Bounds] = []
        for window in windows:
            if parts and window[0] >= max(end for _, end in parts):
                yield parts, (parts[0][0], max(end for _, end in parts))
                parts = []
            parts.append(window)
        if parts:
            yield parts, (parts[0][0], max(end for _, end in parts))


AUCTION = 1_000
"""Auctions are longer than this, bids are not."""


class Auctions(CustomWindows):
    """A bid that is made before its auction ends belongs to it; the auction's window does not change."""

    columns = ("expires",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        return [(time, time + 20 if row["expires"] is None else row["expires"])]

    def merge_windows(self, windows: list[Bounds]) -> Merges:
        for auction in windows:
            if auction[1] - auction[0] > AUCTION:
                yield [window for window in windows if window[0] < auction[1]], auction


class SizedByRow(CustomWindows):
    """Windows whose length is a column of the element."""

    columns = ("sizes",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        return [(time, time + size) for size in row["sizes"]]


def merged(windows: WindowFn, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Returns the rows with the bounds of their merged windows; checks how runs are numbered."""
    ordered = windows.merge(rows, keys)
    assert ordered[RUN].to_list() == sorted(ordered[RUN])
    assert ordered[RUN].unique().to_list() == list(range(1, ordered[RUN].n_unique() + 1))
    bounds = ordered.group_by(RUN, maintain_order=True).agg(
        *(bound.alias(f"run{name}") for name, bound in windows.run_bounds().items()), pl.col("n")
    )
    run = bounds.explode("n").select("n", f"run{WINDOW_START}", f"run{WINDOW_END}")
    return run.sort("n")


def rows_of(windows: list[tuple[Any, int, int]]) -> pl.DataFrame:
    schema = {"k": pl.String, WINDOW_START: pl.Int64, WINDOW_END: pl.Int64}
    return pl.DataFrame(windows, schema, orient="row").with_row_index("n")


# Assignment


@given(st.lists(times, max_size=6), sizes, st.integers(1, 50))
def test_an_element_is_in_the_windows_that_the_function_gives(at: list[int], size: int, period: int) -> None:
    assert placed(OwnSliding(size, period), at) == placed(SlidingWindows(us(size), us(period)), at)


def test_an_element_may_be_in_none_or_several_or_one_given_twice() -> None:
    frame = pl.DataFrame({EVENT_TIME: [1, 2, 3], "sizes": [[5, 9], [], [4, 4]], "other": ["x", "y", "z"]})
    assigned = SizedByRow().assign(frame)
    assert assigned.select("other", *WINDOW_COLUMNS).rows() == [("x", 1, 6), ("x", 1, 10), ("z", 3, 7)]
    assert assigned.columns == [*frame.columns, *WINDOW_COLUMNS, PREVIOUS_END]


def test_windows_that_an_element_had_are_replaced() -> None:
    frame = FixedWindows(us(7)).assign(pl.DataFrame({EVENT_TIME: [1, 2], "sizes": [[5], [6, 7]]}))
    for assigned in (SizedByRow().assign(frame), SizedByRow().assign(frame.lazy()).collect()):
        assert assigned.select(WINDOW_COLUMNS).rows() == [(1, 6), (2, 8), (2, 9)]


@given(st.lists(st.tuples(times, st.lists(sizes, max_size=3)), max_size=5))
def test_a_lazy_frame_gets_the_same_windows(elements: list[tuple[int, list[int]]]) -> None:
    schema = pl.Schema({EVENT_TIME: pl.Int64(), "sizes": pl.List(pl.Int64())})
    frame = pl.DataFrame(elements, schema, orient="row")
    lazy = SizedByRow().assign(frame.lazy())
    assert_frame_equal(lazy.collect(), SizedByRow().assign(frame))
    assert lazy.collect_schema() == lazy.collect().schema
    # Later expressions must not be moved before the function.
    assert_frame_equal(lazy.select(WINDOW_END).collect(), lazy.collect().select(WINDOW_END))
    assert_frame_equal(lazy.head(2).collect(), lazy.collect().head(2))


def test_windows_end_with_time_itself() -> None:
    last = GLOBAL_WINDOW_END - 1
    assert placed(OwnSessions(50), [last]) == [(0, last, GLOBAL_WINDOW_END)]

    class AllOfTime(CustomWindows):
        def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
            return [(-(10**30), 10**30)]

    assert placed(AllOfTime(), [5]) == [(0, MIN_TIME, GLOBAL_WINDOW_END)]


# Merging

key_windows = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-20, 20), st.integers(1, 9)).map(
    lambda given: (given[0], given[1], given[1] + given[2])
)


@given(st.lists(key_windows, max_size=8), st.sampled_from([["k"], []]))
def test_sessions_of_ones_own_are_sessions(windows: list[tuple[Any, int, int]], keys: list[str]) -> None:
    rows = rows_of(windows)
    assert_frame_equal(merged(OwnSessions(5), rows, keys), merged(Sessions(us(5)), rows, keys))


@attrs.frozen
class ByRemainder(CustomWindows):
    """Windows whose starts have the same remainder merge into the last of them, or into a distant window."""

    modulus: int
    elsewhere: bool

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        return [(time, time + 1)]

    def merge_windows(self, windows: list[Bounds]) -> Merges:
        for remainder in range(self.modulus):
            parts = [window for window in windows if window[0] % self.modulus == remainder]
            if len(parts) > 1:
                yield parts, (1000 + remainder, 2000) if self.elsewhere else parts[-1]


@given(st.lists(key_windows, max_size=8), st.integers(1, 4), st.booleans())
def test_windows_merge_as_the_function_says_and_those_it_leaves_out_stay(
    windows: list[tuple[Any, int, int]], modulus: int, elsewhere: bool
) -> None:
    expected = []
    for n, (key, start, end) in enumerate(windows):
        alike = {(s, e) for k, s, e in windows if k == key and (s - start) % modulus == 0}
        result = (1000 + start % modulus, 2000) if elsewhere else max(alike)
        expected.append((n, *(result if len(alike) > 1 else (start, end))))
    assert merged(ByRemainder(modulus, elsewhere), rows_of(windows), ["k"]).rows() == expected


def test_rows_of_a_run_stay_in_order() -> None:
    rows = rows_of([("a", 4, 9), ("a", 2, 7), ("a", 4, 9), ("b", 0, 5)])
    ordered = OwnSessions(5).merge(rows, ["k"])
    assert ordered.select("n", RUN).rows() == [(1, 1), (0, 1), (2, 1), (3, 2)]


def test_bids_merge_into_their_auction_whose_window_stays() -> None:
    #   auction [100-------------------5000)
    #   bid        [200)  [300)                bid [6000): after the end
    elements = [
        ("a", 200, None), ("a", 100, 5000), ("a", 300, None), ("a", 6000, None), ("b", 200, None),
    ]  # fmt: skip
    frame = pl.DataFrame(elements, ["k", EVENT_TIME, "expires"], orient="row").with_row_index("n")
    bounds = merged(Auctions(), Auctions().assign(frame), ["k"]).rows()
    auction = (100, 5000)
    assert bounds == [(0, *auction), (1, *auction), (2, *auction), (3, 6000, 6020), (4, 200, 220)]


# In a grouping


@share(10)
@given(windowings(windows=st.just(Sessions(us(7)))), crowded_streams())
def test_sessions_of_ones_own_group_like_sessions(windowing: Windowing, stream: Stream) -> None:
    own = attrs.evolve(windowing, windows=OwnSessions(7))
    one, other = StageRun(windowing), StageRun(own)
    for bundle in stream:
        expected = in_order(one.step(bundle.elements, bundle.watermark))
        assert in_order(other.step(bundle.elements, bundle.watermark)) == expected


@attrs.frozen
class Bids(CustomWindows):
    """An auction begins at a multiple of a hundred; its window stays as it is when bids join it."""

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Bounds]:
        return [(time, time + (90 if time % 100 == 0 else 20))]

    def merge_windows(self, windows: list[Bounds]) -> Merges:
        for auction in windows:
            if auction[0] % 100 == 0:
                yield [window for window in windows if auction[0] <= window[0] < auction[1]], auction


def test_an_auction_that_comes_after_its_bids_takes_them_and_keeps_its_window() -> None:
    #   auction [0------------------------------------90)
    #   bids      [5----25)               [60----80)        [95-----115)
    run = StageRun(Windowing(Bids(), AfterWatermark(early=AfterCount(1))))
    (bid,) = run.step([("a", 5, 5)], MIN_TIME).panes
    assert (bid.window, bid.timing) == ((5, 25), "early")

    def panes(elements: list[tuple[str, int, int]], watermark: int) -> set[tuple[Any, ...]]:
        found = run.step(elements, watermark).panes
        return {(pane.key, pane.window, tuple(pane.values), pane.timing) for pane in found}

    early = panes([("a", 0, 0), ("b", 7, 60)], MIN_TIME)
    assert early == {("a", (0, 90), (0,), "early"), ("b", (60, 80), (7,), "early")}
    assert panes([("a", 60, 60), ("a", 95, 95)], 90) == {
        ("a", (0, 90), (60,), "early"),
        ("a", (0, 90), (), "on_time"),
        ("a", (95, 115), (95,), "early"),
        ("b", (60, 80), (), "on_time"),
    }


# Declarations


def test_they_say_how_they_lie() -> None:
    sliding, own_sessions = OwnSliding(2, 1), OwnSessions(5)
    assert (sliding.merging, own_sessions.merging, Auctions().merging) == (False, True, True)
    assert (sliding.columns, SizedByRow().columns) == ((), ("sizes",))
    assert (sliding.span, sliding.period) == (None, None)
    assert not own_sessions.merges_in_parts
    assert Sessions("1m").merges_in_parts
    assert FixedWindows("1m").columns == ()


@pytest.mark.parametrize("windows", [OwnSliding(3, 2), OwnSessions(3), Auctions()])
def test_they_are_values_and_can_be_sent(windows: CustomWindows) -> None:
    sent = pickle.loads(pickle.dumps(Windowing(windows)))
    assert sent == Windowing(windows)
    assert hash(sent.windows) == hash(windows)
    assert sent.windows.merging == windows.merging


def test_a_plain_class_is_compared_and_shown_by_its_attributes() -> None:
    assert OwnSliding(3, 2) == OwnSliding(3, 2) != OwnSliding(3, 1)
    assert OwnSliding(3, 2) != OwnSessions(3)
    assert repr(OwnSliding(3, 2)) == "OwnSliding(size=3, every=2)"
    assert repr(OwnSessions(3)) == "OwnSessions(gap=3)"
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        OwnSessions(3).gap = 4  # type: ignore[misc]
