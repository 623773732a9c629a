"""Overlapping windows (the tricky case of Streaming Systems, chapter 3): a window never holds back those before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.examples import share
from tests.support.model import Window
from tests.support.runs import StageRun, advance, play
from tests.support.strategies import Nested, Stream, streams, us
from windowing import CustomWindows, SlidingWindows, TimestampCombiner, TimestampOf, WindowFn, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
SCHEMA = pl.Schema({"key": pl.String(), "n": pl.Int64(), "won": pl.Boolean()})
SLIDING = SlidingWindows(us(6), us(2))


@attrs.frozen
class Unadjusted(WindowFn):
    """Sliding windows that declare no overlap: output timestamps are then those of the elements alone."""

    @property
    def span(self) -> int | None:
        return SLIDING.span

    def assign(self, frame: Frame) -> Frame:
        return SLIDING.assign(frame)


@attrs.frozen
class Own(CustomWindows):
    """User-defined sliding windows."""

    size: int = 6
    every: int = 2

    def assign_windows(self, time: int, row: dict[str, Any]) -> Iterable[Window]:
        last = time - time % self.every
        return [(start, start + self.size) for start in range(last, time - self.size, -self.every)]


@attrs.frozen
class Told(Own):
    """User-defined sliding windows that define where the previous window ends."""

    def previous_end(self, window: Window) -> int:
        return window[1] - self.every


def timeline(
    windows: WindowFn, combiner: TimestampCombiner | TimestampOf = TimestampCombiner.EARLIEST
) -> str:
    """Returns, per watermark, the windows (by their end) that each stage completes, and its output watermark.

    There is one element, at 5, in the windows [0, 6), [2, 8) and [4, 10).
    """
    windowing = Windowing(windows, timestamp_combiner=combiner)
    after = Windowing(windows, timestamp_combiner=TimestampCombiner.EARLIEST)
    first, second = (
        Stage(name, Grouping(("key",), choices, {"n": Sum("n")}, SCHEMA))
        for name, choices in {"first": windowing, "second": after}.items()
    )
    store = DictStore()
    elements = pl.DataFrame([("k", 1, True, 5)], schema={**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
    lines = ["source | stage 1 | stage 2"]
    for watermark in range(5, 11):
        one = first.step(store, {MAIN: elements}, Times.of(watermark))
        panes = one.panes.select("key", "n", EVENT_TIME, *WINDOW_COLUMNS)
        two = second.step(store, {MAIN: panes}, Times.of(one.watermarks.output))
        cells = [f"{step.watermarks.output:>2} {_ends(step.panes):4}" for step in (one, two)]
        lines.append(" | ".join([f"{watermark:>6}", *cells]).rstrip())
        elements = elements.clear()
    return "\n".join(lines)


def _ends(panes: pl.DataFrame) -> str:
    return " ".join(str(end) for end in sorted(panes[WINDOW_END]))


COMBINERS = (TimestampCombiner.EARLIEST, TimestampOf("won"))


@pytest.mark.parametrize("windows", [SLIDING, Own(), Told()])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_a_window_completes_in_both_stages_before_the_next_one_completes_in_the_first(
    windows: WindowFn, combiner: TimestampCombiner | TimestampOf
) -> None:
    assert timeline(windows, combiner) == (
        "source | stage 1 | stage 2\n"
        "     5 |  5      |  5\n"
        "     6 |  6 6    |  6 6\n"
        "     7 |  6      |  6\n"
        "     8 |  8 8    |  8 8\n"
        "     9 |  8      |  8\n"
        "    10 | 10 10   | 10 10"
    )


def test_without_the_adjustment_all_windows_of_the_second_stage_wait_for_the_last_of_the_first() -> None:
    assert timeline(Unadjusted()) == (
        "source | stage 1 | stage 2\n"
        "     5 |  5      |  5\n"
        "     6 |  5 6    |  5\n"
        "     7 |  5      |  5\n"
        "     8 |  5 8    |  5\n"
        "     9 |  5      |  5\n"
        "    10 | 10 10   | 10 6 8 10"
    )


law = share(5)
sizes = st.integers(1, 12)
combiners = st.sampled_from([*TimestampCombiner, TimestampOf("chosen")])


@law
@given(sizes, sizes, combiners, st.sampled_from([Own, Told]), streams())
def test_sliding_windows_of_ones_own_give_the_same_as_those_that_are_built_in(
    size: int, every: int, combiner: TimestampCombiner | TimestampOf, own: type[Own], stream: Stream
) -> None:
    built_in = Windowing(SlidingWindows(us(size), us(every)), timestamp_combiner=combiner)
    assert play(StageRun(Windowing(own(size, every), timestamp_combiner=combiner)), stream) == play(
        StageRun(built_in), stream
    )


@law
@given(
    st.builds(Own, sizes, st.integers(1, 4)) | st.builds(Nested, sizes),
    st.sampled_from([TimestampCombiner.EARLIEST, TimestampOf("chosen")]),
    streams(),
)
def test_no_window_holds_what_is_downstream_of_those_before_it(
    windows: Own | Nested, combiner: TimestampCombiner | TimestampOf, stream: Stream
) -> None:
    """The output watermark advances to the end of the last window that is over."""
    every = windows.every if isinstance(windows, Own) else windows.size
    ends_at = windows.size % every  # up to a multiple of `every`
    run = StageRun(Windowing(windows, timestamp_combiner=combiner))
    for bundle in stream:
        step = advance(run, bundle)
        last_end = bundle.watermark - (bundle.watermark - ends_at) % every
        assert step.output_watermark >= last_end


class Shifts(bl.CustomWindows):
    """Two shifts a day, of thirteen hours in seconds, that hand over for an hour."""

    def assign_windows(self, time, row):
        second = 1_000_000
        start = time - time % (12 * second)
        handing_over = [(start - 12 * second, start + second)] if time < start + second else []
        return [*handing_over, (start, start + 13 * second)]


@pytest.mark.parametrize("between", [False, True])
def test_on_the_way_to_a_grouping_an_element_keeps_what_its_windows_said(between):
    """The timestamps are the same if the grouping assigns the windows and if an earlier step does."""
    stream = bl.TestStream({"won": bool, "at": int}).add_elements([{"won": True, "at": 12}])
    plays = bl.Pipeline("shifts").read("plays", stream, timestamp="at", timestamp_unit="s")
    rows = plays.window_into(Shifts(), timestamp_combiner=bl.timestamp_of("won"))
    if between:
        rows = rows.filter(bl.col("won")).map(lambda row: row).select("won")
    out, sent = bl.Memory(), bl.Memory()
    rows.write("sent", sent)
    rows.aggregate(n=bl.count()).write("out", out)
    rows.pipeline.run()
    assert "__previous_end" not in sent.frame().columns
    times = out.frame().sort("window_end")["event_time"]
    assert [time.second for time in times] == [12, 13]
