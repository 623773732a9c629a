"""Event times that a step sets: how far back they may move, and the watermark downstream."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import StepError, WrongType
from tests.support.pipelines import Declared, frame, plays
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SECOND = 1_000_000
MINUTES = bl.FixedWindows("1m")


def apply(rows: bl.Collection, given: pl.DataFrame) -> pl.DataFrame:
    return rows.node.origin.apply(given.lazy()).collect()


def scored(*ticks: int | None) -> pl.DataFrame:
    """Returns rows at 0s, 1s, ..., with these ticks."""
    return frame(*range(len(ticks)), tick=pl.Series("tick", ticks, dtype=pl.Int64))


# The step


def test_the_column_is_the_event_time_from_here_on() -> None:
    rows = plays().with_timestamps("tick", timestamp_unit="s", allowed_skew="1s")
    result = apply(rows, scored(7, 0, 2))
    assert result[EVENT_TIME].to_list() == [7 * SECOND, 0, 2 * SECOND]
    assert result.columns == scored(0).columns
    assert rows.schema == plays().schema
    assert apply(rows, scored()).is_empty()


def test_an_element_that_moves_back_too_far_is_an_error_that_says_all() -> None:
    rows = plays().with_timestamps("tick", timestamp_unit="s", allowed_skew="2s", name="happened")
    apply(rows, scored(0, 0, 0))
    with pytest.raises(StepError) as caught:
        apply(rows, scored(0, 0, 0, 0, 9))
    assert str(caught.value) == (
        "step 'happened': column 'tick' is 0, which moves an element back from 1970-01-01T00:00:03Z to "
        "1970-01-01T00:00:00Z, that is by 3s; the watermark downstream counts on at most allowed_skew=2s"
    )


@pytest.mark.parametrize(("tick", "why"), [(None, "is null"), (2**62, "is out of range")])
def test_every_element_needs_a_time(tick: int | None, why: str) -> None:
    rows = plays().with_timestamps("tick", timestamp_unit="s", name="happened")
    with pytest.raises(
        StepError, match=f"step 'happened': event time column 'tick' {why}.*filter out before"
    ):
        apply(rows, scored(1, tick))


def test_the_order_of_steps_and_columns_are_kept_in_a_plan() -> None:
    rows = plays().with_timestamps("tick", timestamp_unit="s").filter(bl.event_time().dt.second() > 1)
    rows.select("user").write("out", bl.Memory())
    (route,) = rows.pipeline.plan().sources["plays"].routes
    assert route.needed == {"user", "tick", EVENT_TIME}
    assert [step.detail() for step in route.steps[:1]] == ["tick"]


# The skew


def test_skews_add_up_on_a_way_and_the_greatest_counts() -> None:
    source = plays()
    late = source.with_timestamps("at", allowed_skew="5s").with_timestamps("at", allowed_skew="2s")
    both = bl.flatten(late, source, source.with_timestamps("at", allowed_skew="6s"))
    totals = both.window_into(MINUTES).group_by("user", name="totals").aggregate(n=bl.count())
    totals.aggregate(users=bl.count()).write("out", bl.Memory())
    stages = source.pipeline.plan().stages
    assert stages["totals"].skews == {"plays": 7 * SECOND}
    assert stages["totals.aggregate"].skews == {}


def test_the_watermark_of_a_stage_is_so_much_behind() -> None:
    stream = bl.TestStream({"at": int, "made": int})
    for at, made in ((50, 50), (62, 58), (66, 66)):
        stream = stream.add_elements([{"at": at, "made": made}]).advance_watermark_to(at)
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = p.read("plays", stream, timestamp="at", timestamp_unit="s")
    moved = rows.with_timestamps("made", timestamp_unit="s", allowed_skew="5s")
    moved.window_into(MINUTES).aggregate(n=bl.count()).write("out", out)
    run = p.run()
    inputs = [batch.stages["plays.aggregate"].input for batch in run.batches]
    assert inputs[1:] == [*(second * SECOND for second in (45, 45, 57, 57, 61)), MAX_TIME]
    assert out.frame()["n"].to_list() == [2, 1]
    assert not any(batch.stages["plays.aggregate"].dropped for batch in run.batches)


# Refusals


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda rows: rows.with_timestamps("att"), KeyError, "there is no column 'att'.*did you mean 'at'"),
        (lambda rows: rows.with_timestamps("tick"), WrongType, "'tick' is Int64.*unit"),
        (lambda rows: rows.with_timestamps("at", allowed_skew="-1s"), bl.PlanError, "allowed_skew"),
        (
            lambda rows: rows.with_timestamps("at", allowed_skew=-1),
            bl.PlanError,
            "must not be negative, not -1",
        ),
        (
            lambda rows: rows.with_timestamps("at", allowed_skew=None),
            WrongType,
            "allowed_skew: expected a duration",
        ),
        (
            lambda rows: rows.dead_letters().with_timestamps("row"),
            bl.PlanError,
            "dead letters have no event time",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        call(plays())
    assert isinstance(caught.value, bl.PlanError)
    assert "step 'plays." in str(caught.value)


def test_rows_without_event_time_need_a_watermark_first() -> None:
    with pytest.raises(bl.PlanError, match=r"its rows have no event time yet; call with_watermark\("):
        bl.Pipeline("p").read("raw", Declared()).with_timestamps("at")
