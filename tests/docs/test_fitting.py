"""The table of docs/sinks.md that says which accumulation and sink fit together."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl

PLAYS = [{"user": user, "at": at, "points": points} for user, at, points in
         [("ada", 0, 1), ("bob", 5, 2), ("ada", 20, 4), ("ada", 70, 8), ("bob", 30, 16)]]  # fmt: skip
RESULTS = {("ada", 5), ("ada", 8), ("bob", 18)}
SEVERAL = bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))
ACCUMULATIONS = [bl.DISCARDING, bl.ACCUMULATING, bl.RETRACTING]


def totals(trigger: Any, accumulation: Any, windows: Any = None) -> bl.Collection:
    """Returns the points of each user and minute; the last row is late, and allowed."""
    mark = bl.BoundedOutOfOrderness("1s")
    source = bl.Rows(PLAYS, rows_per_batch=1)
    read = bl.Pipeline("p").read("plays", source, timestamp="at", timestamp_unit="s", watermark=mark)
    windowed = read.window_into(
        windows or bl.FixedWindows("1m"),
        trigger=trigger,
        accumulation=accumulation,
        allowed_lateness="1h" if trigger is SEVERAL else "0s",
    )
    return windowed.group_by("user").aggregate(total=bl.sum("points"))


def rows_of(collection: bl.Collection) -> list[dict[str, Any]]:
    out = bl.Memory()
    collection.write("out", out)
    collection.pipeline.run()
    return out.rows()


def table_of(collection: bl.Collection, folder: Path) -> set[tuple[str, int]]:
    collection.write("table", bl.Table(f"sqlite:///{folder / 'a.db'}", "totals", mode="upsert"))
    collection.pipeline.run()
    with closing(sqlite3.connect(folder / "a.db")) as database:
        return {*database.execute("SELECT user, total FROM totals")}


@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
def test_a_single_pane_is_the_result_in_every_sink(accumulation: Any, tmp_path: Path) -> None:
    windowed = {"trigger": bl.AfterWatermark(), "accumulation": accumulation}
    single = {("ada", 5), ("ada", 8), ("bob", 2)}  # bob's late row is dropped
    assert {(row["user"], row["total"]) for row in rows_of(totals(**windowed))} == single
    assert table_of(totals(**windowed), tmp_path) == single


def test_discarding_panes_are_parts_that_add_up() -> None:
    found: dict[tuple[str, Any], int] = {}
    for row in rows_of(totals(SEVERAL, bl.DISCARDING)):
        key = row["user"], row["window_start"]
        found[key] = found.get(key, 0) + row["total"]
    assert {(user, total) for (user, _), total in found.items()} == RESULTS


def test_accumulating_panes_are_versions_of_which_the_last_counts() -> None:
    rows = sorted(rows_of(totals(SEVERAL, bl.ACCUMULATING)), key=lambda row: row["pane_index"])
    assert len(rows) > len(RESULTS)
    newest = {(row["user"], row["window_start"]): row["total"] for row in rows}
    assert {(user, total) for (user, _), total in newest.items()} == RESULTS


def test_retracting_panes_are_changes() -> None:
    net: dict[tuple[str, int], int] = {}
    for row in rows_of(totals(SEVERAL, bl.RETRACTING)):
        key = row["user"], row["total"]
        net[key] = net.get(key, 0) + (-1 if row["pane_retracted"] else 1)
    assert {key for key, count in net.items() if count} == RESULTS


@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
def test_a_table_has_the_newest_version_or_is_refused(accumulation: Any, tmp_path: Path) -> None:
    if accumulation is bl.DISCARDING:
        with pytest.raises(bl.PlanError, match="only new elements"):
            table_of(totals(SEVERAL, accumulation), tmp_path)
    else:
        assert table_of(totals(SEVERAL, accumulation), tmp_path) == RESULTS


@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
def test_sessions_that_grow_must_retract(accumulation: Any, tmp_path: Path) -> None:
    sessions = totals(SEVERAL, accumulation, bl.Sessions("1m"))
    if accumulation is bl.RETRACTING:
        assert table_of(sessions, tmp_path) == {("ada", 13), ("bob", 18)}
    else:
        refused = "only new elements" if accumulation is bl.DISCARDING else "RETRACTING"
        with pytest.raises(bl.PlanError, match=refused):
            table_of(sessions, tmp_path)


@pytest.mark.parametrize("accumulation", [bl.DISCARDING, bl.RETRACTING])
def test_a_further_grouping_is_right(accumulation: Any) -> None:
    days = totals(SEVERAL, accumulation).window_into(
        bl.FixedWindows("1d"), trigger=bl.Never(), accumulation=bl.DISCARDING
    )
    (row,) = rows_of(days.aggregate(total=bl.sum("total")))
    assert row["total"] == sum(total for _, total in RESULTS)


def test_a_further_grouping_of_versions_is_refused() -> None:
    days = totals(SEVERAL, bl.ACCUMULATING).window_into(bl.FixedWindows("1d"), trigger=bl.Never())
    with pytest.raises(bl.PlanError, match="would count elements several times"):
        days.aggregate(total=bl.sum("total"))
