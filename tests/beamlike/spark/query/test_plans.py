"""Sources that plan their batches, on Spark: the driver logs the plans, tasks read them, and a run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.planner import Planner
from beamlike.system.seals import sealed_lines
from tests.support.databases import execute

pytestmark = pytest.mark.spark


class Places:
    """A Delta table and an SQLite table whose rows a pipeline counts."""

    def __init__(self, folder: Path) -> None:
        self.delta, self.url = str(folder / "table"), f"sqlite:///{folder}/plays.db"
        self.out, self.dies_in = str(folder / "out"), -1
        execute(self.url, "CREATE TABLE plays (id INTEGER PRIMARY KEY, at INTEGER)")

    def add(self, *seconds: int) -> None:
        """Adds a version to the Delta table, and the same rows to the database."""
        rows = pl.DataFrame({"at": list(seconds), "kind": ["odd" if at % 2 else "even" for at in seconds]})
        write_deltalake(self.delta, rows.to_arrow(), mode="append", partition_by=["kind"])
        execute(self.url, *(f"INSERT INTO plays (at) VALUES ({at})" for at in seconds))

    def pipeline(self) -> bl.Pipeline:
        """Writes both sources to files, and their counts."""
        p = bl.Pipeline("plays")
        for name, source in {
            "delta": bl.Delta(self.delta),
            "table": bl.Table(self.url, "plays", grows="id"),
        }.items():
            ordered = bl.MonotonousTimestamps()
            plays = p.read(name, source, timestamp="at", timestamp_unit="s", watermark=ordered)
            plays.write(f"{name} rows", bl.Parquet(f"{self.out}/{name}"))
            counts = plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
            counts.write(f"{name} counts", bl.Parquet(f"{self.out}/{name}-counts"))
        return p

    def dies(self, record: Any) -> None:
        """Fails batch `dies_in` after its sinks have written it."""
        if record.batch == self.dies_in:
            raise RuntimeError("the driver is gone")

    def found(self, column: str, folder: str) -> list[int]:
        return sorted(pl.read_parquet(f"{self.out}/{folder}/*.parquet")[column])


@pytest.mark.slow
def test_a_run_goes_on_and_takes_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    places, checkpoint = Places(tmp_path), str(tmp_path / "checkpoint")

    def run(**how: Any) -> Any:
        return places.pipeline().run(
            bl.SparkRunner(checkpoint, session=spark, shards=1, on_batch=places.dies, **how)
        )

    places.add(1, 2, 3)
    run()
    places.add(4, 59)
    places.add(61)
    places.dies_in = 1
    with pytest.raises(Exception, match="the driver is gone"):
        run()
    places.add(62)
    places.dies_in = -1
    run(drain=True)
    for name in ("delta", "table"):
        assert places.found("at", name) == [1, 2, 3, 4, 59, 61, 62]
        assert places.found("n", f"{name}-counts") == [2, 5]


def test_notes_that_are_gone_or_damaged_are_named(spark: SparkSession, tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.add(1)

    def opened(notes: Mapping[int, str], offset: int) -> Planner:
        """Opens a planner with these logged batches, of which Spark has read `offset`."""
        path = tmp_path / f"checkpoint {offset} {len(notes)}"
        made, log = path / "beamlike" / "batches" / "delta", path / "sources" / "0"
        for place in (made, log, path / "offsets", path / "commits"):
            place.mkdir(parents=True)
        for number, text in notes.items():
            (made / f"{number:012d}.json").write_text(text)
        for number in range(offset):
            entry = json.dumps(
                {"path": f"file://{made}/{number:012d}.json", "timestamp": 1, "batchId": number}
            )
            (log / str(number)).write_text(f"v1\n{entry}")
        (path / "offsets" / "0").write_text(f'v1\n{{}}\n{{"logOffset":{offset - 1}}}')
        (path / "commits" / "0").write_text("v1\n{}")
        return Planner.of(Checkpoint(spark, str(path)), places.pipeline().plan().sources["delta"])

    def note(number: int) -> str:
        position = {"version": number, "file": None}
        facts = {"planned": number, "input": None, "position": position, "watermark": None}
        return sealed_lines([facts], f"batches/delta/{number:012d}.json")

    notes = {number: note(number) for number in range(4)}
    assert opened(notes, 2)._reader.position == {"version": 3, "file": None}
    with pytest.raises(CheckpointError, match=r"the note .*/batches/delta/000000000002.json is gone"):
        opened({number: notes[number] for number in (0, 1, 3)}, 2)
    with pytest.raises(CheckpointError, match=r"the note .*/batches/delta/000000000001.json is gone"):
        opened({0: notes[0]}, 2)
    with pytest.raises(CheckpointError, match=r"the note .*/batches/delta/000000000000.json is not whole"):
        opened({0: '{"planned": 0'}, 1)


@pytest.mark.slow
def test_a_savepoint_goes_to_the_other_runner_and_back(spark: SparkSession, tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.add(1, 2)
    on_spark = str(tmp_path / "spark")
    places.pipeline().run(bl.SparkRunner(on_spark, session=spark, shards=2))
    first, local = str(tmp_path / "first"), str(tmp_path / "local")
    bl.savepoint.save(on_spark, first, session=spark)
    bl.savepoint.restore(first, local, places.pipeline().plan(), runner="local")
    places.add(3, 61)
    places.pipeline().run(bl.LocalRunner(checkpoint=local))
    second, back = str(tmp_path / "second"), str(tmp_path / "back")
    bl.savepoint.save(local, second)
    bl.savepoint.restore(second, back, places.pipeline().plan(), session=spark, shards=1)
    places.add(62)
    places.pipeline().run(bl.SparkRunner(back, session=spark, drain=True))
    for name in ("delta", "table"):
        assert places.found("at", name) == [1, 2, 3, 61, 62]
        assert places.found("n", f"{name}-counts") == [2, 3]
