"""Sinks, runs, views of their records, tests and errors."""

# pyright: strict

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_type

import polars as pl

import beamlike as bl
from tests.typing.project.sources import scores


class Printed:
    """A user-defined sink."""

    def write(self, frame: pl.DataFrame, part: object) -> None:
        print(frame)


def print_batch(frame: pl.DataFrame, batch: int) -> None:
    print(batch, frame)


def sinks(p: bl.Pipeline, folder: Path) -> None:
    read = scores(p)
    read.write("memory", bl.Memory()).write("console", bl.Console(rows=5))
    read.write("callback", bl.Callback(print_batch), columns=["event_time", "points"])
    read.write("batches", bl.ForEachBatch(print_batch)).write("own", Printed())
    read.write("parquet", bl.Parquet(folder / "parquet", partition_by=["user"]))
    read.write("csv", bl.CSV(folder / "csv")).write("lines", bl.JSONLines(folder / "lines"))
    read.write("kafka", bl.KafkaSink("localhost:9092", "scores", bl.json(), key="user", transactions=False))
    read.write("delta", bl.Delta(folder / "delta", mode="append"))
    read.write("iceberg", bl.Iceberg("plays.scores", {"type": "sql", "uri": "sqlite:///catalog.db"}))
    read.drop("tags").write("table", bl.Table("sqlite:///scores.db", "scores", "append", per_pane=False))
    read.write("spark", bl.SparkSink("delta", folder / "spark", {"mergeSchema": "true"}))


def seen(record: bl.observe.BatchRecord) -> None:
    print(record.batch, record.sinks, record.sources["scores"].watermark)


def run(folder: Path) -> Sequence[bl.observe.BatchRecord]:
    p = bl.Pipeline("scores", on_error="dead_letters", max_dead_letters=0.01)
    out = bl.Memory()
    scores(p).write("out", out)
    assert_type(p.explain(), str)
    assert_type(p.to_yaml(), str)
    assert_type(bl.sql("SELECT user FROM scores", scores=scores(bl.Pipeline("sql"))), bl.Collection)
    (folder / "empty.yaml").write_text("pipeline: empty\ncollections: {}\n")
    assert_type(bl.from_yaml(folder / "empty.yaml"), bl.Pipeline)
    finished = p.run()
    print(finished.batches[-1].sinks, finished.dead_letters, finished.run_id, finished.last)
    assert_type(out.frame(), pl.DataFrame)
    assert_type(out.rows(), list[dict[str, Any]])
    runner = bl.LocalRunner(
        chunk_rows=1000, records=folder / "run.jsonl", on_batch=seen, run_id="today", quiet=True
    )
    again = p.run(runner)
    assert_type(scores(bl.Pipeline("head")).head(2), pl.DataFrame)
    assert_type(scores(bl.Pipeline("part")).collect(input_rows=None), pl.DataFrame)
    scores(bl.Pipeline("rows")).show(5, input_rows=None)
    scores(bl.Pipeline("picture")).plot("points").save(folder / "points.svg")
    return again.batches


def goes_on(p: bl.Pipeline, folder: Path) -> None:
    live = bl.LocalRunner(checkpoint=folder / "checkpoint", trigger="1 second").start(p)
    live.stop(now=True)
    live.wait()
    saved = bl.savepoint.save(folder / "checkpoint", folder / "savepoint")
    print(saved.batch)
    assert_type(bl.savepoint.restore(folder / "savepoint", "new", p, runner="local"), list[str])


def on_spark(p: bl.Pipeline, on_spark: bool) -> int:
    runner = bl.SparkRunner("checkpoint", drain=True, shards=4, config={"spark.ui.enabled": "false"})
    in_files = bl.SparkRunner("checkpoint", state="files")
    finished = p.run(runner)
    started = runner.start(p.plan())
    started.stop()
    either = p.run(runner if on_spark else None)
    bl.savepoint.restore("savepoint", "new", p, state="files")
    return len(finished.batches) + len(either.batches) + len(p.run(in_files).batches)


def views(folder: Path) -> None:
    history = bl.observe.History.open(folder / "run.jsonl")
    for line in bl.observe.why(history, stage="counts"):
        print(line)
    print(bl.observe.watermarks_table(history.batches))
    print(bl.observe.format_time(0), bl.observe.format_duration(90_000_000))
    bl.observe.write_report(history, folder / "report.html")
    with bl.observe.serving(folder, port=8787) as address:
        print(address.upper())
    bl.observe.serve("runs", host="127.0.0.1", ready=print)
    bl.observe.side_by_side({"today": history}, "counts").save(folder / "both.svg")
    bl.observe.Charts.of(history)
    calibration: bl.observe.Calibration = bl.observe.completeness(history)
    shares: pl.DataFrame = calibration.frame()
    print(shares, bl.observe.alert_rules(bl.Pipeline("picture")))
    bl.observe.write_alerts(bl.Pipeline("picture"), "promises.yaml")
    tuning: bl.observe.Tuning = bl.observe.tune(history, bounds=["45s"])
    print(tuning)
    bl.LocalRunner(on_batch=bl.observe.PrometheusMetrics("scores"), telemetry=bl.observe.OpenTelemetry())
    bl.SparkRunner(telemetry=bl.observe.OpenLineage(every="1m"))
    bl.Pipeline("picture").plot().save("plan.svg")


def compared(p: bl.Pipeline) -> None:
    every = bl.AfterWatermark(early=bl.AfterCount(1))
    found: bl.observe.TriggerTuning = bl.observe.tune_triggers(
        "run.jsonl", triggers=[every], accumulation="retracting"
    )
    panes: int = found.predictions[0].stages["counts"].panes.most
    versions = bl.diff(p, p, "checkpoint", last="1h")
    versions.write_report("diff.html")
    again = bl.rebuild("checkpoint", "savepoint", p, stage=["counts"], since="2026-11-01", into="past")
    print(again.savepoint, again.read["plays"], *again.notes)
    print(panes, bool(versions), [part.rows.same for part in versions.parts])


def tested() -> None:
    stream = (
        bl.TestStream({"user": str, "at": int})
        .add_elements([{"user": "ada", "at": 10}])
        .advance_watermark_to(60, percentiles={90: 70})
        .advance_processing_time("1m")
        .advance_watermark_to_infinity()
    )
    rows = bl.Pipeline("test").read("rows", stream, timestamp="at", timestamp_unit="s")
    counts = rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
    bl.testing.assert_panes(counts.collect(), [{"window_start": 0, "n": 1}])
    bl.testing.check_orders(counts, {"rows": [{"user": "ada", "at": 1}]}, seeds=20)
    promised: bl.Collection = counts.promise(complete=0.9, within="1m", hold=True)
    print(promised)
    same: bl.TestStream = bl.testing.TestStream({"at": int})
    print(same.bounded, bl.__version__)


def replayed(p: bl.Pipeline, folder: Path) -> None:
    replay = bl.replay(folder / "checkpoint", p, batch=7, savepoint=[folder / "saved"]).go(before="counts")
    print(
        replay.left, replay.arrivals("counts").height, replay.state("counts", {"user": "ada"}), replay.step()
    )
    print(replay.rows("out"), replay.dropped("counts"), replay.why("counts"), replay.comparison.differences)
    recording = bl.record(folder / "checkpoint", p, folder / "file", batches=(3, 7), key={"user": "ada"})
    print(recording.notes, bl.testing.as_test(recording, p, "jobs:p"))
    found = bl.testing.run_with(p, {"plays": bl.TestStream({"at": int})})
    print(found["out"].height, *bl.trace_row(folder, p, "plays", {"user": "ada"}))
    print([row.file for row in bl.trace_pane(folder, p, "counts", key="ada", window="2026-01-31").rows])


def caught(p: bl.Pipeline) -> str:
    try:
        p.run()
    except bl.PlanError as error:
        return f"{error.step}: {error}"
    except bl.StepError as error:
        return str(error)
    except (bl.SinkError, bl.CheckpointError, bl.TooManyDeadLetters, bl.errors.SourceError) as error:
        return repr(error)
    except bl.RunError:
        return "failed"
    return ""
