"""Bad input of every kind on Spark: the same rows, dead letters and counts as in process."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.records.model import BatchRecord
from beamlike.rows.uses import StepUsage, UnusedRows
from beamlike.runtime.run.dead_letter_limit import Counted, DeadLetterLimit
from beamlike.spark.checkpoint.checkpoint import Checkpoint

pytestmark = pytest.mark.spark

LINES = [
    '{"user": "ada", "at": "2026-01-01T12:00:00Z", "score": "1"}',
    '{"user": "bob", "at": "2026-01-01T12:00:10Z", "score": "2"}',
    "no JSON",
    '{"user": "ada", "at": "never", "score": "3"}',
    '{"user": "ada", "at": "2999-01-01T12:00:00Z", "score": "4"}',
    '{"user": "ada", "at": "2026-01-01T12:00:20Z", "score": "none"}',
    '{"user": null, "at": "2026-01-01T12:00:20Z", "score": "5"}',
    '{"user": "eve", "at": "2026-01-01T12:00:20Z", "score": "0"}',
    '{"user": "ada", "at": "2026-01-01T12:01:20Z", "score": "7"}',
]


def halves(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"user": row["user"].upper(), "half": row["value"] / 2}
    yield {"user": row["user"].upper(), "half": row["value"] / 2}


def checked(table: pl.DataFrame) -> pl.DataFrame:
    """Fails for every batch that has rows: the size of batches depends on the runner."""
    if table.height:
        raise ValueError("none is good")
    return table


def shares(row: dict[str, Any]) -> dict[str, Any]:
    return {"user": row["user"], "share": 1 / (row["total"] - 2)}


class Shares(bl.CustomWindows):
    """Windows that are shorter for larger values."""

    columns = ("value",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[tuple[int, int]]:
        return [(time, time + 60_000_000 // row["value"])] * 2


class NoFives(bl.CombineFn):
    """The sum of all numbers except five."""

    def create_accumulator(self) -> list[int]:
        return [0]

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator[0] += element
        if element == 5:
            raise ValueError("not five")
        return accumulator

    def merge_accumulators(self, accumulators: list[list[int]]) -> list[int]:
        return [sum(accumulator[0] for accumulator in accumulators)]

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[0]


def build(folder: Path, **options: Any) -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares each kind of step, before and after a grouping; some of them have a dead letter sink."""
    folder.mkdir(exist_ok=True)
    (folder / "plays.jsonl").write_text("\n".join(LINES))
    sinks = {
        name: bl.Memory()
        for name in ("panes", "shared", "passed", "lost", "uncast", "unshared", "sums", "fives")
    }
    p = bl.Pipeline("bad", **options)
    source = bl.JSONLines(folder, schema={"user": str, "at": str, "score": str})
    plays = p.read("plays", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("5s"))
    cast = plays.with_columns(value=bl.col("score").cast(nw.Int64)).named("cast")
    split = cast.flat_map(halves, {"user": str, "half": float}, name="halves")
    totals = split.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(total=bl.sum("half"))
    shared = totals.map(shares, {"user": str, "share": float}, name="shares")
    summed = cast.window_into(Shares(), name="windows").group_by("user", name="summed")
    summed = summed.aggregate(total=bl.combine(NoFives(), "value", int), plays=bl.count())
    summed.write("sums", sinks["sums"])
    summed.dead_letters().write("fives", sinks["fives"])
    plays.map_batches(checked, name="checked").select("user").write("passed", sinks["passed"])
    totals.write("panes", sinks["panes"])
    shared.write("shared", sinks["shared"])
    plays.dead_letters().write("lost", sinks["lost"])
    cast.dead_letters().write("uncast", sinks["uncast"])
    shared.dead_letters().write("unshared", sinks["unshared"])
    return p, sinks


def known(done: Any, sinks: dict[str, bl.Memory]) -> dict[str, Any]:
    """Returns the results of a run, without their division into batches."""
    rows = {name: sorted(map(repr, sink.rows())) for name, sink in sinks.items() if name != "lost"}
    folder = sorted(Path(done.dead_letters).glob("*.jsonl"))
    kept = [json.loads(line) for file in folder for line in file.read_text().splitlines()]
    kept = [letter | {"error": re.sub("batch of [0-9]+ rows", "batch", letter["error"])} for letter in kept]
    letters, errors = Counter[str](), dict[str, str]()
    for batch in done.batches:
        letters.update(batch.dead_letters)
        errors.update(batch.errors)
    sources = [batch.sources["plays"] for batch in done.batches]
    counts = [sum(getattr(one, what) for one in sources) for what in ("read", "elements", "dead_letters")]
    lost = sorted(row["error"].partition("after processing time")[0] for row in sinks["lost"].rows())
    return {
        **rows, "kept": sorted(map(repr, kept)), "letters": letters, "counts": counts, "lost": lost,
        "errors": sorted(errors),
    }  # fmt: skip


@pytest.mark.slow
def test_every_kind_is_on_spark_what_it_is_in_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    p, sinks = build(tmp_path / "in", max_dead_letters=20)
    here = known(p.run(), sinks)
    assert here["counts"] == [9, 6, 3]
    assert here["letters"] == {"cast": 1, "halves": 1, "checked": 6, "shares": 1, "windows": 1, "summed": 1}
    assert {name: len(here[name]) for name in ("kept", *sinks)} == {
        "panes": 4, "shared": 3, "passed": 0, "uncast": 1, "unshared": 1, "sums": 3, "fives": 1, "kept": 8, "lost": 3,
    }  # fmt: skip
    p, sinks = build(tmp_path / "in", max_dead_letters=20)
    there = p.run(bl.SparkRunner(tmp_path / "checkpoint", session=spark, shards=2, drain=True))
    assert known(there, sinks) == here


def test_too_many_fail_the_run_and_count_on_when_it_is_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(limit: int, lines: int) -> Any:
        (tmp_path / "in").mkdir(exist_ok=True)
        text = "\n".join(['{"at": "never"}'] * 2 + ['{"at": "2026-01-01"}'])
        (tmp_path / "in" / f"{lines}.jsonl").write_text(text)
        p = bl.Pipeline("many", max_dead_letters=limit)
        source = bl.JSONLines(tmp_path / "in", schema={"at": str})
        p.read("plays", source, timestamp="at", watermark=bl.MonotonousTimestamps()).write("out", bl.Memory())
        return p.run(bl.SparkRunner(tmp_path / "checkpoint", session=spark, shards=1))

    run(3, 1)
    with pytest.raises(
        bl.RunError, match=r"^step 'plays': 4 rows of 6 are dead letters, more than .*'never'$"
    ):
        run(3, 2)
    assert sum(batch.sources["plays"].dead_letters for batch in run(4, 2).batches) == 2


@pytest.mark.slow
def test_what_is_dropped_is_told_and_that_a_step_could_use_no_row_is_counted_over_runs(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()

    def run(name: str, *times: int) -> Any:
        (tmp_path / "in" / name).write_text("".join(f'{{"at": {at}}}\n' for at in times))
        p = bl.Pipeline("told")
        source = bl.JSONLines(tmp_path / "in", schema={"at": int})
        rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("counted").write(
            "n", bl.Memory()
        )
        odd = rows.filter(bl.col("at") % 2 == 1)
        odd.map(lambda row: {"n": 1 // (row["at"] % 2 - 1)}, {"n": int}, name="parse").write(
            "out", bl.Memory()
        )
        return p.run(bl.SparkRunner(tmp_path / "checkpoint", session=spark, shards=1))

    assert "elements that counted" not in repr(run("a.jsonl", 2, 1, 400))
    assert [entry.getMessage()[:31] for entry in caplog.records] == ["step 'parse' could not use 1 ro"]
    (tmp_path / "checkpoint" / "beamlike" / "records.jsonl").unlink()  # only needed by viewers of runs
    with pytest.raises(
        bl.TooManyDeadLetters, match=r"^step 'parse': it could use none of its 2 rows; .*: ZeroDiv"
    ):
        run("b.jsonl", 3, 4, 500)
    done = run("c.jsonl", 600, 8)
    assert (
        "; 1 of 2 elements that counted dropped, as they arrived later than the allowed lateness: "
        in repr(done)
    )
    assert (
        caplog.records[-1]
        .getMessage()
        .startswith("stage 'counted' dropped 1 of the last 2 elements up to the last")
    )


def test_what_was_used_before_is_known_on_any_file_system(spark: SparkSession, tmp_path: Path) -> None:
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.default.link./here", f"file://{tmp_path}")
    for path in (str(tmp_path / "local"), "viewfs:///here/remote"):
        checkpoint, before = Checkpoint(spark, path), DeadLetterLimit()
        assert checkpoint.tally() == Counted()
        before.take(BatchRecord(3, 0, {}, {}, uses=StepUsage(["parse"], {"cast": UnusedRows(2, "why")})))
        for _ in range(2):
            checkpoint.keep_tally(before.counted)
        after = DeadLetterLimit(None, checkpoint.tally())
        assert after.total == before.total
        assert after.counted.batch == 3


@pytest.mark.parametrize(
    "name",
    [
        "cast",
        "summed",
        *(pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long]) for name in ("halves", "windows")),
    ],
)
def test_a_run_that_is_to_fail_names_the_step(name: str, spark: SparkSession, tmp_path: Path) -> None:
    p = bl.Pipeline("fails", on_error="fail")
    rows = p.read("plays", bl.Rows([{"at": 1, "user": None, "value": "x"}]), timestamp="at", timestamp_unit="s",
                  watermark=bl.MonotonousTimestamps())  # fmt: skip
    minutes = rows.window_into(bl.FixedWindows("1m"))
    steps = {
        "windows": lambda: rows.window_into(Shares(), name="windows"),
        "summed": lambda: minutes.aggregate(total=bl.combine(NoFives(), "value", int)).named("summed"),
        "cast": lambda: rows.select(value=bl.col("value").cast(nw.Int64)).named("cast"),
        "halves": lambda: rows.flat_map(halves, {"user": str, "half": float}, name="halves"),
    }
    steps[name]().write("out", bl.Memory())
    with pytest.raises(bl.RunError, match=f"step '{name}'"):
        p.run(bl.SparkRunner(tmp_path / "checkpoint", session=spark, shards=1))
