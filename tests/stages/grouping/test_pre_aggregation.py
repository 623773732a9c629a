"""Pre-aggregation before the shuffle changes only the number of rows that are sent."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import beamlike as bl
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.io import output_frame
from beamlike.runtime.batch.messages import Kind
from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Collect, Count, First, Last, Max, Min, WindowLength
from stages.aggregates.combine_fn import Combine, CombineFn
from stages.aggregates.counted import CountDistinct, Median, Mode
from stages.aggregates.distinct import ApproxCountDistinct
from stages.aggregates.flags import All
from stages.aggregates.ranked import ArgMax, Sample, Top
from stages.aggregates.spread import Var
from stages.aggregates.totals import Mean, Sum
from stages.grouping import pre_aggregation as lifting
from stages.grouping.grouping import Grouping
from stages.grouping.pre_aggregation import count_elements, pre_aggregate, pre_aggregate_if_smaller
from stages.operator import MAIN
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.examples import share
from tests.support.model import Element
from tests.support.runs import SCHEMA, arrivals
from tests.support.shards import Query
from tests.support.strategies import (
    Bundle,
    calendar_windows,
    crowded_streams,
    cumulative_windows,
    custom_windows,
    fixed_windows,
    scattered_streams,
    sessions,
    sliding_windows,
    streams,
    us,
    windowings,
)
from windowing import (
    CumulativeWindows,
    FixedWindows,
    GlobalWindows,
    SlidingWindows,
    TimestampCombiner,
    Windowing,
)
from windowing.clocks import Times
from windowing.columns import PANE_RETRACTED, WINDOW_END, WINDOW_START
from windowing.time import MAX_TIME

AGGREGATES: dict[str, Aggregate] = {
    "n": Count(),
    "known": Count("value"),
    "total": Sum("value"),
    "mean": Mean("value"),
    "least": Min("value"),
    "most": Max("value"),
    "first": First("value"),
    "last": Last("value"),
    "length": WindowLength(),
    "positive": Sum("value", where=ExpressionOfRows(bl.col("value") > 0)),
    "distinct": CountDistinct("value"),
    "about": ApproxCountDistinct("value"),
    "spread": Var("value"),
    "often": Mode("value"),
    "median": Median("value"),
    "top": Top(["value", "chosen"], 2, by="value"),
    "best": ArgMax("value", by="chosen"),
    "some": Sample("value", 2),
    "all": All("chosen"),
}
some = share(2)
times_of_windows = st.sampled_from([TimestampCombiner.END_OF_WINDOW, TimestampCombiner.LATEST])
windows = st.one_of(
    fixed_windows, sliding_windows, cumulative_windows, st.builds(GlobalWindows), calendar_windows
)
lifted_early = st.builds(
    lambda windowing, combiner: attrs.evolve(windowing, timestamp_combiner=combiner),
    windowings(windows=windows),
    times_of_windows,
)


@attrs.define
class Whole:
    """A stage that receives the elements of each bundle unchanged."""

    grouping: Grouping
    store: DictStore = attrs.field(factory=DictStore)

    def step(self, bundle: Bundle) -> StageResult:
        clock = Times.of(bundle.watermark, bundle.processing_time, bundle.percentiles)
        return Stage("grouping", self.grouping).step(
            self.store, {MAIN: self.arrivals(bundle.elements)}, clock
        )

    def arrivals(self, elements: tuple[Element, ...]) -> pl.DataFrame:
        return arrivals(elements).select(*self.grouping.columns, "__event_time")


@attrs.define
class InTasks(Whole):
    """A stage that receives elements in chunks, some of them pre-aggregated; it pre-aggregates the rest."""

    data: st.DataObject = attrs.field(kw_only=True)

    def arrivals(self, elements: tuple[Element, ...]) -> pl.DataFrame:
        cuts = self.data.draw(st.lists(st.integers(0, len(elements)), max_size=3), label="cuts")
        bounds = [0, *sorted(cuts), len(elements)]
        chunks = [elements[start:end] for start, end in pairwise(bounds)]
        early = [self.data.draw(st.booleans(), label="lifted") for _ in chunks]
        frames = [super(InTasks, self).arrivals(chunk) for chunk in chunks]
        if any(early):
            frames = [pre_aggregate(frame, self.grouping.layout) for frame in frames]
        return pl.concat(frames)


def grouping(windowing: Windowing, **named: Any) -> Grouping:
    return Grouping(("key",), windowing, named.pop("aggregates", AGGREGATES), SCHEMA, **named)


def assert_same(step: StageResult, expected: StageResult) -> None:
    order = ["key", WINDOW_START, WINDOW_END, "__pane_index", PANE_RETRACTED]
    assert_frame_equal(step.panes.sort(order), expected.panes.sort(order), check_exact=True)
    for fact in ("watermarks", "dropped", "holder", "elements", "live", "keys", "percentiles"):
        assert getattr(step, fact) == getattr(expected, fact), fact


# Exactness


@some
@given(lifted_early, streams() | scattered_streams() | crowded_streams(), st.data())
def test_lifted_chunks_give_what_their_elements_give(
    windowing: Windowing, stream: Iterable[Bundle], data: st.DataObject
) -> None:
    whole, in_tasks = Whole(grouping(windowing)), InTasks(grouping(windowing), data=data)
    assert whole.grouping.may_pre_aggregate
    for bundle in stream:
        assert_same(in_tasks.step(bundle), whole.step(bundle))


@given(lifted_early, st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(-20, 40))))
def test_a_lifted_chunk_has_a_row_per_key_and_window_and_counts_every_element_once(
    windowing: Windowing, elements: list[Element]
) -> None:
    lifted = pre_aggregate(arrivals(elements), grouping(windowing).layout)
    assert count_elements(lifted) == len(elements)
    assert lifted.select("key", WINDOW_START, WINDOW_END).is_unique().all()


@pytest.mark.parametrize(("keys", "rows"), [(20, 2 * 60), (500, 1_200)])
def test_a_chunk_is_lifted_where_at_most_half_as_many_rows_are_left(keys: int, rows: int) -> None:
    elements = [(str(number % keys), number, number // 20) for number in range(1_200)]
    windowing = Windowing(SlidingWindows(us(60), us(30)), timestamp_combiner=TimestampCombiner.LATEST)
    frame = arrivals(elements)
    sent = pre_aggregate_if_smaller(frame, grouping(windowing).layout)
    assert count_elements(sent) == len(frame)
    assert (sent is frame) == (rows == len(frame))
    assert len(sent) <= rows


# Slices


@some
@given(
    st.builds(
        lambda windowing, combiner: attrs.evolve(windowing, timestamp_combiner=combiner),
        windowings(windows=sliding_windows | cumulative_windows),
        times_of_windows,
    ),
    streams() | crowded_streams(),
    st.data(),
)
def test_folding_slices_first_changes_nothing(
    windowing: Windowing, stream: Iterable[Bundle], data: st.DataObject
) -> None:
    aggregates = {name: one for name, one in AGGREGATES.items() if not one.ordered}
    whole = Whole(grouping(windowing, aggregates=aggregates))
    in_tasks = InTasks(grouping(windowing, aggregates=aggregates), data=data)
    for bundle in stream:
        expected = whole.step(bundle)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lifting, "LEAST_ROWS", 0)
            patch.setattr(lifting, "_at_most", lambda *_: True)
            patch.setattr(__name__ + ".pre_aggregate", pre_aggregate_if_smaller)
            assert_same(in_tasks.step(bundle), expected)


@given(sliding_windows | cumulative_windows, st.lists(st.integers(-200, 200), min_size=1))
def test_times_of_a_slice_are_in_the_same_windows(
    windows: SlidingWindows | CumulativeWindows, times: list[int]
) -> None:
    start = windows.slice_start()
    if start is None:
        assert isinstance(windows, SlidingWindows)
        assert windows.period >= windows.size
        return
    frame = pl.DataFrame({"time": times, "__event_time": times}, schema_overrides={"__event_time": pl.Int64})
    sliced = frame.with_columns(start.alias("__event_time"))
    assert_frame_equal(
        windows.assign(frame).drop("__event_time"), windows.assign(sliced).drop("__event_time")
    )
    assert (sliced["__event_time"] <= frame["time"]).all()
    slices = frame.with_columns(start.alias("slice")).group_by("slice").agg(pl.col("time").min())
    assert (slices["slice"] <= slices["time"]).all()


def test_rows_of_a_slice_are_spread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = list[int]()
    assign = SlidingWindows.assign
    monkeypatch.setattr(
        SlidingWindows, "assign", lambda self, frame: spread.append(len(frame)) or assign(self, frame)
    )
    elements = [("a", number, number // 100) for number in range(6_000)]
    step = Whole(
        grouping(Windowing(SlidingWindows(us(50), us(10))), aggregates={"n": Count(), "most": Max("value")})
    ).step(Bundle(tuple(elements), MAX_TIME))
    assert spread == [6]
    assert step.panes["n"].sum() == 5 * 6_000
    assert step.elements == 6_000


def test_rows_that_have_their_windows_stay_in_them() -> None:
    p, out = bl.Pipeline("hot"), bl.Memory()
    rows = [{"k": number, "at": number % 60} for number in range(3_000)]
    source = bl.Rows(rows)
    read = p.read(
        "rows", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1m")
    )
    counts = read.window_into(bl.SlidingWindows("20s", "5s")).group_by("k").aggregate(n=bl.count())
    counts.aggregate(keys=bl.count(), n=bl.sum("n")).write("out", out)
    p.run()
    found = out.frame().select(start=pl.col("window_start").dt.epoch("s"), keys="keys", n="n").rows()
    expected = {start: sum(start <= row["at"] < start + 20 for row in rows) for start in range(-15, 60, 5)}
    assert sorted(found) == [(start, count, count) for start, count in expected.items()]


# Rows that are not pre-aggregated


class Joined(CombineFn):
    def create_accumulator(self) -> str:
        return ""


@pytest.mark.parametrize(
    "other",
    [
        grouping(Windowing(FixedWindows(us(9)), timestamp_combiner=TimestampCombiner.EARLIEST)),
        grouping(Windowing(FixedWindows(us(9))), late_columns=("key", "value")),
        grouping(Windowing(FixedWindows(us(9))), aggregates={"all": Collect("value")}),
        grouping(Windowing(FixedWindows(us(9))), aggregates={"all": Combine(Joined(), "value", pl.String())}),
    ],
    ids=["earliest", "late elements are wanted", "all values", "a user's function"],
)
def test_what_would_change_or_cost_more_is_not_lifted(other: Grouping) -> None:
    assert not other.may_pre_aggregate


@share(2)
@given(windowings(windows=sessions | custom_windows))
def test_windows_that_merge_or_are_a_users_are_not_lifted(windowing: Windowing) -> None:
    assert not grouping(windowing).may_pre_aggregate


# Elements in no window


def test_elements_in_gaps_are_counted_lifted_or_not() -> None:
    windowing = Windowing(SlidingWindows(us(2), us(5)))
    elements = (("a", 1, 0), ("a", 2, 3), ("b", 3, 4), ("b", 4, 11), ("b", 5, 9))
    layout = grouping(windowing).layout
    for frame in (arrivals(elements), pre_aggregate(arrivals(elements), layout)):
        step = Stage("grouping", grouping(windowing)).step(DictStore(), {MAIN: frame}, Times.of(MAX_TIME))
        assert step.dropped == {"late": 0, "closed": 0, "no window": 3}
        assert step.elements == 5
        assert step.panes["n"].to_list() == [1, 1]


def test_late_shows_elements_in_gaps_without_a_window() -> None:
    p, lost, out = bl.Pipeline("gaps"), bl.Memory(), bl.Memory()
    rows = [{"k": "a", "at": at} for at in (0, 3, 11, 12)]
    plays = p.read(
        "plays", bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("60s")
    )
    counts = plays.window_into(bl.SlidingWindows("2s", "5s")).group_by("k").aggregate(n=bl.count())
    counts.write("out", out)
    counts.late().with_columns(start=bl.window_start()).write("lost", lost)
    run = p.run()
    assert lost.frame().select("k", "at", "reason", "start").rows() == [
        ("a", 3, "no window", None),
        ("a", 12, "no window", None),
    ]
    assert [stage.dropped for stage in run.batches[0].stages.values()] == [{"no window": 2}]


# Shards


def test_a_hot_key_costs_one_row_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def declared() -> bl.Pipeline:
        p = bl.Pipeline("hot")
        rows = [{"k": "hot", "v": number, "at": number // 100} for number in range(6_000)]
        source = bl.Rows(rows, rows_per_batch=3_000)
        plays = p.read(
            "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("60s")
        )
        windowed = plays.window_into(
            bl.FixedWindows("1m"), trigger=bl.AfterWatermark(early=bl.AfterCount(500))
        )
        windowed.group_by("k").aggregate(n=bl.count(), total=bl.sum("v")).write("out", bl.Memory())
        return p

    def sent(least: int) -> tuple[int, list[Any], list[int]]:
        monkeypatch.setattr(lifting, "LEAST_ROWS", least)
        query = Query(declared().plan(), shards=2, tasks=3)
        rows, panes, elements = 0, list[Any](), list[int]()
        for chunk in query.plan.sources["plays"].source.chunks(250_000):
            envelopes = query.ingested({"plays": chunk})
            rows += sum(len(envelope.frame()) for envelope in envelopes if envelope.kind == Kind.DATA)
            batch = query.run(envelopes)
            panes += [output_frame(frame).rows() for frame in batch.frames("out")]
            elements += [record.elements for record in batch.stages().values()]
        return rows, panes, elements

    lifted, whole = sent(least=1_000), sent(least=10_000_000)
    assert (lifted[0], whole[0]) == (6, 6_000)
    assert lifted[1:] == whole[1:]
    assert lifted[2] == [3_000, 3_000]
