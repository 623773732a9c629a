"""Laws of watermarks: of a source's summaries, of reports from upstream, and of their way through the graph."""

from __future__ import annotations

import json
from functools import reduce
from itertools import accumulate, pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.graph import StageGraph
from stages.sources import (
    BoundedOutOfOrderness,
    MonotonousTimestamps,
    SourceClock,
    Summary,
    WatermarkStrategy,
)
from stages.watermarks import Reports, Watermarks, propagate
from tests.strategies import us
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

times = st.integers(-50, 50) | st.sampled_from([MIN_TIME, MAX_TIME])
reports = st.lists(times, max_size=3)
holds = st.none() | times
strategies = st.builds(BoundedOutOfOrderness, st.integers(0, 20).map(us)) | st.builds(MonotonousTimestamps)
batches = st.lists(times, max_size=6)
summaries = st.just({}) | times.map(lambda time: {"newest": time})


# Of a stage


@given(st.lists(st.tuples(reports, holds), max_size=8))
def test_neither_watermark_goes_back_and_output_is_at_most_input(
    moves: list[tuple[list[int], int | None]],
) -> None:
    marks = list(accumulate(moves, lambda now, move: now.advance(*move), initial=Watermarks()))
    assert all(mark.output <= mark.input for mark in marks)
    for before, after in pairwise(marks):
        assert before.input <= after.input
        assert before.output <= after.output


@given(reports, holds)
def test_from_the_beginning_they_are_the_least_report_and_the_least_of_it_and_the_hold(
    reported: list[int], hold: int | None
) -> None:
    marks = Watermarks().advance(reported, hold)
    assert marks.input == min(reported, default=MAX_TIME)
    assert marks.output == min([marks.input, *([] if hold is None else [hold])])


@given(reports, holds, reports)
def test_reports_alone_move_the_input_alone(first: list[int], hold: int | None, then: list[int]) -> None:
    before = Watermarks().advance(first, hold)
    after = before.receive(then)
    assert after.output == before.output
    assert after == before.receive(then).receive(then)


def test_a_hold_that_is_behind_does_not_pull_the_output_back() -> None:
    marks = Watermarks().advance([10])
    assert marks.advance([12], hold=3) == Watermarks(12, 10)


# Of what is upstream


def test_flinks_clock_of_four_channels() -> None:
    """A task's clock is the least of its channels': 2, then 3 as the first moves, still 3, then 4."""
    channels = ("one", "two", "three", "four")
    now = Reports()
    for channel, watermark in zip(channels, (2, 4, 3, 6), strict=True):
        now = now.receive(channel, watermark)
    clock = Watermarks().receive(now.of(channels))
    clocks = [clock.input]
    for channel, watermark in (("one", 4), ("two", 7), ("three", 6)):
        now = now.receive(channel, watermark)
        clock = clock.receive(now.of(channels))
        clocks.append(clock.input)
    assert clocks == [2, 3, 3, 4]


received = st.lists(st.tuples(st.sampled_from("abc"), times), max_size=8)


@given(received, st.randoms())
def test_what_is_known_of_an_origin_is_its_latest_report_in_whatever_order_they_come(
    arrived: list[tuple[str, int]], random: object
) -> None:
    shuffled = list(arrived)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for order in (arrived, shuffled, [*arrived, *shuffled]):
        known = reduce(lambda now, report: now.receive(*report), order, Reports())
        assert known.of("abc") == [
            max([time for origin, time in arrived if origin == name], default=MIN_TIME) for name in "abc"
        ]


def test_who_has_not_reported_holds_and_who_is_not_asked_for_does_not() -> None:
    known = Reports().receive("a", 5).receive("stranger", -100)
    assert Watermarks().receive(known.of(["a"])).input == 5
    assert Watermarks().receive(known.of(["a", "b"])).input == MIN_TIME


# Through the graph


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Up to nine nodes, each of which may read from any before it."""
    names = draw(st.permutations("abcdefghi"))[: draw(st.integers(1, 9))]
    return {
        name: draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        for index, name in enumerate(names)
    }


@given(graphs(), st.data())
def test_an_output_watermark_is_the_least_of_all_that_is_upstream(
    inputs: dict[str, list[str]], data: st.DataObject
) -> None:
    graph = StageGraph.from_inputs(inputs)
    own = {name: data.draw(times, label=name) for name in graph.order()}
    called: list[str] = []

    def step(stage: str, watermark: int) -> int:
        called.append(stage)
        return min(watermark, own[stage])

    outputs = propagate(graph, {name: own[name] for name in graph.sources()}, step)
    assert outputs == {name: min(own[other] for other in upstream(inputs, name)) for name in inputs}
    assert called == [name for name in graph.order() if inputs[name]]


def upstream(inputs: dict[str, list[str]], name: str) -> set[str]:
    """The node and all that it depends on."""
    return {name}.union(*(upstream(inputs, other) for other in inputs[name]))


@given(graphs(), st.data())
def test_a_source_that_moves_on_takes_no_stage_back(
    inputs: dict[str, list[str]], data: st.DataObject
) -> None:
    graph = StageGraph.from_inputs(inputs)
    sources = {name: data.draw(times, label=name) for name in graph.sources()}
    later = {name: max(watermark, data.draw(times, label=name)) for name, watermark in sources.items()}
    before, after = (propagate(graph, marks, lambda _, watermark: watermark) for marks in (sources, later))
    assert all(before[name] <= after[name] for name in inputs)


# Of a source


def frame(times: list[int]) -> pl.DataFrame:
    return pl.DataFrame({EVENT_TIME: times}, schema={EVENT_TIME: pl.Int64})


@given(strategies, summaries, summaries, summaries)
def test_merging_summaries_is_a_semilattice_with_nothing_as_identity(
    strategy: WatermarkStrategy, one: Summary, two: Summary, three: Summary
) -> None:
    merge = strategy.merge
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, two) == merge(two, one)
    assert merge(one, one) == one == merge({}, one) == merge(one, {})


@given(strategies, summaries, summaries)
def test_a_merged_summary_is_never_behind_its_parts(
    strategy: WatermarkStrategy, one: Summary, two: Summary
) -> None:
    merged = strategy.watermark(strategy.merge(one, two), 0)
    assert merged == max(strategy.watermark(one, 0), strategy.watermark(two, 0))


@given(strategies, st.lists(st.tuples(times, st.integers(0, 3)), max_size=10))
def test_splitting_a_batch_into_tasks_in_any_way_gives_the_same_watermark(
    strategy: WatermarkStrategy, placed: list[tuple[int, int]]
) -> None:
    tasks = [frame([time for time, task in placed if task == number]) for number in range(4)]
    merged = reduce(strategy.merge, [strategy.observe(task) for task in tasks], {})
    assert merged == strategy.observe(frame([time for time, _ in placed]))


@given(strategies, batches)
def test_a_summary_travels_as_json(strategy: WatermarkStrategy, batch: list[int]) -> None:
    summary = strategy.observe(frame(batch))
    assert json.loads(json.dumps(summary)) == summary


@given(st.integers(0, 20), batches)
def test_the_watermark_follows_the_newest_element_at_its_distance(bound: int, batch: list[int]) -> None:
    strategy = BoundedOutOfOrderness(us(bound))
    expected = max([MIN_TIME, *(time - bound for time in batch)])
    assert strategy.watermark(strategy.observe(frame(batch)), 0) == expected
    monotonous = MonotonousTimestamps()
    assert monotonous.watermark(monotonous.observe(frame(batch)), 0) == max(batch, default=MIN_TIME)


@given(strategies, st.lists(batches, max_size=6))
def test_the_watermark_of_a_source_never_goes_back(
    strategy: WatermarkStrategy, stream: list[list[int]]
) -> None:
    clocks = list(
        accumulate(
            stream,
            lambda clock, batch: clock.observe(strategy, strategy.observe(frame(batch)), 0),
            initial=SourceClock(),
        )
    )
    for before, after in pairwise(clocks):
        assert before.watermark <= after.watermark
    seen = [time for batch in stream for time in batch]
    assert clocks[-1].watermark == strategy.watermark(strategy.observe(frame(seen)), 0)


def test_a_source_that_is_at_its_end_stays_there() -> None:
    clock = SourceClock({"newest": 5}, MAX_TIME).observe(MonotonousTimestamps(), {"newest": 9}, 0)
    assert clock == SourceClock({"newest": 9}, MAX_TIME)


def test_a_strategy_is_checked_when_it_is_declared() -> None:
    with pytest.raises(
        ValueError, match="BoundedOutOfOrderness: bound must not be negative, not -1000000 us"
    ):
        BoundedOutOfOrderness("-1s")
    with pytest.raises(ValueError, match="not a duration"):
        BoundedOutOfOrderness("five")
    assert BoundedOutOfOrderness("1m30s").bound == 90_000_000
    assert BoundedOutOfOrderness(0).bound == MonotonousTimestamps().bound == 0
