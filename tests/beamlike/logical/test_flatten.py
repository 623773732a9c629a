"""Flatten: the rows of several collections, which must have the same columns."""

from __future__ import annotations

import narwhals as nw
import pytest

import beamlike as bl
from beamlike.errors import UnlikeCollections, WrongType
from tests.support.pipelines import plays
from windowing.columns import EVENT_TIME, WINDOW_END, WINDOW_START

MINUTES = bl.FixedWindows("1m")


def unlike(p: bl.Pipeline) -> bl.Collection:
    """Returns rows in different windows."""
    early = bl.Repeatedly(bl.AfterCount(2))
    minutes = plays(p, "a").window_into(MINUTES, trigger=early, accumulation="accumulating")
    return bl.flatten(
        minutes, plays(p, "b").window_into(bl.Sessions("5m"), allowed_lateness="1h"), name="both"
    )


def test_flatten_of_unlike_windows_has_the_choices_of_the_first_and_the_largest_lateness():
    both = unlike(bl.Pipeline("p"))
    assert both.windowing.trigger == bl.Repeatedly(bl.AfterCount(2))
    assert both.windowing.accumulation is bl.ACCUMULATING
    assert both.windowing.allowed_lateness == 3_600_000_000


@pytest.mark.parametrize(
    "step",
    [
        lambda both: both.aggregate(n=bl.count()),
        lambda both: both.filter("won").group_by("user").running(n=bl.count()),
        lambda both: both.distinct(),
        lambda both: both.group_by("user").aggregate(n=bl.count()),
    ],
)
def test_what_needs_windows_after_unlike_ones_is_refused_until_window_into_sets_them(step):
    both = unlike(bl.Pipeline("p"))
    with pytest.raises(bl.PlanError) as caught:
        step(both)
    assert str(caught.value).endswith(
        "its rows are in unlike windows (FixedWindows(size=1m) in 'a.window_into' but Sessions(gap=5m) in "
        "'b.window_into'), so they never meet in one; call window_into(...) with the windows before"
    )
    step(both.window_into(bl.FixedWindows("2m")))


def test_a_join_of_unlike_windows_says_which_and_how():
    p = bl.Pipeline("p")
    left, right = (
        plays(p, name).window_into(windows) for name, windows in (("a", MINUTES), ("b", bl.Sessions("5m")))
    )
    with pytest.raises(UnlikeCollections) as caught:
        left.join(right, on="user")
    assert str(caught.value).endswith(
        "unlike windows: FixedWindows(size=1m) in 'a.window_into' but Sessions(gap=5m) in 'b.window_into'; "
        "call window_into(...) with the same windows on each before"
    )


def test_merged_and_fresh_sessions_are_unlike():
    p = bl.Pipeline("p")
    fresh = plays(p).window_into(bl.Sessions("1m"))
    merged = fresh.group_by("user").aggregate(score=bl.sum("score"))
    both = bl.flatten(fresh.select("user", "score"), merged)
    with pytest.raises(bl.PlanError, match=r"'plays.aggregate' was grouped, so its windows are merged"):
        both.aggregate(n=bl.count())


def test_unlike_windows_together_are_grouped_in_windows_that_are_set_after():
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = [{"v": 1, "at": second} for second in (1, 70)]
    each = [
        p.read(name, bl.Rows(rows), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        .window_into(windows)
        .aggregate(v=bl.sum("v"))
        for name, windows in (("a", MINUTES), ("b", bl.FixedWindows("2m")))
    ]
    bl.flatten(each).window_into(bl.FixedWindows("4m")).aggregate(v=bl.sum("v")).write("out", out)
    p.run()
    assert out.frame()["v"].to_list() == [4]


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
    with pytest.raises(bl.PlanError, match="different pipelines, 'other', 'test'"):
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
