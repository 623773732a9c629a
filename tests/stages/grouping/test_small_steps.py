"""Small steps, which are computed without a query, have the same results as queries."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Count, WindowLength
from stages.aggregates.totals import Sum
from stages.grouping import merging
from stages.grouping.firing import deadline
from stages.grouping.grouping import Grouping
from stages.grouping.layout import CLOSED
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.chunks import Chunk, is_chunk, unpack
from stages.state.store import DictStore
from tests.support.model import MAX_TIME, Model
from tests.support.runs import SCHEMA, StageRun, arrivals, play
from tests.support.strategies import Bundle, Stream, sessions, streams, us, windowings
from windowing import DefaultTrigger, FixedWindows, Never, Sessions, Trigger, WindowFn, Windowing
from windowing.clocks import WATERMARK, Times
from windowing.columns import WINDOW_END
from windowing.time import GLOBAL_WINDOW_END
from windowing.triggers.base import TriggerContext

PLAIN: Mapping[str, Aggregate] = {"n": Count(), "total": Sum("value")}
NONE: Mapping[str, Aggregate] = {"length": WindowLength()}


def late(watermark: int) -> Stream:
    """Returns a stream in which a window gets an element after its end, and another window gets its first one."""
    elements = (("a", 2, 5), ("b", 3, 1))
    return Bundle((("a", 1, 0),), watermark), Bundle(elements, watermark), Bundle((), MAX_TIME)


def sessions_of(trigger: Trigger) -> Windowing:
    return Windowing(Sessions(us(10)), trigger, allowed_lateness=us(40), allow_data_loss=True)


def played(
    windowing: Windowing, stream: Stream, aggregates: Mapping[str, Aggregate]
) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    """Returns the panes of each step, and the state at the end, in frames."""
    grouping, store = Grouping(("key",), windowing, aggregates, SCHEMA), DictStore()
    stage, panes = Stage("grouping", grouping), list[pl.DataFrame]()
    for bundle in stream:
        to = Times.of(bundle.watermark, bundle.processing_time, bundle.percentiles)
        panes.append(stage.step(store, {MAIN: arrivals(bundle.elements)}, to).panes)
    chunks = [Chunk.of(value) for (_, key), value in sorted(store.values.items()) if is_chunk(key)]
    frames = [unpack([chunk], grouping.table.schema)[0] for chunk in chunks]
    return panes, [frame.sort(pl.all()) for frame in frames]


def with_queries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merging, "_is_unnumbered", lambda rows: False)
    patch.setattr(merging, "_must_hold", lambda merged, layout, context: True)
    patch.setattr(TriggerContext, "any_over", lambda context, ends: True)


@given(
    windowings() | windowings(windows=sessions) | windowings(trigger=st.just(DefaultTrigger())),
    streams(),
    st.sampled_from([PLAIN, NONE]),
)
@example(sessions_of(DefaultTrigger()), late(12), NONE)
@example(sessions_of(Never()), late(20), PLAIN)
def test_a_step_without_queries_agrees_with_its_queries(
    windowing: Windowing, stream: Stream, aggregates: Mapping[str, Aggregate]
) -> None:
    found = played(windowing, stream, aggregates)
    with pytest.MonkeyPatch.context() as patch:
        with_queries(patch)
        expected = played(windowing, stream, aggregates)
    for frames, others in zip(found, expected, strict=True):
        for one, other in zip(frames, others, strict=True):
            assert_frame_equal(one, other)


@pytest.mark.parametrize("trigger", [DefaultTrigger(), Never()])
@pytest.mark.parametrize("windows", [Sessions(us(10)), FixedWindows(us(10))])
@pytest.mark.parametrize("watermark", [12, 20])
def test_late_elements_of_windows_that_are_over_agree_with_the_model(
    windows: WindowFn, trigger: Trigger, watermark: int
) -> None:
    windowing = Windowing(windows, trigger, allowed_lateness=us(40), allow_data_loss=True)
    assert play(StageRun(windowing), late(watermark)) == play(Model(windowing), late(watermark))


@given(st.lists(st.integers(-20, 40), min_size=1, max_size=6), st.integers(-20, 45), st.booleans())
@example([GLOBAL_WINDOW_END], GLOBAL_WINDOW_END, False)
def test_windows_that_emit_at_their_end_are_due_then(ends: list[int], watermark: int, closed: bool) -> None:
    grouping = Grouping(("key",), Windowing(FixedWindows("1s"), DefaultTrigger()), PLAIN, SCHEMA)
    rows = pl.DataFrame(
        {WINDOW_END: ends, CLOSED: [closed] * len(ends)}, {WINDOW_END: pl.Int64, CLOSED: pl.Boolean}
    )
    times = Times.of(watermark)
    expected = deadline(grouping.layout, TriggerContext(times.times), WATERMARK)
    (due,) = grouping.deadlines(times).values()
    assert_frame_equal(rows.select(due.alias("due")), rows.select(expected.alias("due")))
