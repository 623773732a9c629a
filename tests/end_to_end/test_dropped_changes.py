"""Dropped changes: retractions without a row, changes of closed windows, and their rows in `late()`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from tests.end_to_end.test_changes import EACH, dropped, totals


@pytest.mark.parametrize("aggregate", ["max", "collect", "count_distinct", "mode"])
def test_late_returns_the_retractions_of_values_that_are_not_there(aggregate: str) -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    bundles = [[("+I", 1), ("+I", 2), ("+I", 2)], [("-D", 5), ("-D", 1), ("-D", 1), ("-D", 2)]]
    stream = bl.TestStream({"op": str, "n": int, "at": int})
    for bundle in bundles:
        stream = stream.add_elements([{"op": op, "n": n, "at": 1} for op, n in bundle])
    log = p.read("log", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    changes = bl.changes(log, op="op", before=None, after=None, timestamp="at", timestamp_unit="s")
    each = changes.window_into(bl.FixedWindows("1m"), accumulation="retracting")
    values = each.aggregate(v=getattr(bl, aggregate)("n"))
    values.write("out", out)
    values.late().write("lost", lost)
    p.run()
    assert sorted(lost.frame().select("n", "reason").rows()) == [(1, "unmatched"), (5, "unmatched")]
    assert out.frame()["v"].to_list() == [{"collect": [2], "count_distinct": 1}.get(aggregate, 2)]


def test_a_discarding_grouping_of_changes_gives_the_differences() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    sums = totals(p, [("ada", 1, 1)], [("ada", 1, 2)], [("ada", 1, 3)])
    counts = sums.window_into(accumulation="discarding").group_by("total").aggregate(n=bl.count())
    counts.write("out", out)
    run = p.run()
    # The number of users by total.
    assert out.frame().select("total", "n").rows() == [(1, 1), (1, -1), (2, 1), (2, -1), (3, 1)]
    assert dropped(run) == {}


def test_retractions_for_a_closed_window_are_dropped_for_that_reason() -> None:
    p, lost = bl.Pipeline("p"), bl.Memory()
    sums = totals(p, [("ada", 1, 1)], [("ada", 1, 2)], [("ada", 1, 3)]).filter(bl.col("total") < 3)
    first = sums.window_into(trigger=bl.AfterCount(1), accumulation="accumulating", allow_data_loss=True)
    first.group_by("total").aggregate(n=bl.count()).late().write("lost", lost)
    assert dropped(p.run()) == {"closed": 2}
    assert set(lost.frame()["reason"]) == {"closed"}


@attrs.frozen
class Unsteady:
    """Returns another row when it is called again for the same row."""

    calls: list[int] = attrs.field(factory=list)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(row["total"])
        return {"user": row["user"], "n": 100 * self.calls.count(row["total"])}


def test_dropped_retractions_can_be_counted_by_reason() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    sums = totals(p, [("ada", 1, 1)], [("ada", 1, 2)]).map(Unsteady(), {"user": str, "n": int})
    kept = sums.window_into(accumulation="retracting").group_by("user").aggregate(all=bl.collect("n"))
    kept.late().group_by("reason").aggregate(n=bl.count()).write("out", out)
    assert dropped(p.run()) == {"unmatched": 1}
    assert out.frame().select("reason", "n").rows() == [("unmatched", 1)]


@pytest.mark.parametrize(
    "late_in", [(), (0, 1, 2), (2,), (0, 1)], ids=["never", "always", "added", "removed"]
)
def test_late_can_be_added_and_removed_between_runs(
    late_in: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Arrivals wait in a log, though the buckets are small.
    monkeypatch.setattr("stages.state.working_set.SMALL_BYTES", 0)
    monkeypatch.setattr("stages.state.storage.LARGE_BYTES", 1)
    monkeypatch.setattr("stages.state.working_set.CROWDED", 0)
    out: list[pl.DataFrame] = []
    for number, (users, at) in enumerate([("abcd", 1), ("a", 12), ("z", 500)]):
        (tmp_path / "in").mkdir(exist_ok=True)
        rows = [{"user": user, "score": 1, "at": at} for user in users]
        pl.DataFrame(rows).write_parquet(tmp_path / "in" / f"{number}.parquet")
        p = bl.Pipeline("p")
        files, bound = bl.Parquet(str(tmp_path / "in" / "*.parquet")), bl.BoundedOutOfOrderness("5s")
        read = p.read("plays", files, timestamp="at", timestamp_unit="s", watermark=bound)
        sums = read.window_into(bl.FixedWindows("10s"), **EACH).group_by("user").aggregate(n=bl.sum("score"))
        longer = sums.window_into(bl.FixedWindows("100s"), trigger=bl.DefaultTrigger())
        counts = longer.group_by("user", name="counts").aggregate(n=bl.sum("n"))
        counts.write("out", bl.Callback(lambda frame, batch: out.append(frame)))
        if number in late_in:
            counts.late().write("late", bl.Callback(lambda frame, batch: None))
        p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", drain=number == 2))
    panes = pl.concat(out).filter(pl.col("user") == "a")
    assert panes["n"].to_list() == [2]
