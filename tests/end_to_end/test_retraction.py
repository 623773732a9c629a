"""Retractions end to end over two stages: a pane retracted upstream is subtracted downstream."""

from __future__ import annotations

from itertools import pairwise

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.observe.words import holding_text
from stages.aggregates.builtin import Count, WindowLength
from stages.aggregates.totals import Mean, Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.examples import share
from tests.support.runs import SCHEMA, arrivals
from tests.support.strategies import (
    Bundle,
    Stream,
    fixed_windows,
    sliding_windows,
    streams,
    us,
    usual_triggers,
    windowings,
)
from windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    FixedWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    WindowFn,
    Windowing,
)
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_END, WINDOW_START
from windowing.time import MAX_TIME

PLAYS = pl.Schema({"key": pl.String(), "value": pl.Int64()})
LENGTHS = pl.Schema({"total": pl.Int64(), "length": pl.Float64()})
FOREVER = us(10**12)

SESSIONS = Stage(
    "sessions",
    Grouping(
        ("key",),
        Windowing(
            Sessions(us(5)),
            AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
            Accumulation.RETRACTING,
            TimestampCombiner.EARLIEST,
            FOREVER,
        ),
        {"total": Sum("value"), "length": WindowLength()},
        PLAYS,
    ),
)
"""Every bundle emits panes of all sessions that it touches, and retracts the panes that they replace."""

TOTALS = Stage(
    "totals",
    Grouping(
        (),
        Windowing(FixedWindows(us(20)), accumulation=Accumulation.ACCUMULATING, allowed_lateness=FOREVER),
        {"sessions": Count(), "total": Sum("total"), "mean": Mean("length")},
        LENGTHS,
        retractions=True,
    ),
)


class Chain:
    """Sessions, then totals over all users, as a runner would play them."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.sessions: list[pl.DataFrame] = []
        self.totals: list[pl.DataFrame] = []

    def step(self, bundle: Bundle) -> None:
        arrivals = pl.DataFrame(list(bundle.elements), schema={**PLAYS, EVENT_TIME: pl.Int64()}, orient="row")
        one = SESSIONS.step(self.store, {MAIN: arrivals}, Times.of(bundle.watermark))
        panes = one.panes.select("total", "length", EVENT_TIME, PANE_RETRACTED)
        two = TOTALS.step(self.store, {MAIN: panes}, Times.of(one.watermarks.output))
        self.sessions.append(one.panes)
        self.totals.append(two.panes)


# Any stages

some = share(2)
often = st.integers(1, 2).map(AfterCount)
triggers = st.builds(AfterWatermark, early=often, late=often) | usual_triggers.filter(
    lambda trigger: not trigger.may_finish()
)
long = st.integers(10, 40).map(us)
long_windows = (
    st.builds(FixedWindows, long) | st.builds(SlidingWindows, long, long) | st.builds(Sessions, long)
)
short_windows = fixed_windows | sliding_windows


@attrs.frozen
class Linked:
    """A stage of a chain, and all the panes that it has emitted."""

    stage: Stage
    panes: list[pl.DataFrame] = attrs.field(factory=list)

    def step(self, store: DictStore, arrivals: pl.DataFrame, clock: Times) -> tuple[pl.DataFrame, Times]:
        """Runs one bundle; returns the rows that it sends on and the clock of the next stage. No row of it is late."""
        step = self.stage.step(store, {MAIN: arrivals}, clock)
        self.panes.append(step.panes)
        if arrivals.columns != [*SCHEMA, EVENT_TIME]:
            assert step.dropped["late"] == 0
        total = pl.col("total").alias("value")
        chosen = (pl.col("total") % 2 == 0).alias("chosen")
        sent = step.panes.select("key", total, chosen, EVENT_TIME, PANE_RETRACTED)
        return sent, Times.of(step.watermarks.output, clock.processing_time, step.percentiles)

    def totals(self, windows: WindowFn) -> dict[tuple[int, int], int]:
        """Returns the sum of the panes that were not retracted, by windows of their time."""
        placed = windows.assign(pl.concat(self.panes).drop(WINDOW_START, WINDOW_END))
        return _totals(placed)

    def results(self) -> dict[tuple[int, int], int]:
        """Like `totals`, by the windows of the panes."""
        return _totals(pl.concat(self.panes))


def _totals(panes: pl.DataFrame) -> dict[tuple[int, int], int]:
    signed = pl.when(PANE_RETRACTED).then(-pl.col("total")).otherwise("total").sum()
    grouped = panes.group_by(WINDOW_START, WINDOW_END).agg(signed.alias("total"))
    return {(start, end): total for start, end, total in grouped.rows() if total}


@st.composite
def chains(draw: st.DrawFn) -> list[Linked]:
    """Draws three stages, of which the first two retract replaced panes; allowed lateness never shrinks."""
    links, lateness = [], 0
    for number, windows in enumerate([long_windows, short_windows, short_windows]):
        accumulation = st.just(Accumulation.RETRACTING if number < 2 else Accumulation.DISCARDING)
        windowing = draw(windowings(windows, triggers, accumulation, st.integers(0, 8).map(us)))
        lateness = max(lateness, windowing.allowed_lateness)
        windowing = attrs.evolve(windowing, allowed_lateness=us(lateness))
        total = {"total": Sum("value")}
        grouping = Grouping(("key",), windowing, total, SCHEMA, retractions=number > 0)
        links.append(Linked(Stage(f"stage {number}", grouping)))
    return links


@some
@given(chains(), streams(drained=False))
def test_sums_over_retractions_are_right_in_every_stage(links: list[Linked], stream: Stream) -> None:
    store = DictStore()
    for bundle in (*stream, attrs.evolve(stream[-1], elements=(), watermark=MAX_TIME)):
        clock = Times.of(bundle.watermark, bundle.processing_time, bundle.percentiles)
        sent = arrivals(bundle.elements)
        for link in links:
            sent, clock = link.step(store, sent, clock)
    for before, after in pairwise(links):
        assert after.results() == before.totals(after.stage.operator.windowing.windows)


def test_a_session_that_absorbs_two_others_replaces_both_downstream() -> None:
    chain = Chain()
    chain.step(Bundle((("a", 1, 0), ("a", 2, 8), ("b", 5, 30)), 0))
    chain.step(Bundle((("a", 4, 4),), 0))
    chain.step(Bundle((), 100))
    merged = chain.sessions[1].select("total", PANE_RETRACTED).rows()
    assert merged == [(1, True), (2, True), (7, False)]
    assert [tuple(row) for row in chain.totals[2].select("__window_start", "sessions", "total").rows()] == [
        (0, 1, 7),
        (20, 1, 5),
    ]
    assert chain.totals[2]["mean"].to_list() == [pytest.approx(13e-6), pytest.approx(5e-6)]


def chained(lateness: int, *stages: tuple[WindowFn, AfterWatermark]) -> list[Linked]:
    """Returns stages that retract replaced panes, and whose panes have the time of their earliest element."""
    made = []
    for number, (windows, trigger) in enumerate(stages):
        how = Accumulation.RETRACTING, TimestampCombiner.EARLIEST, us(lateness)
        grouping = Grouping(("key",), Windowing(windows, trigger, *how), {"total": Sum("value")}, SCHEMA)
        made.append(Linked(Stage(f"stage {number}", grouping)))
    return made


def test_a_pane_holds_the_watermark_while_its_window_may_take_it_back() -> None:
    early = AfterWatermark(early=AfterCount(1))
    links = chained(0, (FixedWindows(us(60)), early), (FixedWindows(us(10)), AfterWatermark()))
    store = DictStore()
    for bundle in (Bundle((("a", 1, 5),), 40), Bundle((("a", 2, 45),), 50), Bundle((), MAX_TIME)):
        sent, clock = links[0].step(store, arrivals(bundle.elements), Times.of(bundle.watermark))
        links[1].step(store, sent, clock)
    assert links[1].results() == {(0, 10): 3}  # not also the 1 of the first pane


def test_records_name_the_window_whose_pane_may_be_taken_back() -> None:
    p = bl.Pipeline("held")
    stream = bl.TestStream({"user": str, "at": int}).add_elements([{"user": "ada", "at": 5}])
    rows = p.read("rows", stream.advance_watermark_to(40), timestamp="at", timestamp_unit="s")
    early = {"trigger": bl.AfterWatermark(early=bl.AfterCount(1)), "timestamp_combiner": "earliest"}
    windowed = rows.window_into(bl.FixedWindows("1m"), accumulation="retracting", **early)
    windowed.group_by("user", name="counts").aggregate(n=bl.count()).write("out", bl.Memory())
    stage = p.run().batches[1].stages["counts"]
    window = "[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)"
    assert stage.holder == f"a pane that may be retracted, of key ada in {window}"
    assert stage.window is not None
    assert holding_text(stage.window) == "has a pane that may be retracted"


def test_what_is_taken_back_after_the_window_is_over_is_within_the_lateness_of_the_next_stage() -> None:
    late = AfterWatermark(late=AfterCount(1))
    links = chained(10, (FixedWindows(us(60)), late), (FixedWindows(us(10)), late))
    store = DictStore()
    for bundle in (Bundle((("a", 1, 5),), 65), Bundle((("a", 2, 50),), 65), Bundle((), MAX_TIME)):
        sent, clock = links[0].step(store, arrivals(bundle.elements), Times.of(bundle.watermark))
        links[1].step(store, sent, clock)
    assert links[1].results() == {(0, 10): 3}
