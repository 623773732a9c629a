"""Windowings from call to call: the settings that `window_into` and groupings change and keep, and invalid ones."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import UnboundedGrouping, UnknownColumn, WrongType
from beamlike.plan.model import Plan
from tests.support.pipelines import SCHEMA, Declared, plays
from windowing.columns import EVENT_TIME, PANE_COLUMNS, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.time import microseconds

MINUTES = bl.FixedWindows("1m")
RETRACTING: dict[str, Any] = {"accumulation": bl.RETRACTING, "allowed_lateness": "1h"}


class Auctions(bl.CustomWindows):
    """User-defined windows: their length is a column, and all of a key merge into one."""

    columns = ("tick",)

    def assign_windows(self, time, row):
        return [(time, time + row["tick"])]

    def merge_windows(self, windows):
        yield windows, (windows[0][0], max(end for _, end in windows))


def retracting(p: bl.Pipeline | None = None) -> bl.Collection:
    """Returns panes that later ones may retract."""
    windowed = plays(p).window_into(MINUTES, **RETRACTING)
    return windowed.group_by("user", "won", name="totals").aggregate(n=bl.count(), most=bl.max("score"))


def planned(collection: bl.Collection) -> Plan:
    """Returns the plan in which this is written to a sink called `out`."""
    collection.write("out", bl.Memory())
    return collection.pipeline.plan()


def shipped(plan: Plan, producer: str) -> tuple[str, ...]:
    (route,) = plan.producers[producer].routes
    return route.columns


# --- what is given and what is inherited ---


def test_without_windows_rows_stay_in_theirs_and_other_choices_change():
    first = plays().window_into(MINUTES, timestamp_combiner=bl.LATEST)
    second = first.window_into(
        trigger=bl.Repeatedly(bl.AfterCount(3)), allowed_lateness="1h", on_time="if_non_empty"
    )
    assert second.windowing == attrs.evolve(
        first.windowing,
        trigger=bl.Repeatedly(bl.AfterCount(3)),
        allowed_lateness="1h",
        on_time="if_non_empty",
    )
    assert (second.name, second.node.shape) == ("plays.window_into_2", first.node.shape)
    plan = planned(second.aggregate(n=bl.count()))
    assert [step.name for step in plan.sources["plays"].routes[0].steps] == []
    assert plan.stages["plays.aggregate"].stage.operator.windowing == second.windowing


def test_windows_that_are_shipped_stay_shipped_when_only_other_choices_change():
    windowed = plays().window_into(MINUTES).filter("won").window_into(closing="always")
    assert shipped(planned(windowed.aggregate(n=bl.count())), "plays") == (EVENT_TIME, *WINDOW_COLUMNS)


def test_merged_windows_stay_merged_until_windows_are_given():
    sessions = plays().window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count())
    assert sessions.node.merged
    kept = sessions.window_into(accumulation=bl.ACCUMULATING)
    assert kept.node.merged
    assert not kept.window_into(bl.Sessions("1m")).node.merged
    plan = planned(kept.aggregate(n=bl.sum("n")))
    assert [stage.stage.operator.merging for stage in plan.stages.values()] == [True, False]


def test_a_collection_in_no_window_yet_can_be_given_other_choices():
    live = plays(bounded=False).window_into(trigger=bl.Repeatedly(bl.AfterCount(5)))
    assert shipped(planned(live.aggregate(n=bl.count())), "plays") == (EVENT_TIME,)


def test_empty_panes_are_inherited_beyond_a_grouping():
    windowed = plays().window_into(MINUTES, on_time="if_non_empty", closing="always")
    again = windowed.aggregate(n=bl.count()).window_into(bl.FixedWindows("2m"))
    assert (again.windowing.on_time, again.windowing.closing) == ("if_non_empty", "always")


def test_lateness_does_not_shrink_without_windows_either():
    windowed = plays().window_into(MINUTES, allowed_lateness="1h").window_into(allowed_lateness="1m")
    assert windowed.windowing.allowed_lateness == microseconds("1h")


def test_rows_keep_their_windows_where_windows_of_another_kind_multiply_them():
    # Beam's test_rewindow: sliding windows, then fixed ones; no step is left out.
    windowed = plays().window_into(bl.SlidingWindows("6s", "2s")).window_into(trigger=bl.DefaultTrigger())
    plan = planned(windowed.window_into(bl.FixedWindows("5s")).aggregate(n=bl.count()))
    assert [step.name for step in plan.sources["plays"].routes[0].steps] == ["plays.window_into"]


# --- retractions ---


def test_only_panes_that_may_be_taken_back_say_whether_they_are():
    panes, usual = retracting(), plays().window_into(MINUTES).aggregate(n=bl.count())
    assert panes.node.retracting
    assert not usual.node.retracting
    assert panes.node.shape.system == (EVENT_TIME, *WINDOW_COLUMNS, *PANE_COLUMNS)
    assert PANE_RETRACTED not in usual.node.shape.system
    assert panes.select("n", taken_back=bl.pane_retracted()).schema["taken_back"] == pl.Boolean
    with pytest.raises(bl.PlanError, match=r"give the grouping accumulation=bl\.RETRACTING"):
        usual.filter(bl.pane_retracted())
    with pytest.raises(bl.PlanError, match="only the output of a grouping has panes"):
        plays().filter(~bl.pane_retracted())


def test_the_flag_travels_over_stateless_steps_and_ends_at_the_next_grouping():
    mapped = retracting().map(dict).filter("won").select("user", double=bl.col("n") * 2)
    totals = mapped.window_into(bl.FixedWindows("2m"), accumulation="discarding").aggregate(
        n=bl.sum("double")
    )
    assert mapped.node.retracting
    assert not totals.node.retracting
    plan = planned(totals)
    assert shipped(plan, "totals") == ("double", EVENT_TIME, PANE_RETRACTED)
    assert PANE_RETRACTED not in plan.sinks["out"].schema


def test_a_sink_is_told_which_panes_are_taken_back():
    plan = planned(retracting())
    assert plan.sinks["out"].schema[PANE_RETRACTED] == pl.Boolean


def test_aggregates_that_cannot_take_back_are_refused_after_retractions():
    panes = retracting()
    panes.aggregate(n=bl.count(), total=bl.sum("n"), most=bl.max("most"), all=bl.collect("n"))
    expected = (
        r"step 'worst': .*which about=approx_count_distinct\(n\) cannot subtract \(count_distinct can\); give"
    )
    with pytest.raises(bl.PlanError, match=expected):
        panes.group_by("user", name="worst").aggregate(n=bl.count(), about=bl.approx_count_distinct("n"))


def test_retracting_windows_with_one_pane_give_rows():
    once = plays().window_into(MINUTES, accumulation="retracting").group_by("user").aggregate(n=bl.count())
    assert (once.node.kind, retracting().node.kind) == ("rows", "changes")
    assert once.aggregate(most=bl.max("n")).node.kind == "rows"
    assert once.with_columns(bl.pane_retracted()).schema["pane_retracted"] == pl.Boolean


@pytest.mark.parametrize(
    "aggregate", [bl.mean("n"), bl.count_distinct("n"), bl.max("n"), bl.median("n")], ids=str
)
def test_a_pane_of_what_is_new_of_changes_is_a_difference_which_few_aggregates_have(aggregate: Any):
    new = retracting().window_into(accumulation="discarding")
    new.aggregate(n=bl.count(), total=bl.sum("n"))
    with pytest.raises(bl.PlanError, match=r"accumulation discarding.*not wrong=.*bl\.RETRACTING"):
        new.aggregate(n=bl.count(), wrong=aggregate)
    new.window_into(accumulation="retracting").aggregate(right=aggregate)


def test_windows_of_ones_own_that_merge_are_refused_after_retractions():
    panes = retracting().with_columns(tick=bl.lit(1))
    with pytest.raises(bl.PlanError, match=r"cannot part again when it is taken back; give bl\.Sessions"):
        panes.window_into(Auctions())
    assert panes.window_into(bl.SlidingWindows("10m", "5m")).node.retracting


def test_changes_are_put_into_sessions_by_a_stage_that_is_named_after_the_grouping():
    sessions = retracting().window_into(bl.Sessions("1m")).group_by("n").aggregate(count=bl.count())
    stages = planned(sessions.named("spans")).stages
    assert stages["spans.sessions"].stage.operator.keys == ("n",)
    assert not stages["spans"].stage.operator.merge_windows


def test_sessions_that_a_grouping_has_merged_may_be_taken_back():
    panes = plays().window_into(bl.Sessions("1m"), **RETRACTING).group_by("user").aggregate(n=bl.count())
    totals = panes.aggregate(n=bl.sum("n"))
    assert shipped(planned(totals), "plays.aggregate") == ("n", EVENT_TIME, PANE_RETRACTED, *WINDOW_COLUMNS)


def test_rows_that_are_never_taken_back_say_so_where_they_meet_such_as_may_be():
    p = bl.Pipeline("p")
    panes = retracting(p).select("user", "n").window_into(bl.FixedWindows("2m"))
    rows = plays(p, "more").select("user", n=bl.col("score")).window_into(bl.FixedWindows("2m"), **RETRACTING)
    both = bl.flatten(rows, panes)
    assert both.node.shape.system == (EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED)
    plan = planned(both.filter(~bl.pane_retracted()))
    assert [step.kind for step in plan.sources["more"].routes[0].steps] == [
        "select",
        "window_into",
        "flatten",
        "filter",
    ]
    assert [step.kind for step in plan.stages["totals"].routes[0].steps] == [
        "select",
        "window_into",
        "filter",
    ]
    assert "flatten  pane_retracted() = False" in p.explain()


# --- the time of a chosen element ---


def test_the_chosen_elements_are_shipped_and_the_grouping_forgets_them():
    windowed = plays().window_into(MINUTES, timestamp_combiner=bl.timestamp_of("won"))
    grouped = windowed.group_by("user").aggregate(n=bl.count())
    assert grouped.windowing.timestamp_combiner is bl.EARLIEST
    plan = planned(grouped)
    assert shipped(plan, "plays") == ("user", "won", EVENT_TIME)
    assert plan.stages["plays.aggregate"].stage.operator.schema["won"] == pl.Boolean
    assert 'timestamp timestamp_of("won")' in grouped.pipeline.explain()


def test_a_column_that_marks_elements_must_be_there_and_be_boolean():
    with pytest.raises(
        UnknownColumn, match=r"step 'plays.window_into': .*'wom'.*did you mean 'won'\?; timestamp_of"
    ):
        plays().window_into(MINUTES, timestamp_combiner=bl.timestamp_of("wom"))
    with pytest.raises(WrongType, match=r"timestamp_of\(\"score\"\) needs a Boolean column.* is Int64"):
        plays().window_into(MINUTES, timestamp_combiner=bl.timestamp_of("score"))
    dropped = plays().window_into(MINUTES, timestamp_combiner=bl.timestamp_of("won")).select("user")
    with pytest.raises(UnknownColumn, match="step 'users': there is no column 'won'"):
        dropped.group_by("user", name="users").aggregate(n=bl.count())
    with pytest.raises(UnknownColumn, match="step 'again': there is no column 'won'"):
        dropped.window_into(allowed_lateness="1h", name="again")


# --- windows of the user's own ---


def test_custom_windows_are_shipped_and_not_the_columns_that_they_are_made_from():
    grouped = plays().window_into(Auctions()).group_by("user").aggregate(n=bl.count())
    plan = planned(grouped.aggregate(n=bl.sum("n")))
    assert plan.sources["plays"].needed == (EVENT_TIME, "user", "tick")
    assert shipped(plan, "plays") == ("user", EVENT_TIME, *WINDOW_COLUMNS)
    assert shipped(plan, "plays.aggregate") == ("n", EVENT_TIME, *WINDOW_COLUMNS)
    assert [stage.stage.operator.columns for stage in plan.stages.values()] == [("user",), ("n",)]


def test_custom_windows_that_are_assigned_earlier_need_their_columns_only_there():
    windowed = plays().window_into(Auctions()).select("user")
    plan = planned(windowed.group_by("user").aggregate(n=bl.count()))
    assert plan.sources["plays"].needed == (EVENT_TIME, "user", "tick")
    assert shipped(plan, "plays") == ("user", EVENT_TIME, *WINDOW_COLUMNS)
    assert plan.sources["plays"].routes[0].steps[0].python
    assert not plays().window_into(MINUTES).node.origin.python


def test_a_column_that_custom_windows_read_must_be_there():
    with pytest.raises(UnknownColumn, match=r"there is no column 'tick'; .*; Auctions\(\) reads it"):
        plays().select("user").window_into(Auctions())


# --- what is refused ---


def test_a_call_that_changes_nothing_is_refused():
    with pytest.raises(bl.PlanError, match=r"step 'plays\.window_into': give it windows such as"):
        plays().window_into()


def test_lateness_that_makes_an_inherited_trigger_unsafe_is_refused_with_the_step():
    windowed = plays().window_into(MINUTES, trigger=bl.AfterWatermark(early=bl.AfterCount(3)))
    with pytest.raises(
        bl.PlanError, match=r"step 'longer': the trigger .* may lose data.*give it a late trigger"
    ):
        windowed.window_into(allowed_lateness="1h", name="longer")
    with pytest.raises(bl.PlanError, match=r"step 'plays.window_into_2': on_time may be .*'never'"):
        windowed.window_into(on_time="never")


COUNT, END = bl.AfterCount(5), bl.AfterWatermark()


@pytest.mark.parametrize(
    "trigger",
    [
        bl.DefaultTrigger(),
        END,
        bl.AfterWatermark(early=bl.Never(), late=COUNT),
        bl.AfterWatermark(percentile=66),
        bl.Never(),
        bl.Repeatedly(END),
        bl.AfterAny(END, bl.Never()),
        bl.AfterAll(COUNT, END),
        bl.AfterEach(END, COUNT),
        bl.OrFinally(bl.Repeatedly(END), bl.Never()),
    ],
    ids=str,
)
def test_a_trigger_that_waits_for_the_end_of_an_input_without_end_is_refused(trigger):
    windowed = plays(bounded=False).window_into(trigger=trigger, allow_data_loss=True)
    with pytest.raises(UnboundedGrouping, match="has no end and it is in the global window"):
        windowed.aggregate(n=bl.count())
    windowed.window_into(MINUTES).aggregate(n=bl.count())


@pytest.mark.parametrize(
    "trigger",
    [
        bl.Repeatedly(COUNT),
        bl.Always(),
        bl.AfterProcessingTime("1m"),
        bl.Repeatedly(bl.AfterSynchronizedProcessingTime()),
        bl.AfterWatermark(early=bl.AfterProcessingTime("1m")),
        bl.AfterAny(END, COUNT),
        bl.AfterAll(bl.AfterProcessingTime("1m", align_to="1h"), COUNT),
        bl.AfterEach(COUNT, END),
        bl.OrFinally(bl.Repeatedly(END), COUNT),
    ],
    ids=str,
)
def test_a_trigger_that_emits_meanwhile_is_taken_where_the_input_has_no_end(trigger):
    windowed = plays(bounded=False).window_into(trigger=trigger, allow_data_loss=True)
    assert windowed.aggregate(n=bl.count()).schema == pl.Schema({"n": pl.Int64()})


# --- sources with a clock of their own ---


def stream(*percentiles: int) -> bl.TestStream:
    """Returns a test stream of the usual columns that announces these percentiles."""
    return bl.TestStream(dict(SCHEMA)).advance_watermark_to(0, percentiles=dict.fromkeys(percentiles, 0))


def test_a_test_stream_brings_its_own_watermark():
    rows = bl.Pipeline("p").read("plays", stream(), timestamp="at")
    assert rows.node.origin.watermark == stream().watermark
    with pytest.raises(
        bl.PlanError, match="step 'plays': TestStream brings its own watermark; leave out watermark="
    ):
        bl.Pipeline("p").read("plays", stream(), timestamp="at", watermark=bl.MonotonousTimestamps())
    with pytest.raises(WrongType, match=r"step 'plays': watermark= must be a strategy such as .*, not None"):
        bl.Pipeline("p").read("plays", Declared(), timestamp="at")


def test_a_test_stream_and_another_source_do_not_share_a_pipeline():
    p = bl.Pipeline("p")
    for rows in (plays(p), p.read("steps", stream(), timestamp="at")):
        rows.write(f"{rows.name} out", bl.Memory())
    with pytest.raises(
        bl.PlanError,
        match=r"step 'steps': it has a clock of its own, unlike 'plays'; read all from test streams",
    ):
        p.plan()


def test_a_percentile_must_be_announced_by_every_source():
    def build(*sources: Any) -> bl.Collection:
        p = bl.Pipeline("p")
        rows = [p.read(name, source, timestamp="at") for name, source in zip("ab", sources, strict=True)]
        early = bl.AfterWatermark(early=bl.Repeatedly(bl.AfterWatermark(percentile=66)))
        windowed = bl.flatten(*rows).window_into(MINUTES, trigger=early)
        return windowed.group_by("user", name="totals").aggregate(n=bl.count())

    planned(build(stream(50, 66), stream(66)))
    with pytest.raises(
        bl.PlanError, match=r"step 'totals': AfterWatermark\(percentile=66\) .* 'b' does not have"
    ):
        planned(build(stream(66), stream(50)))
    usual = plays().window_into(MINUTES, trigger=bl.AfterWatermark(early=bl.AfterWatermark(percentile=5)))
    with pytest.raises(
        bl.PlanError, match=r"percentile=5.*'plays' does not have; give its strategy percentiles=\(5,\)"
    ):
        planned(usual.aggregate(n=bl.count()))


def test_data_loss_that_was_allowed_for_one_trigger_is_not_for_another() -> None:
    allowed = plays().window_into(bl.FixedWindows("1m"), trigger=bl.AfterCount(3), allow_data_loss=True)
    assert allowed.window_into(bl.FixedWindows("2m")).windowing.allow_data_loss
    with pytest.raises(bl.PlanError, match=r"AfterCount\(2\) may lose data"):
        allowed.window_into(trigger=bl.AfterCount(2))
    with pytest.raises(bl.PlanError, match="allow_data_loss must be True or False, not 'no'"):
        plays().window_into(bl.FixedWindows("1m"), trigger=bl.AfterCount(3), allow_data_loss="no")  # type: ignore[arg-type]
