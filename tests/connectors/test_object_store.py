"""Sources, sinks and checkpoints in an object store: the same paths and settings on both runners."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyarrow import fs

import beamlike as bl
from beamlike.errors import CheckpointError, MissingFiles, SinkError, SourceError
from beamlike.records.history import History
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from tests.connectors.jars import jars
from tests.connectors.s3 import Store, object_store, requests
from tests.support.connect_server import Server
from tests.support.spark_versions import FILES_FIRST

pytestmark = pytest.mark.connectors

FORMATS = {"parquet": bl.Parquet, "csv": bl.CSV, "jsonl": bl.JSONLines}


@pytest.fixture
def bucket(store: Store) -> Iterator[str]:
    """A new bucket, as the beginning of paths."""
    with store.in_environment():
        yield f"s3://{store.bucket()}"


def put(name: str, seconds: range, bucket: str) -> None:
    """Puts a file of plays below `in`, in each format."""
    plays = [{"user": f"u{n % 3}", "at": n} for n in seconds]
    for kind in FORMATS:
        p = bl.Pipeline(name)
        read = p.read("plays", bl.Rows(plays), timestamp="at", timestamp_unit="s", watermark=ordered())
        read.write("files", FORMATS[kind](f"{bucket}/in/{kind}"))
        p.run()


def ordered() -> bl.MonotonousTimestamps:
    return bl.MonotonousTimestamps()


def counts(bucket: str) -> bl.Pipeline:
    """Declares plays per minute of each format, in files of that format."""
    p = bl.Pipeline("counts")
    for kind, files in FORMATS.items():
        source = files(f"{bucket}/in/{kind}/*.{kind}", {"user": str, "at": int})
        plays = p.read(kind, source, timestamp="at", timestamp_unit="s", watermark=ordered())
        windowed = plays.window_into(bl.FixedWindows("1m")).group_by("user", name=f"{kind} counts")
        windowed.aggregate(n=bl.count()).write(f"{kind} out", files(f"{bucket}/out/{kind}"))
    return p


def written(bucket: str) -> dict[str, list[int]]:
    """Returns the counts in the files of each format."""
    schema = {"user": str, "n": int}
    files = {kind: FORMATS[kind](f"{bucket}/out/{kind}", schema) for kind in FORMATS}
    return {
        kind: sorted(pl.concat(piece.lazy().collect() for piece in source.chunks(100))["n"])
        for kind, source in files.items()
    }


def went_on(bucket: str, runner: Any) -> None:
    """Checks that a run with a checkpoint reads the existing input, and the next one the new input."""
    put("first", range(90), bucket)
    counts(bucket).run(runner())
    assert written(bucket) == {kind: [20] * 3 for kind in FORMATS}
    put("then", range(90, 130), bucket)
    counts(bucket).run(runner(drain=True))
    assert written(bucket) == {kind: [3, 3, 4, *[20] * 6] for kind in FORMATS}


def test_in_process(bucket: str, tmp_path: Path) -> None:
    went_on(bucket, lambda **how: bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), **how))


def test_an_object_that_is_replaced_is_in_the_records(bucket: str, store: Store, tmp_path: Path) -> None:
    folder = fs.FileSystem.from_uri(bucket)[0]

    def put_object(name: str, *users: str) -> None:
        with folder.open_output_stream(f"{bucket.removeprefix('s3://')}/in/{name}") as file:
            file.write("".join(f'{{"user": "{user}"}}\n' for user in users).encode())

    def run() -> list[Any]:
        p = bl.Pipeline("users")
        p.read("users", bl.JSONLines(f"{bucket}/in", {"user": str})).write("out", bl.Memory())
        return [*p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint")).batches]

    put_object("a.jsonl", "ada")
    assert run()[-1].sources["users"].changed == {}
    put_object("a.jsonl", "ada", "bob")
    assert run() == []
    path = f"{bucket}/in/a.jsonl"
    (changed,) = History.open(tmp_path / "checkpoint").changed["users"].items()
    assert changed[0] == path
    put_object("b.jsonl", "cid")
    (batch,) = run()
    assert batch.sources["users"].elements == 1
    assert [*batch.sources["users"].changed] == [path]
    assert "16 bytes of " in batch.sources["users"].changed[path]


def test_a_small_file_is_written_with_one_request_and_read_with_two(tmp_path: Path) -> None:
    files, log = ArrowFiles(), tmp_path / "log"
    with log.open("w") as file, object_store(file) as store, store.in_environment():
        bucket = store.bucket()
        files.write(f"s3://{bucket}/folder/file", "text")
        assert files.read(f"s3://{bucket}/folder/file") == "text"
        assert files.read(f"s3://{bucket}/folder/none") is None
        made = [method for method, path in requests(log, bucket) if path == "folder/file"]
    assert made == ["PUT", "HEAD", "GET"]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["files", "delta"])
def test_an_older_copy_of_a_checkpoint_is_seen_by_what_is_in_the_bucket(
    kind: str, bucket: str, tmp_path: Path
) -> None:
    sink: Any = bl.JSONLines(f"{bucket}/out") if kind == "files" else bl.Delta(f"{bucket}/table")

    def run(checkpoint: str, *numbers: int, **options: Any) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        for n in numbers:
            (tmp_path / "in" / f"{n}.jsonl").write_text(f'{{"n": {n}}}\n')
        p = bl.Pipeline("numbers")
        p.read("in", bl.JSONLines(tmp_path / "in", {"n": int})).write("out", sink)
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / checkpoint), **options))

    def found() -> list[int]:
        written = (
            bl.JSONLines(f"{bucket}/out", {"n": int}) if kind == "files" else bl.Delta(f"{bucket}/table")
        )
        return sorted(bl.Pipeline("p").read("out", written).collect()["n"])

    run("original", 0)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    run("original", 1)
    with pytest.raises(CheckpointError, match=r"has batch 1 of the run .*knows of batch 0"):
        run("copy")
    run("copy", 2, continue_as="second")
    assert found() == ([0, 1, 2] if kind == "files" else [0, 1, 1, 2])


@pytest.mark.parametrize(
    ("state", "shards"), [pytest.param("spark", 1, marks=pytest.mark.long), (None, 1), ("files", 2)]
)
def test_on_spark_with_the_checkpoint_there(bucket: str, spark: Any, state: Any, shards: int) -> None:
    states = iter([state, None])  # a run that asks for no store goes on with that of the checkpoint

    def runner(**how: Any) -> bl.SparkRunner:
        return bl.SparkRunner(f"{bucket}/checkpoint", session=spark, shards=shards, state=next(states), **how)

    went_on(bucket, runner)
    manifest = Checkpoint.of(spark, f"{bucket}/checkpoint", None).manifest()
    assert (manifest or {})["store"] == (state or "files")


@pytest.mark.parametrize("state", FILES_FIRST)
def test_on_spark_connect_with_the_checkpoint_there(
    bucket: str, store: Store, tmp_path: Path, state: Any
) -> None:
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    there = ",".join(map(os.fspath, jars("spark-s3")))
    server = Server.start(tmp_path / "server", {"spark.jars": there, **store.of_hadoop})
    session = server.session()

    def runner(place: str = bucket.replace("s3://", "s3a://"), **options: Any) -> bl.SparkRunner:
        return bl.SparkRunner(f"{place}/checkpoint", session=session, shards=1, state=state, **options)

    went_on(bucket, runner)
    with pytest.raises(CheckpointError, match=r"its Hadoop knows no s3://: Hadoop itself calls S3 s3a://"):
        counts(bucket).run(runner(f"{bucket}/other"))
    session.stop()
    server.stop()


@pytest.mark.parametrize("runner", ["available_now", "100 milliseconds"])
def test_a_bucket_that_is_not_there_is_not_waited_for(store: Store, tmp_path: Path, runner: str) -> None:
    source = bl.JSONLines("s3://nowhere/in/*.jsonl", schema={"user": str})
    p = bl.Pipeline("p")
    p.read("plays", source).write("out", bl.Memory())
    with (
        store.in_environment(),
        pytest.raises(MissingFiles, match="step 'plays': there is no bucket 'nowhere'"),
    ):
        p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", trigger=runner))
    with store.in_environment(), pytest.raises(SourceError, match="source 'table': it cannot be read: "):
        bl.Pipeline("p").read("table", bl.Delta("s3://nowhere/table"))


def test_on_both_runners_a_sink_in_a_bucket_that_is_not_there_is_told_of_before_a_run_begins(
    store: Store, tmp_path: Path
) -> None:
    p = bl.Pipeline("p")
    p.read("plays", bl.Rows([{"user": "ada"}])).write("out", bl.Parquet("s3://nowhere/out"))
    runners = bl.LocalRunner(), bl.SparkRunner(str(tmp_path / "checkpoint"), master="spark://localhost:1")
    for runner in runners:
        with (
            store.in_environment(),
            pytest.raises(SinkError, match=r"sink 'out': .* there is no bucket 'nowhere'"),
        ):
            p.run(runner)
