"""The tricky case of overlapping windows (Streaming Systems, chapter 3): two stages of the same sliding windows."""

from __future__ import annotations

from typing import TypeVar

import attrs
import polars as pl

from stages.aggregates import Sum
from stages.grouping import Grouping
from stages.stage import Stage
from stages.state import DictStore
from stages.watermarks import Clock
from tests.strategies import us
from windowing import SlidingWindows, TimestampCombiner, WindowFn, Windowing
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
SCHEMA = pl.Schema({"key": pl.String(), "n": pl.Int64()})
SLIDING = SlidingWindows(us(6), us(2))


@attrs.frozen
class Unadjusted(WindowFn):
    """The same windows, as if they did not overlap: output timestamps are then those of the elements alone."""

    @property
    def span(self) -> int | None:
        return SLIDING.span

    def assign(self, frame: Frame) -> Frame:
        return SLIDING.assign(frame)


def timeline(windows: WindowFn) -> str:
    """Per watermark of the source: the windows (by their end) that each stage completes, and its output watermark.

    There is one element, at 5, in the windows [0, 6), [2, 8) and [4, 10).
    """
    windowing = Windowing(windows, timestamp_combiner=TimestampCombiner.EARLIEST)
    grouping = Grouping(("key",), windowing, {"n": Sum("n")}, SCHEMA)
    first, second, store = Stage("first", grouping), Stage("second", grouping), DictStore()
    elements = pl.DataFrame([("k", 1, 5)], schema={**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
    lines = ["source | stage 1 | stage 2"]
    for watermark in range(5, 11):
        one = first.step(store, elements, Clock(watermark))
        panes = one.panes.select("key", "n", EVENT_TIME, *WINDOW_COLUMNS)
        two = second.step(store, panes, Clock(one.watermarks.output))
        cells = [f"{step.watermarks.output:>2} {_ends(step.panes):4}" for step in (one, two)]
        lines.append(" | ".join([f"{watermark:>6}", *cells]).rstrip())
        elements = elements.clear()
    return "\n".join(lines)


def _ends(panes: pl.DataFrame) -> str:
    return " ".join(str(end) for end in sorted(panes[WINDOW_END]))


def test_a_window_completes_in_both_stages_before_the_next_one_completes_in_the_first() -> None:
    assert timeline(SLIDING) == (
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
