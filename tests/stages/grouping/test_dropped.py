"""Collections of dropped elements and of retractions: their plans and their rows."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import DuplicateName
from tests.support.pipelines import SCHEMA, plays
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS

MINUTES = bl.FixedWindows("1m")
ROWS = {"user": str, "score": int, "at": int}


def read(p: bl.Pipeline, stream: bl.TestStream) -> bl.Collection:
    return p.read("plays", stream, timestamp="at", timestamp_unit="s")


def row(user: str, score: int, at: int) -> dict[str, Any]:
    return {"user": user, "score": score, "at": at}


def ran(collection: bl.Collection) -> pl.DataFrame:
    """Runs the collection's pipeline and returns the rows that a sink receives."""
    out = bl.Memory()
    collection.write("out", out)
    collection.pipeline.run()
    return out.frame()


# --- the plan ---


def test_dropped_elements_have_the_columns_of_the_input_and_a_reason():
    totals = plays().window_into(MINUTES).group_by("user", name="totals").aggregate(n=bl.count())
    late = totals.late()
    assert late.schema == pl.Schema({**SCHEMA, "reason": pl.String()})
    assert (late.name, late.node.shape.system) == ("totals.late", (EVENT_TIME, *WINDOW_COLUMNS))
    assert late.windowing == totals.node.inputs[0].windowing
    assert late.select(bl.window_start(), bl.event_time()).schema.names() == ["window_start", "event_time"]
    with pytest.raises(bl.PlanError, match=r"bl.pane_index\(\): its rows are in no pane"):
        late.select(bl.pane_index())


def test_a_stage_gets_every_column_only_if_somebody_wants_what_it_drops():
    def plan(*, wanted: bool) -> Any:
        p = bl.Pipeline("p")
        totals = plays(p).window_into(MINUTES).group_by("user", name="totals").aggregate(n=bl.count())
        totals.write("out", bl.Memory())
        late = totals.late(name="too late")
        if wanted:
            late.select("user", "reason").write("lost", bl.Memory())
        return p.plan()

    without, with_late = plan(wanted=False), plan(wanted=True)
    assert without.stages["totals"].stage.operator.late_columns is None
    assert without.sources["plays"].routes[0].columns == ("user", EVENT_TIME)
    assert with_late.stages["totals"].stage.operator.late_columns == tuple(SCHEMA)
    assert set(with_late.sources["plays"].routes[0].columns) == {*SCHEMA, EVENT_TIME}
    routes = {route.consumer: (route.output, route.columns) for route in with_late.stages["totals"].routes}
    assert routes["lost"] == ("late", ("user", "reason", EVENT_TIME, *WINDOW_COLUMNS))
    assert routes["out"][0] == "main"
    assert with_late.sinks["lost"].inputs == ("totals",)


def test_a_grouping_of_dropped_elements_is_a_level_below():
    totals = plays().window_into(MINUTES).group_by("user", name="totals").aggregate(n=bl.count())
    reasons = totals.late().group_by("reason", name="reasons").aggregate(n=bl.count())
    reasons.write("out", bl.Memory())
    plan = reasons.pipeline.plan()
    assert plan.levels == (("totals",), ("reasons",))
    (route,) = plan.stages["totals"].routes
    assert (route.output, route.columns) == ("late", ("reason", EVENT_TIME, *WINDOW_COLUMNS))
    assert "late elements -> reasons  ships reason, event time, window" in reasons.pipeline.explain()


def test_dropped_elements_of_merging_windows_are_not_merged_yet():
    sessions = plays().window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count())
    assert sessions.node.merged
    assert not sessions.late().node.merged
    assert sessions.aggregate(n=bl.sum("n")).late().node.merged


@pytest.mark.parametrize(
    "build", [plays, lambda: plays().window_into(MINUTES), lambda: plays().filter("won")]
)
def test_only_a_grouping_drops_elements(build):
    with pytest.raises(
        bl.PlanError, match=r"late': only the output of a grouping, a join, or a process has late elements"
    ):
        build().late()


def test_a_column_called_reason_is_refused():
    renamed = plays().with_columns(reason=bl.col("user")).window_into(MINUTES)
    totals = renamed.aggregate(n=bl.count())
    with pytest.raises(DuplicateName, match=r"step 'lost': .*rename that before the grouping"):
        totals.late(name="lost")
    assert totals.select(reason=bl.col("n")).schema.names() == ["reason"]


# --- runs ---


def test_dropped_elements_come_with_reason_and_window():
    stream = (
        bl.TestStream(ROWS)
        .add_elements([row("a", 1, 10)])
        .advance_watermark_to(130)
        .add_elements([row("a", 2, 70), row("b", 3, 30), row("a", 4, 140)])
        .advance_watermark_to_infinity()
    )
    rows = read(bl.Pipeline("late"), stream)
    windowed = rows.window_into(MINUTES, allowed_lateness="1m")
    late = ran(windowed.group_by("user").aggregate(n=bl.count()).late())
    assert late.columns == ["window_start", "window_end", "user", "score", "at", "reason", "event_time"]
    assert late.select("user", "score", "reason").rows() == [("b", 3, "late")]
    assert late["window_start"].dt.timestamp("us").to_list() == [0]


def test_elements_for_a_closed_window_are_told_apart():
    stream = (
        bl.TestStream(ROWS)
        .add_elements([row("a", 1, 10)])
        .add_elements([row("a", 2, 20)])
        .advance_watermark_to_infinity()
    )
    windowed = read(bl.Pipeline("closed"), stream).window_into(
        MINUTES, trigger=bl.AfterCount(1), allow_data_loss=True
    )
    late = ran(windowed.group_by("user").aggregate(n=bl.count()).late().select("score", "reason"))
    assert late.select("score", "reason").rows() == [(2, "closed")]


def test_elements_that_are_a_closed_session_again_are_told_from_those_of_a_new_one():
    stream = (
        bl.TestStream(ROWS)
        .add_elements([row("a", 1, 5), row("a", 2, 10), row("b", 3, 5)])
        .advance_watermark_to("1970-01-01T00:00:30Z")
        .add_elements([row("a", 4, 10), row("a", 5, 5), row("a", 6, 40), row("b", 7, 7), row("c", 8, 5)])
        .advance_watermark_to_infinity()
    )
    windowed = read(bl.Pipeline("closed"), stream).window_into(
        bl.Sessions("10s"), trigger=bl.AfterWatermark(), allowed_lateness="1m", allow_data_loss=True
    )
    late = ran(windowed.group_by("user").aggregate(n=bl.count()).late().select("score", "reason"))
    assert sorted(late.select("score", "reason").rows()) == [(4, "closed"), (5, "closed")]


def test_dropped_elements_can_be_grouped_in_windows_that_are_open():
    stream = (
        bl.TestStream(ROWS)
        .advance_watermark_to(130)
        .add_elements([row("a", 2, 70), row("b", 3, 30), row("a", 4, 20)])
        .advance_watermark_to_infinity()
    )
    totals = read(bl.Pipeline("count"), stream).window_into(MINUTES).group_by("user").aggregate(n=bl.count())
    counted = totals.late().window_into(bl.GlobalWindows()).group_by("reason").aggregate(n=bl.count())
    assert ran(counted).select("reason", "n").rows() == [("late", 3)]


def updates() -> bl.TestStream:
    """Returns a stream whose window emits on time, and once more for a late element."""
    return (
        bl.TestStream(ROWS)
        .add_elements([row("a", 3, 10), row("b", 5, 20)])
        .advance_watermark_to(60)
        .add_elements([row("a", 4, 30)])
        .advance_watermark_to_infinity()
    )


def retracting(p: bl.Pipeline) -> bl.Collection:
    windowed = read(p, updates()).window_into(
        MINUTES, accumulation=bl.RETRACTING, allowed_lateness="1h", on_time="if_non_empty"
    )
    return windowed.group_by("user", name="totals").aggregate(total=bl.sum("score"))


def test_a_sink_sees_what_is_taken_back():
    panes = ran(retracting(bl.Pipeline("p")))
    assert panes.columns[-3:] == ["pane_timing", "pane_index", "pane_retracted"]
    of_a = panes.filter(pl.col("user") == "a").select("total", "pane_index", "pane_retracted")
    assert of_a.rows() == [(3, 0, False), (3, 0, True), (7, 1, False)]


def test_a_sum_after_retractions_is_that_of_the_last_values():
    totals = (
        retracting(bl.Pipeline("p")).filter(bl.col("total") > 0).window_into(accumulation=bl.ACCUMULATING)
    )
    sums = ran(totals.aggregate(total=bl.sum("total"), n=bl.count()))
    assert "pane_retracted" not in sums.columns
    assert sums.select("total", "n").rows() == [(8, 2), (12, 2)]


def test_rows_without_retractions_run_beside_those_with():
    p = bl.Pipeline("p")
    panes = retracting(p).select("total")
    more = p.read("more", updates(), timestamp="at", timestamp_unit="s").select(total=bl.col("score") * 10)
    other = more.window_into(
        MINUTES, accumulation=bl.RETRACTING, allowed_lateness="1h", on_time="if_non_empty"
    )
    both = bl.flatten(panes, other, name="both").select("total", taken_back=bl.pane_retracted())
    seen = ran(both).select("total", "taken_back").rows()
    assert sorted(seen) == [
        (3, False),
        (3, True),
        (5, False),
        (7, False),
        (30, False),
        (40, False),
        (50, False),
    ]


def test_a_dropped_retraction_says_that_it_is_one():
    p = bl.Pipeline("p")
    totals = retracting(p).window_into(bl.FixedWindows("1m"), trigger=bl.AfterCount(1), allow_data_loss=True)
    late = totals.aggregate(total=bl.sum("total")).late()
    assert late.node.shape.system == (EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED)
    seen = ran(late).select("user", "total", "reason", "pane_retracted").rows()
    assert sorted(seen) == [("a", 3, "closed", True), ("a", 7, "closed", False)]


def test_a_second_grouping_keeps_the_windows_that_custom_windows_have_merged():
    class Auctions(bl.CustomWindows):
        columns = ("score",)

        def assign_windows(self, time, row):
            return [(time, time + 1_000_000 * row["score"])]

        def merge_windows(self, windows):
            if len(windows) > 1:
                yield windows, (windows[0][0], max(end for _, end in windows))

    rows = read(bl.Pipeline("p"), updates()).window_into(Auctions(), allowed_lateness="1h")
    bids = rows.group_by("user").aggregate(n=bl.count())
    again = ran(bids.group_by("user").aggregate(n=bl.sum("n")))
    assert sorted(again.select("user", "n").rows()) == [("a", 1), ("a", 1), ("b", 1)]
