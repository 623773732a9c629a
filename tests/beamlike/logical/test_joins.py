"""Declarations of cogroups and joins: names, types, and invalid ones."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import (
    DuplicateName,
    UnboundedGrouping,
    UnknownColumn,
    UnknownName,
    UnlikeCollections,
    WrongType,
)
from tests.support.pipelines import plays

MINUTES = bl.FixedWindows("1m")
COLUMNS = ("user", "score", "tick")


def two(
    windows: bl.WindowFn = MINUTES, *, bounded: bool = True, **choices: Any
) -> tuple[bl.Collection, bl.Collection]:
    p = bl.Pipeline("p")
    left, right = (
        plays(p, name, bounded=bounded).window_into(windows, **choices).select(*COLUMNS)
        for name in ("l", "r")
    )
    return left, right


def test_keys_are_there_once_and_other_columns_of_both_get_the_suffix() -> None:
    left, right = two()
    assert left.join(right, on="user").schema.names() == [
        "user",
        "score",
        "tick",
        "score_right",
        "tick_right",
    ]
    found = left.join(right, on=["user", "tick"], suffix="_then").schema
    assert found.names() == ["user", "score", "tick", "score_then"]
    assert left.join(right.rename({"score": "points"}), on=["tick", "user"]).schema["points"] == pl.Int64


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_have_only_the_columns_of_the_left_side(how: Any) -> None:
    left, right = two()
    assert left.join(right, on="user", how=how).schema == left.schema


def test_keys_of_other_names_are_called_as_on_the_left() -> None:
    left, right = two()
    right = right.rename({"user": "player"})
    found = left.join(right, left_on="user", right_on="player").schema
    assert found.names() == ["user", "score", "tick", "score_right", "tick_right"]
    both = left.join(right, left_on=["user", "tick"], right_on=["player", "score"], how="full").schema
    assert both.names() == ["user", "score", "tick", "tick_right"]


def test_a_name_is_that_of_the_join_and_begins_that_of_its_stage() -> None:
    left, right = two()
    joined = left.join(right, on="user", name="paid")
    joined.write("out", bl.Memory())
    assert (joined.name, list(joined.pipeline.plan().stages)) == ("paid", ["paid.cogroup"])
    assert left.join(right, on="user").name == "l.join"
    assert left.join(right, on="user").name == "l.join_2"
    with pytest.raises(DuplicateName):
        left.join(right, on="user", name="paid")


@pytest.mark.parametrize(
    ("choices", "kind", "told"),
    [
        ({"on": "usr"}, UnknownColumn, "no column 'usr'.*did you mean 'user'"),
        ({"on": "user", "how": "outer"}, UnknownName, "how must be one of inner, .* not 'outer'; did you mean 'full'"),
        ({"on": "user", "how": "left_outer"}, UnknownName, "did you mean 'left'"),
        ({"on": "user", "how": "left_anti"}, UnknownName, "did you mean 'anti'"),
        ({"on": "user", "how": "iner"}, UnknownName, "did you mean 'inner'"),
        ({"on": "user", "how": ["left"]}, UnknownName, "not \\['left'\\]"),
        ({}, bl.PlanError, "give on=, the columns that both sides have, or left_on= and right_on="),
        ({"left_on": "user"}, bl.PlanError, "or left_on= and right_on="),
        ({"on": "user", "left_on": "user", "right_on": "user"}, bl.PlanError, "give on=, "),
        ({"left_on": ["user", "tick"], "right_on": "user"}, bl.PlanError, "left_on has 2 columns and right_on 1"),
        ({"left_on": "user", "right_on": "tick"}, WrongType, "the key 'user' of 'l.select' is String, and 'tick' of"),
        ({"on": "user", "suffix": ""}, DuplicateName, "both sides have 'score'.*give another suffix"),
        ({"on": "user", "suffix": 3}, WrongType, "suffix must be text"),
        ({"on": []}, bl.PlanError, "give it at least one column as the key"),
        ({"on": [], "within": ("0s", "1s")}, bl.PlanError, "give it at least one column as the key"),
        ({"on": ["user", "user"]}, DuplicateName, "the key 'user' is given twice"),
        ({"on": "user", "keep_forever": True, "event_time": "left"}, bl.PlanError, "event_time='left' is for"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(choices: dict[str, Any], kind: type[Exception], told: str) -> None:
    left, right = two()
    with pytest.raises(kind, match=told):
        left.join(right, **choices)


def test_windowings_must_be_alike() -> None:
    left, right = two()
    with pytest.raises(
        UnlikeCollections, match=r"windows: FixedWindows\(size=1m\) in 'l.select' but .*window_into"
    ):
        left.join(right.window_into(bl.FixedWindows("2m")), on="user")
    later = bl.cogroup(a=left, b=right.window_into(allowed_lateness="1h")).by("user")
    assert later.windowing.allowed_lateness == 3_600_000_000


def test_an_input_without_end_needs_windows() -> None:
    left, right = two(bl.GlobalWindows(), bounded=False)
    with pytest.raises(UnboundedGrouping, match="would never emit; call window_into"):
        left.join(right, on="user")
    with pytest.raises(UnboundedGrouping, match="would never emit"):
        bl.cogroup(a=left, b=right).by("user")


@pytest.mark.parametrize(
    "choices", [{"allowed_lateness": "1h"}, {"trigger": bl.AfterWatermark(early=bl.AfterCount(1))}]
)
def test_discarding_panes_have_each_result_once(choices: dict[str, Any]) -> None:
    left, right = two(**choices)
    for how in "inner", "left", "semi", "anti":
        joined = left.join(right, on="user", how=how)
        assert (joined.node.kind, joined.windowing.accumulation) == ("rows", bl.DISCARDING)
        assert "__pane_index" in joined.node.shape.system
    changes, _ = two(accumulation="retracting", trigger=bl.AfterWatermark(early=bl.AfterCount(1)))
    counts = changes.group_by("user").aggregate(n=bl.count()).window_into(accumulation="discarding")
    assert counts.join(counts, on="user", how="left").node.kind == "changes"


def test_a_join_of_discarding_panes_is_refused_where_it_could_not_tell_what_is_new() -> None:
    left, right = two(bl.Sessions("1m"), allowed_lateness="1h")
    with pytest.raises(bl.PlanError, match=r"windows that have merged \(Sessions"):
        left.join(right, on="user")
    left, right = two(bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(1)), bounded=False)
    left.join(right, on="user", how="semi")
    with pytest.raises(
        UnboundedGrouping, match=r"that a row matches nothing \(how='anti'\) is never certain"
    ):
        left.join(right, on="user", how="anti")
    with pytest.raises(UnboundedGrouping, match="the newest row of a key is never certain"):
        left.latest("user")


def test_rows_that_repeat_others_are_refused_and_rows_that_retract_them_are_joined() -> None:
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    left, right = two(trigger=early, accumulation="accumulating")
    scores = left.group_by("user").aggregate(score=bl.sum("score"))
    with pytest.raises(bl.PlanError, match=r"rows of 'l.aggregate' \(left\) .*several times"):
        scores.join(right, on="user")
    left, right = two(trigger=early, accumulation="retracting")
    scores = left.group_by("user").aggregate(score=bl.sum("score"))
    assert scores.join(right, on="user").node.kind == "changes"
    for by_time in {"within": ("0s", "1s")}, {"keep_forever": True}:
        assert scores.join(right, on="user", **by_time).node.kind == "changes"


def test_chosen_timestamps_are_those_of_single_rows() -> None:
    p = bl.Pipeline("p")
    rows = plays(p).window_into(MINUTES, timestamp_combiner=bl.timestamp_of("won"))
    with pytest.raises(bl.PlanError, match=r"timestamp_of\(\"won\"\) reads a column of single rows"):
        rows.join(rows, on="user")


def test_a_join_needs_a_collection_of_the_same_pipeline() -> None:
    left, _ = two()
    with pytest.raises(WrongType, match="expected a collection to join with, got 3"):
        left.join(3, on="user")  # type: ignore[arg-type]
    with pytest.raises(bl.PlanError, match="of different pipelines, 'p' and 'test'"):
        left.join(plays(), on="user")
    with pytest.raises(bl.PlanError, match="cogroup needs at least two collections, got 1"):
        bl.cogroup(a=left)


def test_names_of_sides_and_keys() -> None:
    left, right = two()
    with pytest.raises(DuplicateName, match="'user' is the name of a key and of a side"):
        bl.cogroup(user=left, b=right).by("user")
    with pytest.raises(bl.PlanError, match="a key of a join must not be named 'left'"):
        left.rename({"user": "left"}).join(right.rename({"user": "left"}), on="left")
    with pytest.raises(
        WrongType, match=r"'user' of 'l.select' is String, and 'user' of 'r.with_columns' is Int64"
    ):
        bl.cogroup(a=left, b=right.with_columns(user=bl.col("tick").cast(nw.Int64))).by("user")


def test_a_cogroup_has_a_list_of_rows_for_each_side() -> None:
    left, right = two()
    found = bl.cogroup(a=left, b=right, c=left).by("user", name="all of them")
    rows = pl.List(pl.Struct(left.schema))
    assert (found.name, found.schema) == ("all of them", {"user": pl.String, "a": rows, "b": rows, "c": rows})


def test_a_join_may_be_renamed_and_tells_what_it_is() -> None:
    left, right = two()
    joined = left.join(right, on="user", how="full").named("both")
    joined.write("out", bl.Memory())
    joined.late().write("late", bl.Memory())
    told = joined.pipeline.explain()
    assert "both  join full on user" in told
    assert "l.join.left  side left" in told
    assert joined.late().schema.names() == ["user", "left", "right", "reason"]


def test_a_sink_that_replaces_rows_takes_those_of_a_join_whose_sides_have_keys() -> None:
    left, right = two()
    with pytest.raises(bl.PlanError, match=r"'l.window_into' puts the rows of several windows into one"):
        left.join(right, on="user").write("out", bl.Table("sqlite:///x.db", "t", mode="upsert"))
