"""Flatten: the rows of several collections, which must be alike in columns and windowing."""

from __future__ import annotations

import narwhals as nw
import pytest

import beamlike as bl
from beamlike.errors import UnlikeCollections, WrongType
from tests.support.pipelines import plays
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START

MINUTES = bl.FixedWindows("1m")


def test_flatten_of_unlike_windows_says_which_and_how():
    p = bl.Pipeline("p")
    with pytest.raises(UnlikeCollections) as caught:
        bl.flatten(
            plays(p, "a").window_into(MINUTES),
            plays(p, "b").window_into(bl.Sessions("5m"), allowed_lateness="1h"),
            name="both",
        )
    assert str(caught.value) == (
        "step 'both': unlike windowings: "
        "windows FixedWindows(size=1m) in 'a.window_into' but Sessions(gap=5m) in 'b.window_into'; "
        "allowed lateness 0s in 'a.window_into' but 1h in 'b.window_into'; "
        "call window_into(...) with the same choices on each before"
    )


def test_flatten_of_merged_and_fresh_sessions_is_refused():
    p = bl.Pipeline("p")
    fresh = plays(p).window_into(bl.Sessions("1m"))
    merged = fresh.group_by("user").aggregate(score=bl.sum("score"))
    with pytest.raises(UnlikeCollections, match=r"'plays.aggregate' was grouped, so its windows are merged"):
        bl.flatten(fresh.select("user", "score"), merged)


def test_flatten_of_unlike_columns_says_which_and_how():
    p = bl.Pipeline("p")
    left = plays(p, "a").select("user", "score")
    right = plays(p, "b").select("user", bl.col("score").cast(nw.Float64), "won")
    with pytest.raises(
        UnlikeCollections, match=r"'a.select' has score Int64, 'b.select' has score Float64, won"
    ):
        bl.flatten(left, right)


def test_flatten_takes_columns_in_any_order():
    p = bl.Pipeline("p")
    both = bl.flatten(plays(p, "a").select("user", "score"), plays(p, "b").select("score", "user"))
    assert both.schema.names() == ["user", "score"]


def test_flatten_of_what_is_not_several_collections_of_one_pipeline():
    one = plays()
    with pytest.raises(
        bl.PlanError, match=r"step 'flatten\(plays\)': flatten needs at least two collections, got 1"
    ):
        bl.flatten(one)
    with pytest.raises(bl.PlanError, match="at least two collections, got 0"):
        bl.flatten()
    with pytest.raises(WrongType, match="expected collections, got 'plays'"):
        bl.flatten(one, "plays")
    with pytest.raises(bl.PlanError, match="different pipelines: other, test"):
        bl.flatten(plays(bl.Pipeline("other")), one)


def test_what_only_some_rows_have_of_windows_and_panes_is_left_behind():
    p = bl.Pipeline("p")
    fresh = plays(p).select("score").window_into(MINUTES)
    panes = plays(p, "more").window_into(MINUTES).aggregate(score=bl.sum("score"))
    assert bl.flatten(panes, fresh).node.shape.system == (EVENT_TIME, WINDOW_START, WINDOW_END)
    with pytest.raises(bl.PlanError, match="its rows are in no pane"):
        bl.flatten(panes, fresh).select(bl.pane_index())


def test_it_is_bounded_if_all_its_inputs_are():
    p = bl.Pipeline("p")
    files, live = plays(p), plays(p, "live", bounded=False)
    assert bl.flatten(files, files).node.bounded
    assert not bl.flatten(files, live).node.bounded


def test_collections_may_be_given_in_a_list():
    source = plays()
    assert bl.flatten([source, source]).node.inputs == (source.node, source.node)


def test_dead_letters_of_several_sources_are_one_collection():
    p = bl.Pipeline("p")
    letters = bl.flatten(plays(p, "a").dead_letters(), plays(p, "b").dead_letters())
    letters.write("lost", bl.Memory())
    assert p.plan().sinks["lost"].inputs == ("a", "b")
    lookalike = plays(p, "c").select(step="user", error="user", row="user")
    with pytest.raises(UnlikeCollections, match="rows with and without an event time"):
        bl.flatten(letters, lookalike)


def test_columns_that_only_some_have_are_null_in_the_others():
    p = bl.Pipeline("p")
    both = bl.flatten(plays(p, "a").select("user"), plays(p, "b").select("score"), fill_missing=True)
    assert list(both.schema) == ["user", "score"]
    other = plays(p, "d").select(user=bl.lit(1, nw.Int64))
    with pytest.raises(UnlikeCollections, match=r"'user' is Int64 in 'd.select', and String in another"):
        bl.flatten(plays(p, "c").select("user"), other, fill_missing=True)
