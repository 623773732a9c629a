"""The Spark runner from a user's view: its sources, session, triggers, messages and refusals."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import beamlike as bl
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.envelope import Topology
from beamlike.runtime.run.run_sinks import RunSinks
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.ingest import source_envelopes
from beamlike.spark.query.listing import Listings
from beamlike.spark.query.parts import PartWriter
from tests.support.spark_versions import STORES, settings
from windowing.triggers.processing_time import AfterProcessingTime

pytestmark = pytest.mark.spark

CODE = "spark.sql.codegen.wholeStage"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
ROWS = [
    {"user": "ada", "at": "2026-01-01T12:00:00Z", "score": 1},
    {"user": "bob", "at": "2026-01-01T12:00:10Z", "score": 2},
    {"user": "ada", "at": "never", "score": 3},
    {"user": "ada", "at": None, "score": 4},
    {"user": "ada", "at": "2026-01-01T12:00:30Z", "score": 5},
]


def scores(p: bl.Pipeline, source: Any) -> bl.Collection:
    return p.read("plays", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("5s"))


def totals(plays: bl.Collection) -> bl.Collection:
    return plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(total=bl.sum("score"))


def result(sink: bl.Memory) -> list[tuple[str, int]]:
    return sorted((row["user"], row["total"]) for row in sink.rows())


def test_rows_without_a_time_are_counted_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    p, sink = bl.Pipeline("letters"), bl.Memory()
    totals(scores(p, bl.Rows(ROWS))).write("out", sink)
    run = p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=2, drain=True))
    assert result(sink) == [("ada", 6), ("bob", 2)]
    assert sum(batch.sources["plays"].dead_letters for batch in run.batches) == 2
    lines = [
        line for file in Path(run.dead_letters).glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    letters = sorted((json.loads(line) for line in lines), key=lambda letter: letter["error"])
    assert [letter["error"] for letter in letters] == [
        "event time column 'at' is not a time: 'never'",
        "event time column 'at' is null",
    ]
    assert json.loads(letters[0]["row"]) == ROWS[2]


def test_dead_letters_are_a_collection_of_their_own_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    p, lost = bl.Pipeline("letters"), bl.Memory()
    plays = scores(p, bl.Rows(ROWS))
    totals(plays).write("out", bl.Memory())
    plays.dead_letters().write("lost", lost)
    run = p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=1, drain=True))
    assert len(lost.rows()) == 2
    assert not Path(run.dead_letters).exists()


def test_a_pipeline_without_grouping_goes_from_sources_to_sinks(spark: SparkSession, tmp_path: Path) -> None:
    p, out = bl.Pipeline("copy"), tmp_path / "out"
    high = scores(p, bl.Rows(ROWS, rows_per_batch=2)).filter(bl.col("score") > 1).map(shout, {"user": str})
    high.write("out", bl.JSONLines(out))
    p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2))
    written = pl.concat(map(pl.read_ndjson, sorted(out.glob("*.jsonl"))))
    assert sorted(written["user"]) == ["ADA", "BOB"]
    assert written["event_time"].null_count() == 0


def shout(row: dict[str, Any]) -> dict[str, Any]:
    return {"user": row["user"].upper()}


def test_any_streaming_reader_of_spark_is_a_source(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "plays"
    folder.mkdir()
    pl.DataFrame(ROWS).write_ndjson(folder / "plays.json")

    def reader(session: SparkSession) -> DataFrame:
        return session.readStream.schema("user string, at string, score long").json(str(folder))

    p, sink = bl.Pipeline("reader"), bl.Memory()
    totals(scores(p, bl.SparkSource(reader))).write("out", sink)
    run = p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True))
    assert result(sink) == [("ada", 6), ("bob", 2)]
    assert run.session.conf.get(CODE) == spark.conf.get(CODE), "rows pass through Spark's own operators"


def test_a_run_is_in_a_session_that_makes_its_batches_cheap(spark: SparkSession, tmp_path: Path) -> None:
    p = bl.Pipeline("cheap")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    run = p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=1))
    assert run.session.conf.get(CODE) == "false"
    assert str(run.session.conf.get(MANAGER)).endswith(".FileSystemBasedCheckpointFileManager")
    assert spark.conf.get(MANAGER, None) is None
    kept = {CODE: "true", MANAGER: "org.apache.spark.no.such.Manager"}
    with pytest.raises(Exception, match=r"no\.such\.Manager"):
        p.run(bl.SparkRunner(str(tmp_path / "kept"), session=spark, shards=1, config=kept))


def test_java_that_was_started_here_leaves_the_cores_to_the_tasks(spark: SparkSession) -> None:
    java: Any = spark._jvm
    options = list(java.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert "-XX:TieredStopAtLevel=1" in options


def test_file_sources_that_follow_each_other_share_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    def reader(session: SparkSession) -> DataFrame:
        return session.readStream.schema("user string, at string, score long").json(str(tmp_path))

    files = bl.JSONLines(tmp_path, {"user": str, "at": str, "score": int})
    p = bl.Pipeline("shared")
    sources = [files, files, bl.SparkSource(reader), files]
    strategy = bl.BoundedOutOfOrderness("5s")
    read = [
        p.read(f"plays {number}", source, timestamp="at", watermark=strategy)
        for number, source in enumerate(sources)
    ]
    totals(bl.flatten(*read)).write("out", bl.Memory())
    plan = p.plan()
    listings = Listings.of(Checkpoint(spark, str(tmp_path / "checkpoint")), plan).sources
    assert len(source_envelopes(spark, plan.sources.values(), Topology.of(plan, (0, 1)), listings)) == 3


def test_a_reader_that_is_no_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def reader(session: SparkSession) -> DataFrame:
        return session.createDataFrame([("ada", "2026-01-01", 1)], "user string, at string, score long")

    p = bl.Pipeline("reader")
    totals(scores(p, bl.SparkSource(reader))).write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match=r"step 'plays'.*spark\.readStream"):
        p.run(bl.SparkRunner(str(tmp_path), session=spark))


def test_a_given_session_stays_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    def state() -> tuple[Any, ...]:
        context = spark.sparkContext
        return settings(spark), dict(context.environment), list(context._python_includes), context.listFiles

    before = state()
    p = bl.Pipeline("guest")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=3, drain=True))
    assert state() == before
    assert spark.streams.active == []


@pytest.mark.slow
def test_without_a_checkpoint_it_replaces_the_files_of_the_last_run_as_one_in_process_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    anew = bl.SparkRunner(session=spark, shards=1, drain=True)
    # The last window is not drained, so it emits nothing.
    for runner in (None, anew, anew, bl.LocalRunner(), bl.SparkRunner("checkpoint", session=spark, shards=1)):
        p = bl.Pipeline("again")
        totals(scores(p, bl.Rows(ROWS))).write("out", bl.JSONLines(tmp_path / "out"))
        run = p.run(runner)
        assert f"Run of 'again': {len(run.batches)} batch" in repr(run)
        assert f"; 2 rows that plays could not use: see {run.dead_letters}" in repr(run)
        written = pl.concat(map(pl.read_ndjson, (tmp_path / "out").glob("*.jsonl")))
        assert sorted(written.select("user", "total").rows()) == [("ada", 6), ("bob", 2)]


@pytest.mark.slow
def test_without_a_checkpoint_what_came_from_a_spark_source_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines").write_text("x")
    for _ in range(2):
        p = bl.Pipeline("more")
        source = bl.SparkSource(lambda spark: spark.readStream.text(str(tmp_path / "in")), {"value": str})
        p.read("lines", source).write("out", bl.JSONLines(tmp_path / "out"))
        p.run(bl.SparkRunner(session=spark, shards=1))
    assert len(list((tmp_path / "out").glob("*.jsonl"))) == 2


def test_a_callback_that_fails_fails_the_run_and_the_record_of_its_batch_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[int] = []

    def fail(record: BatchRecord) -> None:
        seen.extend(batch.batch for batch in History.open(tmp_path).batches)
        raise ValueError("no more")

    p = bl.Pipeline("callback")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    with pytest.raises(bl.RunError, match="ValueError: no more") as caught:
        p.run(bl.SparkRunner(tmp_path, session=spark, shards=1, drain=True, on_batch=fail))
    assert isinstance(caught.value.__cause__, ValueError)
    assert seen == [0]


def test_a_run_that_has_failed_and_is_stopped_is_recorded_as_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fail(record: BatchRecord) -> None:
        raise ValueError("no more")

    p = bl.Pipeline("callback")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    run = bl.SparkRunner(tmp_path, session=spark, shards=1, trigger="1 second", on_batch=fail).start(p.plan())
    with pytest.raises(StreamingQueryException):
        run._query.query.awaitTermination()
    run.stop()
    history = History.open(tmp_path)
    assert history.closed == "failed"
    assert history.failure is not None
    assert "no more" in history.failure.text
    assert "in fail" in history.failure.place


@pytest.mark.parametrize("on_spark", [True, False])
def test_a_callback_may_leave_the_process(spark: SparkSession, tmp_path: Path, on_spark: bool) -> None:
    def leave(_: BatchRecord) -> None:
        sys.exit(3)

    p = bl.Pipeline("callback")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    in_process = bl.LocalRunner(checkpoint=tmp_path, on_batch=leave)
    with pytest.raises(SystemExit, match="3"):
        p.run(bl.SparkRunner(tmp_path, session=spark, shards=1, on_batch=leave) if on_spark else in_process)


def test_without_drain_the_last_windows_stay_open(spark: SparkSession, tmp_path: Path) -> None:
    p, sink = bl.Pipeline("open"), bl.Memory()
    totals(scores(p, bl.Rows(ROWS))).write("out", sink)
    run = p.run(bl.SparkRunner(str(tmp_path), session=spark, shards=2))
    assert sink.rows() == []
    stage = run.batches[-1].stages["plays.aggregate"]
    assert (stage.live, stage.holder) == (2, "plays")


def test_with_an_interval_it_goes_on_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    seen = threading.Event()

    def stop_at_first(record: BatchRecord) -> None:
        seen.set()

    p = bl.Pipeline("interval")
    totals(scores(p, bl.Rows(ROWS))).write("out", bl.Memory())
    runner = bl.SparkRunner(
        str(tmp_path), session=spark, shards=1, trigger="1 second", on_batch=stop_at_first
    )
    run = runner.start(p.plan())
    try:
        assert seen.wait(timeout=120)
    finally:
        run.stop()
    run.wait()
    assert run.batches[0].sources["plays"].elements == 3


@pytest.mark.parametrize("state", STORES)
def test_processing_time_passes_where_a_trigger_waits_for_it(
    spark: SparkSession, tmp_path: Path, state: Literal["spark", "files"]
) -> None:
    def declare() -> tuple[bl.Pipeline, bl.Memory]:
        p, sink = bl.Pipeline("ticks"), bl.Memory()
        early = bl.AfterWatermark(early=AfterProcessingTime("0s"))
        windowed = scores(p, bl.Rows(ROWS)).window_into(bl.FixedWindows("1h"), trigger=early)
        per_user = windowed.group_by("user").aggregate(total=bl.sum("score"))
        per_user.aggregate(total=bl.sum("total")).named("all").write("out", sink)
        return p, sink

    emitted = threading.Event()

    def watch(record: BatchRecord) -> None:
        if record.stages["all"].panes.get("early"):
            emitted.set()

    p, sink = declare()
    runner = bl.SparkRunner(
        str(tmp_path), session=spark, shards=2, trigger="10 milliseconds", on_batch=watch, state=state
    )
    run = runner.start(p.plan())
    try:
        assert emitted.wait(timeout=300)
    finally:
        run.stop()
    # Rows of batch 0 set the timers: panes are emitted when processing time has advanced, at each level.
    assert [batch.stages["all"].elements for batch in run.batches][:2] == [0, 2]
    assert [(row["total"], row["pane_timing"]) for row in sink.rows()][:1] == [(8, "early")]

    p, sink = declare()
    drained = p.run(bl.SparkRunner(str(tmp_path), session=spark, drain=True))
    assert drained.batches[-1].stages["all"].live == 0
    assert sink.rows()[-1]["pane_timing"] == "on_time"


def test_an_error_in_a_users_function_names_the_step(spark: SparkSession, tmp_path: Path) -> None:
    def divide(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "score": 1 // (row["score"] - 1)}

    p = bl.Pipeline("fails", on_error="fail")
    timed = [row for row in ROWS if row["at"] not in ("never", None)]
    totals(scores(p, bl.Rows(timed)).map(divide, name="share")).write("out", bl.Memory())
    with pytest.raises(bl.RunError, match="ZeroDivisionError") as failure:
        p.run(bl.SparkRunner(tmp_path, session=spark, shards=1, drain=True))
    assert "share" in str(failure.value)
    assert "Traceback" not in str(failure.value)


def test_paths_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = bl.Pipeline("paths")
    scores(p, bl.Rows(ROWS)).write("out", bl.Parquet("out"))
    monkeypatch.chdir(tmp_path)
    writer = PartWriter.of(RunSinks(p.plan(), "run", bl.JSONLines("s3://bucket/letters")).sinks, "run", {})
    paths = {name: sink.path for name, sink in writer.sinks.items()}
    assert paths == {"out": str(tmp_path / "out"), "@dead-letters": "s3://bucket/letters"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trigger": "now"}, "trigger must be 'available_now' or an interval"),
        ({"trigger": "1 second", "drain": True}, "drain=True needs trigger='available_now'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.SparkRunner(**options)
