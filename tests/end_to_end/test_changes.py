"""Collections of changes: steps and dead letters, and a net content that does not depend on triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import narwhals as nw
import polars as pl
import pytest

import beamlike as bl

EACH: dict[str, Any] = {
    "trigger": bl.AfterWatermark(early=bl.AfterCount(1)),
    "accumulation": "retracting",
    "on_time": "if_non_empty",
}


def totals(p: bl.Pipeline, *bundles: list[tuple[str, int, int]]) -> bl.Collection:
    """Declares totals of (user, score, second) by user and minute, which each bundle corrects."""
    stream = bl.TestStream({"user": str, "score": int, "at": int})
    for rows in bundles:
        stream = stream.add_elements([dict(zip(("user", "score", "at"), row, strict=True)) for row in rows])
    read = p.read("plays", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    return read.window_into(bl.FixedWindows("1m"), **EACH).group_by("user").aggregate(total=bl.sum("score"))


def dropped(run: Any) -> dict[str, int]:
    """Returns the dropped elements of a run by reason."""
    counts = Counter[str]()
    for batch in run.batches:
        for stage in batch.stages.values():
            counts.update(stage.dropped)
    return dict(+counts)


def halved(row: dict[str, Any]) -> dict[str, Any]:
    if row["total"] % 2:
        raise ValueError("odd")
    return {"half": row["total"] // 2}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test in a folder where dead letters without a sink are written."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("read", [True, False], ids=["read", "unclaimed"])
def test_a_row_on_which_a_function_raises_is_one_dead_letter_though_it_is_taken_back(read: bool) -> None:
    p, out, letters = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    halves = totals(p, [("ada", 3, 1)], [("ada", 1, 2)], [("ada", 1, 3)]).map(halved, {"half": int})
    halves.select("half", bl.pane_retracted()).write("out", out)
    if read:
        halves.dead_letters().write("letters", letters)
    run = p.run()
    assert out.frame()[["half", "pane_retracted"]].rows() == [(2, False), (2, True)]
    assert sum(sum(batch.dead_letters.values()) for batch in run.batches) == 2
    assert not read or [eval(row)["total"] for row in letters.frame()["row"]] == [3, 5]


def test_an_expression_that_fails_for_a_row_of_changes_gives_one_dead_letter() -> None:
    p, letters = bl.Pipeline("p"), bl.Memory()
    panes = totals(p, [("ada", 3, 1)], [("1", 1, 2)], [("ada", 1, 3)])
    made = panes.with_columns(n=bl.col("user").cast(nw.Int64))
    made.write("out", bl.Memory())
    made.dead_letters().write("letters", letters)
    p.run()
    assert len(letters.frame()) == 2


def test_a_retraction_of_a_row_that_is_not_there_is_dropped_and_reported(caplog: Any) -> None:
    calls: list[int] = []

    def unlike(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return {"user": f"{row['user']} {len(calls)}"}  # never the same again

    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    users = totals(p, [("ada", 3, 1)], [("ada", 1, 2)]).map(unlike, {"user": str}, name="unlike")
    counts = users.window_into(trigger=bl.AfterWatermark(early=bl.AfterCount(1)))
    counted = counts.group_by("user", name="counts").aggregate(n=bl.count())
    counted.select("user", "n", bl.pane_retracted()).write("out", out)
    run = p.run()
    assert out.frame()[["user", "n", "pane_retracted"]].rows() == [("ada 1", 1, False), ("ada 3", 1, False)]
    assert sum(batch.stages["counts"].dropped.get("unmatched", 0) for batch in run.batches) == 1
    assert "1 retract rows that are not there" in caplog.text
    assert "functions must return the same for a row and for its retraction, here 'unlike'" in caplog.text
    calls.clear()
    counted.late().select("user", "reason", bl.pane_retracted()).write("lost", lost)
    p.run()
    assert lost.frame()[["user", "reason", "pane_retracted"]].rows() == [("ada 2", "unmatched", True)]


def test_a_function_that_fails_only_for_a_retraction_is_reported(caplog: Any) -> None:
    calls: list[int] = []

    def once(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(row["total"])
        if row["total"] == 1 or calls.count(row["total"]) > 1:
            raise ValueError("again")
        return {"total": row["total"]}

    p, out = bl.Pipeline("p"), bl.Memory()
    rows = totals(p, [("ada", 1, 1)], [("ada", 2, 2)], [("ada", 4, 3)]).map(once, {"total": int}, name="once")
    rows.write("out", out)
    run = p.run()
    assert out.frame()["total"].to_list() == [3, 7]
    # The retraction of 1, which is a dead letter, and that of 3, which is not.
    assert [dict(batch.uses.retractions) for batch in run.batches if batch.uses.retractions] == [
        {"once": 1}
    ] * 2
    (told,) = [message for message in caplog.messages if "retract" in message]
    assert told.startswith("step 'once' failed for 1 retraction in batch 2 or before, but not for the rows")


def test_explain_says_what_the_rows_of_each_stage_are() -> None:
    p = bl.Pipeline("p")
    once = totals(p, [("ada", 3, 1)]).named("totals")
    again = once.window_into(accumulation="accumulating", timestamp_combiner="earliest").aggregate(
        n=bl.count()
    )
    again.write("out", bl.Memory())
    text = p.explain()
    assert "gives       changes: user String, total Int64" in text
    assert "changes     counts the elements that are left\n" in text
    assert "gives       repeats: n Int64" in text
    assert "columns     repeats: n Int64" in text


def test_rows_of_a_grouping_leave_their_windows_for_a_join_by_time() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = {
        name: [{"k": "a", "v": at, "at": at} for at in times]
        for name, times in (("x", [6]), ("y", [10, 16, 30]))
    }
    x, y = (
        p.read(name, bl.Rows(given), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        for name, given in rows.items()
    )
    windowed = x.window_into(bl.SlidingWindows("10s", "5s")).group_by("k").aggregate(v=bl.sum("v"))
    joined = windowed.join(y, on="k", within=("0s", "4s"), how="full").select("v", "v_right")
    joined.with_columns(at=bl.event_time().cast(nw.Int64) // 1_000_000).write("out", out)
    assert joined.windowing.windows == bl.GlobalWindows()
    p.run()
    # The windows [0, 10) and [5, 15) have a row each, at 9.999999 and 14.999999.
    expected = [(6, 10, 10), (6, 16, 16), (None, 30, 30)]
    assert out.frame().select("v", "v_right", "at").sort("v_right").rows() == expected


def test_a_retraction_of_a_value_that_is_not_there_does_not_hide_a_later_one() -> None:
    calls: list[int] = []

    def unlike(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return {"user": row["user"], "n": len(calls)}  # never the same again

    p, out = bl.Pipeline("p"), bl.Memory()
    numbers = totals(p, [("ada", 3, 1)], [("ada", 1, 2)]).map(unlike, {"user": str, "n": int})
    counted = numbers.window_into(trigger=bl.AfterWatermark(early=bl.AfterCount(1)))
    most = counted.group_by("user", name="most").aggregate(
        all=bl.collect("n"), distinct=bl.count_distinct("n")
    )
    most.filter(~bl.pane_retracted()).select("all", "distinct").write("out", out)
    run = p.run()
    # The third call returned 3 for the new total; the second one returned 2 for the retracted row.
    assert out.frame().select("all", "distinct").rows() == [([1], 1), ([1, 3], 2)]
    assert sum(batch.stages["most"].dropped.get("unmatched", 0) for batch in run.batches) == 1


def test_what_waits_for_the_watermark_sees_only_the_rows_that_are_left() -> None:
    p = bl.Pipeline("p")
    bundles = [("ada", 3, 1)], [("ada", 4, 70), ("ada", 1, 2)], [("ada", -9, 71)]
    rows = totals(p, *bundles).window_into(bl.GlobalWindows())
    running = rows.group_by("user").running(sum=bl.sum("total"))
    priced = rows.join_asof(rows.filter(bl.col("total") > 0), on="user", suffix="_newest")
    results = {"running": running.select("total", "sum"), "as of": priced.select("total", "total_newest")}
    outs = {name: bl.Memory() for name in results}
    for name, collection in results.items():
        assert collection.node.kind == "rows"
        collection.write(name, outs[name])
    p.run()
    assert outs["running"].frame().select("total", "sum").rows() == [(4, 4), (-5, -1)]
    assert outs["as of"].frame().select("total", "total_newest").rows() == [(4, 4), (-5, 4)]


class Clocked(bl.Process):
    """A process with a timer of processing time."""

    tick = bl.ProcessingTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.tick.after("1s")

    def on_tick(self) -> None:
        return None


class Fading(bl.Process):
    """A process with a field that expires by processing time."""

    seen = bl.Value(int, ttl="1m", by="processing")

    def element(self, row: dict[str, Any]) -> None:
        self.seen = 1


def test_what_cannot_be_repeated_for_late_corrections_is_refused() -> None:
    late = totals(bl.Pipeline("p"), [("ada", 3, 1)]).window_into(
        bl.GlobalWindows(), trigger=bl.DefaultTrigger(), allowed_lateness="1m"
    )
    users = late.group_by("user")
    with pytest.raises(
        bl.PlanError, match=r"Clocked\.tick is a ProcessingTimer, and the moment at which it fired"
    ):
        users.process(Clocked(), {"user": str})
    with pytest.raises(bl.PlanError, match=r"Fading\.seen is a field with a ttl of processing time"):
        users.process(Fading(), {"user": str})
    with pytest.raises(bl.PlanError, match=r"give process_batches\(..., retractions=True\)"):
        users.process_batches(lambda rows, state, due: (rows, state), {"user": str})
    for process in (Clocked(), Fading()):
        assert users.process(process, {"user": str}, retractions=True).node.kind == "rows"


def test_a_function_of_frames_can_receive_retractions() -> None:
    def signed(
        rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        sign = pl.when("pane_retracted").then(-1).otherwise(1)
        return rows.select("user", pl.col("total") * sign, "event_time"), state

    p, out = bl.Pipeline("p"), bl.Memory()
    late = totals(p, [("ada", 3, 1)], [("ada", 1, 2)]).window_into(
        bl.GlobalWindows(), trigger=bl.DefaultTrigger(), allowed_lateness="1m"
    )
    users = late.group_by("user")
    schema: dict[str, Any] = {"user": str, "total": int}
    users.process_batches(signed, schema, order="arrival", retractions=True, state={"n": int}).write(
        "out", out
    )
    p.run()
    assert out.frame()["total"].to_list() == [3, -3, 4]


class Odd(bl.Process):
    """Emits the running sum. Fails for an odd one, and with a timer if the sum is above 9."""

    sum = bl.Value(int, default=0)
    end = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if row["total"] % 2:
            raise ValueError("odd")
        self.sum += row["total"]
        self.end.after("1s")
        yield {"sum": self.sum}

    def on_end(self) -> Iterator[dict[str, Any]]:
        if self.sum > 9:
            raise ValueError("many")
        yield {"sum": -self.sum}


@attrs.frozen
class Visit:
    """A row without missing values."""

    user: str
    n: int


class Visits(bl.Process):
    """Emits the user of each visit."""

    def element(self, row: Visit) -> Iterator[dict[str, Any]]:
        yield {"user": row.user}


def test_a_row_that_a_process_cannot_receive_is_one_dead_letter_though_it_is_retracted() -> None:
    p, letters = bl.Pipeline("p", max_dead_letters=2), bl.Memory()
    rows = totals(p, [("ada", 3, 1)], [("ada", 4, 2)]).select("user", n=bl.lit(None, nw.Int64))
    visits = rows.window_into(bl.GlobalWindows()).group_by("user").process(Visits(), {"user": str})
    visits.write("out", bl.Memory())
    visits.dead_letters().write("letters", letters)
    p.run()
    assert len(letters.frame()) == 2  # of each total, of which the first is retracted


def test_a_row_or_timer_that_fails_is_one_dead_letter_though_it_is_processed_again() -> None:
    p, out, letters = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    stream, schema = bl.TestStream({"user": str, "total": int, "op": str, "at": int}), ("op", "total", "at")
    bundles = [
        [("+I", 3, 1), ("+I", 4, 2), ("+I", 8, 3)],
        [("-D", 4, 2), ("+I", 2, 2)],
        [("-D", 3, 1), ("+I", 6, 1)],
        [("+I", 1, 1), ("-D", 8, 3)],
    ]
    for number, bundle in enumerate(bundles):
        rows = [{"user": "ada", **dict(zip(schema, row, strict=True))} for row in bundle]
        stream = stream.add_elements(rows).advance_watermark_to(5 + number)
    log = p.read("log", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    at: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s"}
    changes = bl.changes(log, op="op", before=None, after=None, **at).window_into(
        bl.GlobalWindows(), trigger=bl.Repeatedly(bl.AfterCount(1)), allowed_lateness="9s"
    )
    sums = changes.group_by("user").process(Odd(), {"sum": int})
    sums.select("sum", bl.pane_retracted()).write("out", out)
    sums.dead_letters().write("letters", letters)
    run = p.run()
    assert _net([out.frame()], "sum") == {"[6]": 1, "[-6]": 1, "[8]": 1, "[-8]": 1}
    found = [eval(row) for row in letters.frame()["row"]]
    assert [row.get("total", row.get("timer")) for row in found] == [3, "end", 1]
    assert dropped(run) == {}


def test_a_run_with_a_checkpoint_continues_with_the_values_that_are_left(tmp_path: Path) -> None:
    def declare(name: str, found: list[pl.DataFrame]) -> bl.Pipeline:
        p = bl.Pipeline(name)
        watermark = bl.BoundedOutOfOrderness("5s")
        files = bl.Parquet(str(tmp_path / "in" / "*.parquet"))
        rows = p.read("rows", files, timestamp="at", timestamp_unit="s", watermark=watermark)
        late = bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))
        choices: dict[str, Any] = {"trigger": late, "accumulation": "retracting", "allowed_lateness": "20s"}
        windowed = rows.window_into(bl.FixedWindows("10s"), timestamp_combiner="earliest", **choices)
        sums = windowed.group_by("k").aggregate(v=bl.sum("v")).window_into(bl.FixedWindows("20s"))
        results = sums.aggregate(most=bl.max("v"), all=bl.collect("v"))
        results.write("out", bl.Callback(lambda rows, batch: found.append(rows)))
        return p

    result = ("most", "all", "event_time")
    (tmp_path / "in").mkdir()
    parts: list[pl.DataFrame] = []
    for number in range(3):
        rows = {"k": ["a", "b", "a"], "v": [number, 3 - number, 9], "at": [3 * number, 8, 7 * number]}
        pl.DataFrame(rows).write_parquet(tmp_path / "in" / f"{number}.parquet")
        runner = bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), drain=number == 2)
        declare("parts", parts).run(runner)
    whole: list[pl.DataFrame] = []
    declare("whole", whole).run()
    assert _net(parts, *result) == _net(whole, *result)


def _net(frames: list[pl.DataFrame], *columns: str) -> dict[str, int]:
    net: Counter[str] = Counter()
    for row in pl.concat(frames).iter_rows(named=True):
        content = str([row[name] for name in columns])
        net[content] += -1 if row["pane_retracted"] else 1
    return {content: count for content, count in net.items() if count}
