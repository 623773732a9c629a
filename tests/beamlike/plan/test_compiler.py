"""The plan: the division of a pipeline into sources, stages, routes and sinks."""

from __future__ import annotations

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.plan.model import Plan
from stages.aggregates.totals import Mean
from tests.support.pipelines import SCHEMA, Declared, plays
from windowing.columns import ASKED_COLUMNS, EVENT_TIME, PANE_COLUMNS, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.time import microseconds

_LEFT_OUT = (PANE_RETRACTED, *ASKED_COLUMNS)
PANES = (EVENT_TIME, *WINDOW_COLUMNS, *(column for column in PANE_COLUMNS if column not in _LEFT_OUT))


def flagship() -> bl.Pipeline:
    """Declares sessions of two sources, averaged: two stages below one."""
    p = bl.Pipeline("average-session-length")
    lengths = [
        plays(p, name)
        .window_into(bl.Sessions("1m"), timestamp_combiner=bl.EARLIEST)
        .group_by("user")
        .aggregate(length=bl.window_length())
        for name in ("mobile", "console")
    ]
    bl.flatten(*lengths).window_into(bl.FixedWindows("2m")).aggregate(
        mean=bl.mean("length"), sessions=bl.count()
    ).write("averages", bl.Memory())
    return p


def only_route(plan: Plan, producer: str):
    (route,) = plan.producers[producer].routes
    return route


def steps(plan: Plan, producer: str) -> list[str]:
    return [step.name for step in only_route(plan, producer).steps]


def test_stages_are_cut_into_levels_by_the_longest_path():
    plan = flagship().plan()
    assert plan.levels == (("console.aggregate", "mobile.aggregate"), ("flatten.aggregate",))
    assert list(plan.stages) == ["console.aggregate", "mobile.aggregate", "flatten.aggregate"]
    assert [stage.level for stage in plan.stages.values()] == [1, 1, 2]
    assert [stage.keyed for stage in plan.stages.values()] == [True, True, False]
    assert plan.stages["flatten.aggregate"].inputs == ("console.aggregate", "mobile.aggregate")
    assert plan.graph.levels()[0] == ("console", "mobile")


def test_only_what_the_stage_needs_is_shipped():
    plan = flagship().plan()
    assert only_route(plan, "mobile").columns == ("user", EVENT_TIME)
    assert only_route(plan, "mobile.aggregate").columns == ("length", EVENT_TIME)
    assert plan.sources["mobile"].needed == (EVENT_TIME, "user")


def test_a_sink_gets_every_column():
    plan = flagship().plan()
    assert only_route(plan, "flatten.aggregate").columns == ("mean", "sessions", *PANES)
    assert tuple(plan.sinks["averages"].schema) == ("mean", "sessions", *PANES)
    assert plan.sinks["averages"].inputs == ("flatten.aggregate",)


def test_windows_that_are_assigned_last_are_assigned_by_the_stage():
    p = bl.Pipeline("p")
    windowed = plays(p).filter(bl.col("won")).window_into(bl.SlidingWindows("10m", "1m"))
    windowed.group_by("user").aggregate(n=bl.count()).write("out", bl.Memory())
    plan = p.plan()
    assert steps(plan, "plays") == ["plays.filter"]
    assert only_route(plan, "plays").columns == ("user", EVENT_TIME)


def test_windows_that_are_assigned_earlier_are_shipped():
    p = bl.Pipeline("p")
    windowed = plays(p).window_into(bl.FixedWindows("10m")).filter(bl.col("won"))
    windowed.group_by("user").aggregate(n=bl.count()).write("out", bl.Memory())
    plan = p.plan()
    assert steps(plan, "plays") == ["plays.window_into", "plays.filter"]
    assert only_route(plan, "plays").columns == ("user", EVENT_TIME, *WINDOW_COLUMNS)


def test_windows_are_shipped_if_one_way_to_the_stage_needs_them():
    p = bl.Pipeline("p")
    windowed = plays(p).window_into(bl.FixedWindows("10m"))
    both = bl.flatten(windowed, plays(p, "more").window_into(bl.FixedWindows("10m")).filter(bl.col("won")))
    both.group_by("user").aggregate(n=bl.count()).write("out", bl.Memory())
    plan = p.plan()
    assert steps(plan, "plays") == ["plays.window_into"]
    assert only_route(plan, "plays").columns == only_route(plan, "more").columns


def test_of_two_windowings_in_a_row_the_first_still_multiplies_rows():
    p = bl.Pipeline("p")
    windowed = plays(p).window_into(bl.SlidingWindows("6s", "2s")).window_into(bl.FixedWindows("5s"))
    windowed.aggregate(n=bl.count()).write("out", bl.Memory())
    assert steps(p.plan(), "plays") == ["plays.window_into"]


def test_sessions_are_merged_once():
    p = bl.Pipeline("p")
    sessions = plays(p).window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count())
    sessions.aggregate(total=bl.sum("n")).write("out", bl.Memory())
    sessions.window_into(bl.Sessions("1m")).aggregate(total=bl.sum("n")).write("again", bl.Memory())
    stages = p.plan().stages
    merging = {name: stage.stage.operator.merging for name, stage in stages.items()}
    assert merging == {
        "plays.aggregate": True,
        "plays.aggregate.aggregate": False,
        "plays.aggregate.aggregate_2": True,
    }
    shipped = {route.consumer: route.columns for route in stages["plays.aggregate"].routes}
    assert shipped["plays.aggregate.aggregate"] == ("n", EVENT_TIME, *WINDOW_COLUMNS)
    assert shipped["plays.aggregate.aggregate_2"] == ("n", EVENT_TIME)


def test_after_a_grouping_the_trigger_goes_on_as_its_continuation():
    early = bl.AfterWatermark(early=bl.AfterCount(10), late=bl.Repeatedly(bl.AfterCount(5)))
    grouped = (
        plays()
        .window_into(bl.FixedWindows("1m"), trigger=early, allowed_lateness="1h", accumulation="accumulating")
        .aggregate(n=bl.count())
    )
    assert grouped.windowing.trigger == bl.AfterWatermark(
        early=bl.AfterCount(1), late=bl.Repeatedly(bl.AfterCount(1))
    )
    assert grouped.windowing.allowed_lateness == microseconds("1h")
    assert grouped.windowing.accumulation is bl.ACCUMULATING


def test_rewindowing_inherits_what_is_not_given_and_never_shrinks_lateness():
    first = plays().window_into(
        bl.FixedWindows("1m"),
        timestamp_combiner=bl.LATEST,
        allowed_lateness="1h",
        accumulation="accumulating",
    )
    second = first.window_into(bl.FixedWindows("2m"), allowed_lateness="1m")
    assert second.windowing == attrs.evolve(
        first.windowing, windows=bl.FixedWindows("2m"), allowed_lateness="1h"
    )
    longer = second.window_into(bl.FixedWindows("2m"), allowed_lateness="2h")
    assert longer.windowing.allowed_lateness == microseconds("2h")


def test_a_consumer_reached_on_two_ways_has_two_routes():
    p = bl.Pipeline("p")
    source = plays(p)
    both = bl.flatten(source.filter(bl.col("won")), source.filter(bl.col("score") > 3))
    both.with_columns(double=bl.col("score") * 2).write("out", bl.Memory())
    routes = p.plan().sources["plays"].routes
    assert [[step.name for step in route.steps] for route in routes] == [
        ["plays.filter", "flatten.with_columns"],
        ["plays.filter_2", "flatten.with_columns"],
    ]
    assert {route.consumer for route in routes} == {"out"}


def test_a_diamond_reads_one_stage_at_two_levels():
    p = bl.Pipeline("p")
    minutes = plays(p).window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count())
    totals = minutes.group_by("user").aggregate(n=bl.sum("n"))
    bl.flatten(minutes, totals).aggregate(most=bl.max("n")).write("most", bl.Memory())
    totals.write("totals", bl.Memory())
    plan = p.plan()
    assert plan.levels == (("plays.aggregate",), ("plays.aggregate.aggregate",), ("flatten.aggregate",))
    assert [route.consumer for route in plan.stages["plays.aggregate"].routes] == [
        "flatten.aggregate",
        "plays.aggregate.aggregate",
    ]
    assert plan.stages["flatten.aggregate"].inputs == ("plays.aggregate", "plays.aggregate.aggregate")


def test_dead_letters_have_a_route_of_their_own():
    p = bl.Pipeline("p")
    source = plays(p)
    source.write("plays out", bl.Memory())
    source.dead_letters().select("error").write("lost", bl.Memory())
    plan = p.plan()
    lost, out = plan.sources["plays"].routes
    assert (lost.consumer, lost.output, lost.columns) == ("lost", "dead_letters", ("error",))
    assert (out.consumer, out.output) == ("plays out", "main")
    assert plan.sources["plays"].needed == (EVENT_TIME, *SCHEMA)
    assert plan.sinks["lost"].schema == pl.Schema({"error": pl.String()})


def test_what_leads_to_no_sink_is_not_in_the_plan():
    p = bl.Pipeline("p")
    plays(p, "unused").window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
    plays(p).write("out", bl.Memory())
    plan = p.plan()
    assert (list(plan.sources), list(plan.stages)) == (["plays"], [])
    assert plan.levels == ()


def test_a_source_reads_only_what_its_routes_need():
    p = bl.Pipeline("p")
    source = plays(p)
    wide = source.with_columns(double=bl.col("score") * 2, half=bl.col("rate") / 2).filter(bl.col("won"))
    wide.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.sum("double")).write(
        "out", bl.Memory()
    )
    assert p.plan().sources["plays"].needed == (EVENT_TIME, "user", "score", "won")


def test_the_plan_is_a_pure_function_of_the_pipeline():
    pipeline = flagship()
    assert pipeline.plan() == pipeline.plan()
    assert pipeline.explain() == flagship().explain()


def test_derived_names_follow_the_place_and_given_names_begin_anew():
    source = plays()
    first = source.filter(bl.col("won"))
    assert first.name == "plays.filter"
    assert first.filter(bl.col("won")).name == "plays.filter_2"
    assert first.filter(bl.col("won"), name="winners").select("user").name == "winners.select"
    renamed = first.select("user").named("users")
    assert (renamed.name, renamed.map(dict).name) == ("users", "users.map")
    assert renamed.node.origin.name == "users"


def test_every_step_can_be_named_and_columns_called_name_can_be_made():
    source = plays().window_into(bl.FixedWindows("1m"), name="minutes")
    named = source.with_columns(name=bl.col("user")).named("who")
    assert "name" in named.schema
    grouped = named.group_by("name", name="counts").aggregate(n=bl.count())
    assert grouped.name == "counts"
    assert source.aggregate(name=bl.count()).named("total").schema == pl.Schema({"name": pl.Int64()})
    assert bl.flatten(source, source, name="twice").name == "twice"


def test_names_given_up_and_failed_steps_leave_their_name_free():
    source = plays()
    source.filter(bl.col("won")).named("winners")
    assert source.filter(bl.col("won")).name == "plays.filter"
    with pytest.raises(bl.PlanError):
        source.filter(bl.col("one"), name="again")
    assert source.filter(bl.col("won"), name="again").name == "again"


def test_a_plan_survives_cloudpickle_and_stays_small():
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    p = bl.Pipeline("p")
    suffix = "!"
    mapped = plays(p).filter(bl.col("score") > 3).map(lambda row: row | {"user": row["user"] + suffix})
    mapped.window_into(bl.Sessions("1m")).group_by("user").aggregate(mean=bl.mean("score")).write(
        "out", bl.Callback(print)
    )
    plan = p.plan()
    data = cloudpickle.dumps(plan)
    copy = cloudpickle.loads(data)
    assert len(data) < 20_000
    assert copy.levels == plan.levels
    assert copy.stages == plan.stages
    assert copy.stages["plays.aggregate"].stage.operator.aggregates == {"mean": Mean("score")}
    function = copy.sources["plays"].routes[0].steps[1].fn
    assert function({"user": "a"}) == {"user": "a!"}


def test_a_runner_is_given_the_plan():
    class Records:
        def run(self, plan: Plan) -> str:
            return f"ran {plan.name}"

    assert flagship().run(Records()) == "ran average-session-length"


def test_the_event_time_column_is_announced_to_the_source():
    @attrs.frozen
    class Text(Declared):
        told: str = ""

        def for_event_time(self, column: str) -> Text:
            return attrs.evolve(self, told=column)

    p = bl.Pipeline("p")
    p.read("a", Text(), timestamp="at", watermark=bl.MonotonousTimestamps()).write("out", bl.Memory())
    assert p.plan().sources["a"].source.told == "at"
