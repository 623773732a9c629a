"""Laws of a stage's watermarks, and of the reports that it receives from all upstream sources and stages."""

from __future__ import annotations

from itertools import accumulate, pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.clock import Watermarks
from stages.facts import from_json, to_facts, to_json
from stages.progress.inputs import Arrived, Inputs
from stages.progress.reports import Report, of_shards
from stages.progress.splits import WHOLE, summarize
from stages.strategies.base import BoundedOutOfOrderness, MonotonousTimestamps, WatermarkStrategy
from stages.strategies.histogram import histogram
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

times = st.integers(-50, 50) | st.sampled_from([MIN_TIME, MAX_TIME])
reports = st.lists(times, max_size=3)
holds = st.none() | times


# Watermarks of a stage


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


# Watermarks upstream


def heard(inputs: Inputs, *reports: tuple[str, int]) -> Inputs:
    """Returns the inputs after these reports of watermarks, by origin."""
    return inputs.receive(Arrived(reports={origin: Report(watermark) for origin, watermark in reports}), {})


def test_flinks_clock_of_four_channels() -> None:
    """The clock of a Flink task is the least of its channels': 2, then 3 as the first moves, still 3, then 4."""
    channels = ("one", "two", "three", "four")
    inputs = heard(Inputs(), *zip(channels, (2, 4, 3, 6), strict=True))
    clocks = [inputs.report("upstream", channels).watermark]
    for report in (("one", 4), ("two", 7), ("three", 6)):
        inputs = heard(inputs, report)
        clocks.append(inputs.report("upstream", channels).watermark)
    assert clocks == [2, 3, 3, 4]


def test_who_has_not_reported_holds_and_who_is_not_asked_for_does_not() -> None:
    inputs = heard(Inputs(), ("a", 5), ("stranger", -100))
    assert inputs.report("upstream", ["a"]).watermark == 5
    assert inputs.report("upstream", ["a", "b"]).watermark == MIN_TIME


def test_a_source_that_has_ended_is_at_the_end_of_time_and_processing_time_never_goes_back() -> None:
    strategies = {"a": BoundedOutOfOrderness("1s")}

    def summary(newest: int, now: int, *ended: str) -> Arrived:
        return Arrived({"a": {WHOLE: {"own": {"newest": newest}}}}, frozenset(ended), now=now)

    inputs = Inputs().receive(summary(5_000_000, 10), strategies)
    assert (inputs.report("a", []).watermark, inputs.now) == (4_000_000, 10)
    inputs = inputs.receive(summary(3_000_000, 8), strategies)
    assert (inputs.report("a", []).watermark, inputs.now) == (4_000_000, 10)
    inputs = inputs.receive(summary(0, 12, "a"), strategies).receive(summary(9_000_000, 12), strategies)
    assert (inputs.report("a", []).watermark, inputs.now) == (MAX_TIME, 12)


def test_what_is_known_of_upstream_is_read_back_as_it_was() -> None:
    strategies: dict[str, WatermarkStrategy] = {
        "a": BoundedOutOfOrderness("1s", per_split="part", percentiles=(33,)),
        "b": MonotonousTimestamps(idle_after="5s"),
    }
    rows = pl.DataFrame({EVENT_TIME: [1, 5_000_000], "part": ["x", None]})
    summaries = {name: summarize(strategy, rows) for name, strategy in strategies.items()}
    reports = {"s\x1f1": Report(7, {33: 9}, idle=True, holds=histogram(pl.Series([7, 8])))}
    stages = {"s": ["s\x1f1"]}
    inputs = Inputs().receive(Arrived(summaries, frozenset({"b"}), reports, 7), strategies, stages=stages)
    assert inputs.report("s", stages["s"]) == Report(7, {33: 8}, idle=True)
    assert from_json(Inputs, to_json(inputs)) == inputs


def test_a_stage_stands_where_the_pending_elements_of_all_its_shards_hold_it() -> None:
    def told(*holds: int) -> Report:
        times = pl.Series(holds, dtype=pl.Int64)
        return Report(min([*holds, 50]), {25: 90, 50: 60, 99: 55}, holds=histogram(times))

    shards = [told(10, 70), told(80, 80), told()]  # in all 10, 70, 80, 80
    assert of_shards(shards, {}) == Report(10, {25: 80, 50: 60, 99: 10})
    assert of_shards(shards, {}) == of_shards([told(70, 80), told(10), told(80)], {})
    assert of_shards(shards, {25: 85, 50: 7}) == Report(10, {25: 85, 50: 60, 99: 10})
    assert "holds" not in to_facts(Report(5, {33: 7}))  # without percentiles there is no histogram


def test_what_comes_behind_a_percentile_watermark_does_not_take_it_back() -> None:
    stages = {"one": ["one"], "two": ["two"]}
    inputs = Inputs()
    for holds in ({"one": 10, "two": 3}, {"one": 5, "two": 8}):
        reports = {
            name: Report(0, {66: 20}, holds=histogram(pl.Series([hold]))) for name, hold in holds.items()
        }
        inputs = inputs.receive(Arrived(reports=reports), {}, stages=stages)
    assert [inputs.report(name, [name]).percentiles for name in stages] == [{66: 10}, {66: 8}]
