"""Accumulating panes repeat each other: declarations that would count them several times are refused."""

from __future__ import annotations

from typing import Any

import pytest

import beamlike as bl

EARLY = bl.AfterWatermark(early=bl.AfterCount(2))
ROWS = [{"user": "ada", "score": 1, "at": second} for second in range(6)]


def panes(**choices: Any) -> bl.Collection:
    """Returns six events of a minute in a grouping with accumulating panes; early ones by default."""
    source = bl.Rows(ROWS, rows_per_batch=2)
    watermark = bl.BoundedOutOfOrderness("1m")
    rows = bl.Pipeline("repeats").read(
        "rows", source, timestamp="at", timestamp_unit="s", watermark=watermark
    )
    given = {"trigger": EARLY, "accumulation": "accumulating", "on_time": "if_non_empty", **choices}
    windowed = rows.window_into(bl.FixedWindows("1m"), **given)
    return windowed.group_by("user", name="scores").aggregate(total=bl.sum("score"))


def totals(collection: bl.Collection, **aggregates: Any) -> list[Any]:
    """Returns the final results of a second grouping."""
    out = bl.Memory()
    windowed = collection.window_into(bl.FixedWindows("1h"), trigger=bl.DefaultTrigger())
    windowed.aggregate(**aggregates).named("again").write("out", out)
    collection.pipeline.run()
    return out.frame()["result"].to_list()


@pytest.mark.parametrize(
    "aggregate", [bl.sum("total"), bl.count(), bl.mean("total"), bl.collect("total")], ids=str
)
def test_what_counts_repeats_is_refused_with_what_to_do(aggregate: Any) -> None:
    with pytest.raises(bl.PlanError, match=r"result=\w+\(.*\) would count elements several times") as error:
        totals(panes(), result=aggregate)
    for remedy in ("bl.DISCARDING", "bl.RETRACTING", "bl.last(...)", "allow_repeats=True"):
        assert remedy in str(error.value)


@pytest.mark.parametrize("aggregate", [bl.max("total"), bl.last("total")], ids=str)
def test_what_repeats_do_not_harm_is_accepted(aggregate: Any) -> None:
    assert totals(panes(), result=aggregate) == [6]


@pytest.mark.parametrize(
    "choices",
    [{"accumulation": "discarding"}, {"accumulation": "retracting"}, {"trigger": bl.DefaultTrigger()}],
    ids=str,
)
def test_panes_that_do_not_repeat_each_other_are_added_up(choices: dict[str, Any]) -> None:
    assert totals(panes(**choices), result=bl.sum("total")) == [6]


@pytest.mark.parametrize(
    "choices", [{"allowed_lateness": "1m"}, {"trigger": bl.Repeatedly(bl.AfterCount(9))}]
)
def test_late_panes_repeat_too(choices: dict[str, Any]) -> None:
    with pytest.raises(bl.PlanError, match="accumulating"):
        totals(panes(**{"trigger": bl.DefaultTrigger(), **choices}), result=bl.sum("total"))


def test_the_latest_per_key_and_window_may_be_added_up() -> None:
    once = panes().window_into(trigger=bl.DefaultTrigger(), accumulation="discarding")
    assert totals(once.group_by("user").aggregate(total=bl.last("total")), result=bl.sum("total")) == [6]


def test_who_picks_panes_by_what_they_are_may_add_them_up() -> None:
    assert totals(panes(on_time="always").filter(bl.pane_last()), result=bl.sum("total")) == [6]


@pytest.mark.parametrize("early", [True, False])
def test_who_asks_for_it_gets_repeats(early: bool) -> None:
    repeating = panes(allow_repeats=True) if early else panes().window_into(allow_repeats=True)
    assert totals(repeating, result=bl.sum("total")) == [2 + 4 + 6]


def test_repeats_are_known_after_steps_and_flatten() -> None:
    first = panes().map(lambda row: row, name="map").select("total")
    other = panes().select("total")
    with pytest.raises(bl.PlanError, match="accumulating"):
        bl.flatten(first, first.filter(bl.col("total") > 1)).aggregate(n=bl.count())
    with pytest.raises(bl.PlanError, match="accumulating"):
        other.with_columns(more=bl.lit(1)).aggregate(n=bl.count())


@pytest.mark.parametrize("aggregate", [bl.sum("total"), bl.count(), bl.mean("total")], ids=str)
def test_a_running_aggregate_that_counts_repeats_is_refused(aggregate: Any) -> None:
    with pytest.raises(bl.PlanError, match=r"result=\w+\(.*\) would count elements several times"):
        panes().group_by("user").running(result=aggregate)


@pytest.mark.parametrize("aggregate", [bl.max("total"), bl.previous("total")], ids=str)
def test_a_running_aggregate_that_repeats_do_not_harm_is_accepted(aggregate: Any) -> None:
    assert panes().group_by("user").running(result=aggregate).node.kind == "repeats"


def test_running_totals_of_repeats_are_given_if_they_are_asked_for() -> None:
    out = bl.Memory()
    asked = panes().window_into(bl.GlobalWindows(), allow_repeats=True)
    asked.group_by("user").running(result=bl.sum("total")).write("out", out)
    asked.pipeline.run()
    assert out.frame()["result"].to_list() == [2, 2 + 4, 2 + 4 + 6]
