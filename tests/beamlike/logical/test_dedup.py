"""Declarations of dedup, distinct and latest, and invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import DuplicateName, UnboundedGrouping, UnknownColumn, UnknownName, WrongType
from beamlike.plan.differences import differences
from beamlike.plan.manifest import describe
from tests.support.pipelines import plays

MINUTES = bl.FixedWindows("1m")


@pytest.mark.parametrize(
    ("ids", "choices", "kind", "told"),
    [
        ((), {"within": "1h"}, bl.PlanError, r"give it the column with the id.*there is distinct\(\)"),
        (("usr",), {"within": "1h"}, UnknownColumn, "no column 'usr'.*did you mean 'user'"),
        (("user", "user"), {"within": "1h"}, DuplicateName, "the key 'user' is given twice"),
        (("rate",), {"within": "1h"}, WrongType, "the key 'rate' is Float64"),
        (("user",), {"within": "1h", "by": "proccessing"}, UnknownName, "by must be .*did you mean 'processing'"),
        (("user",), {"within": "-1h"}, bl.PlanError, "within"),
        (("user",), {"within": "0s"}, bl.PlanError, "within must be longer than nothing"),
        (("user",), {"within": "soon"}, bl.PlanError, "within: .*soon"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_dedup_is_told(
    ids: tuple[str, ...], choices: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        plays().dedup(*ids, **choices)


def test_dedup_keeps_columns_and_windows_and_tells_for_how_long_it_remembers() -> None:
    rows = plays(bounded=False)
    once = rows.dedup("user", "tick", within="90s", name="once")
    assert (once.name, once.schema) == ("once", rows.schema)
    once.write("out", bl.Memory())
    once.late().write("late", bl.Memory())
    told = once.pipeline.explain()
    assert "covers      1m30s of event time" in told
    assert "keys        user, tick" in told
    assert rows.window_into(MINUTES).dedup("user", within="1h").windowing.windows == MINUTES


def test_sessions_that_have_not_merged_are_refused() -> None:
    with pytest.raises(bl.PlanError, match="state of two windows cannot become one"):
        plays().window_into(bl.Sessions("1m")).dedup("user", within="1h")


def test_of_rows_that_take_back_others_the_rows_that_are_left_are_kept() -> None:
    early = bl.AfterWatermark(early=bl.AfterCount(1))
    retracting = plays(bounded=False).window_into(MINUTES, trigger=early, accumulation="retracting")
    scores = retracting.group_by("user").aggregate(score=bl.sum("score"))
    endless = scores.window_into(bl.GlobalWindows())
    for once in (scores.latest("user"), scores.dedup("user", within="1h"), endless.distinct(name="once")):
        assert once.node.kind == "changes"
    endless.distinct(name="once again").write("out", bl.Memory())
    assert "changes     keeps the rows that are left" in endless.pipeline.explain()
    with pytest.raises(bl.PlanError, match='the processing time of a row is not part of it; give by="event"'):
        scores.dedup("user", within="1h", by="processing")


def test_distinct_needs_an_end_and_columns_by_which_rows_can_be_told_apart() -> None:
    with pytest.raises(UnboundedGrouping, match=r"use dedup\(..., within=...\)"):
        plays(bounded=False).distinct()
    assert plays(bounded=False).window_into(MINUTES).distinct().name == "plays.distinct"
    lists = plays().window_into(MINUTES).group_by("user").aggregate(all=bl.collect("score"))
    with pytest.raises(WrongType, match=r"the column 'all' is List.*drop"):
        lists.distinct()


def test_distinct_takes_equal_numbers_as_equal() -> None:
    numbers = [0.0, -0.0, float("nan"), float("nan"), None, None, 1.5]
    rows = [{"x": number, "at": at} for at, number in enumerate(numbers)]
    source, watermark = bl.Rows(rows, schema={"x": float, "at": int}), bl.MonotonousTimestamps()
    read = bl.Pipeline("p").read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    assert [str(x) for x in read.select("x").distinct().collect()["x"]] == ["0.0", "nan", "None", "1.5"]


def test_latest_keeps_columns_and_may_replace_rows_of_a_table() -> None:
    rows = plays().window_into(MINUTES)
    newest = rows.latest("user", name="now")
    assert (newest.name, newest.schema) == ("now", rows.schema)
    newest.write("out", bl.Table("sqlite:///x.db", "t", mode="upsert"))
    newest.late().write("late", bl.Memory())
    assert list(newest.pipeline.plan().stages) == ["now.last"]
    late = rows.window_into(allowed_lateness="1h").latest("user")
    assert (late.node.kind, late.windowing.accumulation) == ("rows", bl.DISCARDING)
    late.write("late rows", bl.Table("sqlite:///x.db", "u", mode="upsert"))
    with pytest.raises(bl.PlanError, match="give it at least one column as the key"):
        rows.latest()


def test_the_latest_is_that_of_the_greatest_time_and_of_several_the_one_that_came_last() -> None:
    rows = [("a", 3, 1), ("a", 9, 2), ("a", 5, 3), ("b", 4, 4), ("b", 4, 5), ("row", 1, 6)]
    dicts = [{"row": key, "at": at, "n": n} for key, at, n in rows]
    read = bl.Pipeline("p").read(
        "rows", bl.Rows(dicts), timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("1h")
    )
    assert read.latest("row").collect()[["row", "at", "n"]].rows() == [
        ("a", 9, 2),
        ("b", 4, 5),
        ("row", 1, 6),
    ]


def test_a_checkpoint_goes_on_only_with_the_same_duration_and_clock() -> None:
    def described(within: str, by: Any) -> dict[str, Any]:
        once = plays().dedup("user", within=within, by=by, name="once")
        once.write("out", bl.Memory())
        return describe(once.pipeline.plan(), 2)

    assert differences(described("1h", "event"), described("60m", "event")) == []
    (found,) = differences(described("1h", "event"), described("2h", "event"))
    assert str(found) == "stage 'once': state field or timer event was 1h, now 2h"
    assert differences(described("1h", "event"), described("1h", "processing"))
