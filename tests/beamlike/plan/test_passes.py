"""The compiler's passes, each a function of the results of earlier ones, and the checks of a plan."""

from __future__ import annotations

import pytest

import beamlike as bl
from beamlike.plan.checks import CHECKS, require_one_clock, require_percentiles, require_sinks_apart
from beamlike.plan.compiler import Compiled
from beamlike.plan.model import Plan
from tests.support.pipelines import SCHEMA, plays
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS


class Tally(bl.CombineFn):
    """A count in Python, for a grouping that may have dead letters."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: object) -> int:
        return accumulator + 1

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def compiled(pipeline: bl.Pipeline) -> Compiled:
    """Returns the unchecked results of all passes."""
    return Compiled.of(pipeline, tuple(pipeline.written()))


def counted() -> tuple[bl.Pipeline, bl.Collection]:
    """Declares plays that were won, counted by user and minute, without a sink."""
    p = bl.Pipeline("p")
    won = plays(p).filter(bl.col("won"))
    return p, won.window_into(bl.FixedWindows("1m")).group_by("user", name="counts").aggregate(n=bl.count())


def written() -> bl.Pipeline:
    """Declares the same counts with a sink."""
    p, counts = counted()
    counts.write("out", bl.Memory())
    return p


def test_passes_give_the_same_results_each_time():
    p = written()
    one, other = compiled(p), compiled(p)
    assert [*one.nodes] == [*other.nodes]
    assert (one.paths, one.graph, one.routes) == (other.paths, other.graph, other.routes)
    assert one.plan().graph == other.plan().graph


# find_reachable: the sources and stages that lead to a sink


def test_find_reachable_finds_the_sources_and_groupings_that_lead_to_a_sink():
    p = written()
    plays(p, "unused").window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
    assert list(compiled(p).nodes) == ["counts", "plays"]


def test_find_reachable_finds_what_dropped_elements_and_dead_letters_come_from():
    p, counts = counted()
    counts.late().write("too late", bl.Memory())
    plays(p, "others").dead_letters().write("unread", bl.Memory())
    assert list(compiled(p).nodes) == ["counts", "others", "plays"]


def test_find_reachable_is_in_the_order_of_the_alphabet_however_sinks_are_declared():
    p = bl.Pipeline("p")
    for name in ("b", "a", "c"):
        plays(p, name).write(f"sink {name}", bl.Memory())
    assert list(compiled(p).nodes) == ["a", "b", "c"]


# build_paths: the paths to each consumer


def test_build_paths_finds_the_steps_on_the_way_to_groupings_and_sinks():
    traced = compiled(written())
    (to_stage,), (to_sink,) = traced.paths.to_stages["counts"], traced.paths.to_sinks["out"]
    assert to_stage.producer == "plays"
    assert [step.name for step in to_stage.steps] == ["plays.filter", "plays.window_into"]
    assert (to_sink.producer, to_sink.steps) == ("counts", ())
    assert traced.graph.inputs("counts") == ("plays",)


def test_build_paths_finds_every_way_where_there_are_several():
    p = bl.Pipeline("p")
    source = plays(p)
    bl.flatten(source, source.filter(bl.col("won"))).write("out", bl.Memory())
    ways = compiled(p).paths.to_sinks["out"]
    assert [[step.name for step in way.steps] for way in ways] == [[], ["plays.filter"]]


def test_build_paths_says_with_which_output_a_path_begins():
    p, counts = counted()
    counts.late().write("late", bl.Memory())
    counts.select("n").dead_letters().write("letters", bl.Memory())
    to_sinks = compiled(p).paths.to_sinks
    (late,), (letters,) = to_sinks["late"], to_sinks["letters"]
    assert (late.output, late.producer, late.before) == ("late", "counts", ())
    assert (letters.output, letters.of, [step.name for step in letters.before]) == (
        "dead_letters",
        "main",
        ["counts.select"],
    )


# build_operators: the operator of each stage


def test_build_operators_makes_a_grouping_of_the_columns_that_it_needs():
    grouping = compiled(written()).operators["counts"]
    assert tuple(grouping.columns) == ("user",)
    assert grouping.windowing.windows == bl.FixedWindows("1m")
    assert (grouping.late_columns, grouping.letter_columns) == (None, ())


def test_build_operators_keeps_every_column_where_dropped_elements_are_wanted():
    p, counts = counted()
    counts.late().write("late", bl.Memory())
    grouping = compiled(p).operators["counts"]
    assert (set(grouping.late_columns or ()), grouping.letter_columns) == (set(SCHEMA), ())
    assert set(grouping.columns) == set(SCHEMA)


def test_build_operators_keeps_every_column_where_dead_letters_are_wanted():
    p = bl.Pipeline("p")
    windowed = plays(p).window_into(bl.FixedWindows("1m"))
    counts = windowed.aggregate(n=bl.combine(Tally(), "score", int)).named("counts")
    counts.dead_letters().write("letters", bl.Memory())
    grouping = compiled(p).operators["counts"]
    assert (grouping.late_columns, grouping.letter_columns) == (None, tuple(SCHEMA))
    assert set(grouping.columns) == set(SCHEMA)


def test_build_operators_does_not_merge_again_what_an_earlier_grouping_has_merged():
    p = bl.Pipeline("p")
    sessions = plays(p).window_into(bl.Sessions("1m")).group_by("user", name="first").aggregate(n=bl.count())
    sessions.aggregate(n=bl.sum("n")).named("second").write("out", bl.Memory())
    groupings = compiled(p).operators
    assert {name: grouping.merge_windows for name, grouping in groupings.items()} == {
        "first": True,
        "second": False,
    }


# prune_columns: the columns of each route


def test_prune_columns_leaves_the_last_windowing_to_the_stage_and_sends_what_it_needs():
    (route,) = compiled(written()).routes["plays"]
    assert [step.name for step in route.steps] == ["plays.filter"]
    assert (route.consumer, route.columns) == ("counts", ("user", EVENT_TIME))


def test_prune_columns_sends_windows_along_that_the_stage_cannot_find_again():
    p = bl.Pipeline("p")
    won = plays(p).window_into(bl.FixedWindows("1m")).filter(bl.col("won"))
    won.group_by("user", name="counts").aggregate(n=bl.count()).write("out", bl.Memory())
    (route,) = compiled(p).routes["plays"]
    assert [step.name for step in route.steps] == ["plays.window_into", "plays.filter"]
    assert route.columns == ("user", EVENT_TIME, *WINDOW_COLUMNS)


def test_prune_columns_gives_the_routes_of_each_producer_in_the_order_of_their_consumers():
    p = written()
    plays(p, "others").write("b", bl.Memory()).write("a", bl.Memory())
    routes = compiled(p).routes
    assert {name: [route.consumer for route in own] for name, own in routes.items()} == {
        "counts": ["out"],
        "others": ["a", "b"],
        "plays": ["counts"],
    }


# Checks: each raises for a plan that the passes make without complaint


def made(pipeline: bl.Pipeline) -> Plan:
    """Returns the unchecked plan."""
    return compiled(pipeline).plan()


def test_a_plan_without_fault_passes_every_check():
    for check in CHECKS:
        assert check(made(written())) is None


def test_no_sink_may_write_where_a_source_reads(tmp_path):
    p = bl.Pipeline("p")
    folder = tmp_path / "scores"
    scores = p.read(
        "scores",
        bl.CSV(str(folder / "*.csv"), schema={"at": int}),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    scores.write("out", bl.CSV(str(folder)))
    with pytest.raises(bl.PlanError, match="scores"):
        require_sinks_apart(made(p))


def test_a_test_stream_reads_beside_no_other_source():
    p = bl.Pipeline("p")
    p.read("told", bl.TestStream({"at": int}), timestamp="at", timestamp_unit="s").write("a", bl.Memory())
    plays(p).write("b", bl.Memory())
    with pytest.raises(bl.PlanError, match="step 'told': it has a clock of its own, unlike 'plays'"):
        require_one_clock(made(p))


def test_a_percentile_that_a_trigger_waits_for_is_one_that_its_sources_have():
    p = bl.Pipeline("p")
    early = bl.AfterWatermark(early=bl.AfterWatermark(percentile=90))
    windowed = plays(p).window_into(bl.FixedWindows("1m"), trigger=early)
    windowed.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match=r"step 'counts': AfterWatermark\(percentile=90\) .* 'plays' does"):
        require_percentiles(made(p))
