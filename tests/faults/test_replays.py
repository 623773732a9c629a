"""A batch that is repeated may have other results: the output is that of the last attempt, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.io.base import Part
from beamlike.runtime.batch.batch_sinks import Leftovers
from beamlike.spark.query.parts import warn_of_copies

USERS = ["a", "a", "b", "b", "c", "a"]


@attrs.frozen
class Job:
    """Runs two rows a batch. While a file `faulty` exists, a step raises on rows of b; `without` leaves out a user.

    With `levels` there is a stage without a key: most shards then receive only rows that bypass it, or nothing.
    """

    folder: Path
    levels: bool
    memory: bl.Memory = attrs.field(factory=bl.Memory)
    called: dict[int, list[int]] = attrs.field(factory=dict)
    """Rows of a callback by batch; a repeated batch replaces its rows."""

    @property
    def faulty(self) -> Path:
        return self.folder / "faulty"

    def pipeline(self, without: str = "") -> bl.Pipeline:
        faulty, out = str(self.faulty), self.folder / "out"

        def shaky(row: dict[str, Any]) -> dict[str, Any]:
            if row["user"] == "b" and Path(faulty).exists():
                raise OSError("a service is away")
            return row

        p = bl.Pipeline("p")
        source = bl.Rows(
            [{"user": user, "at": at} for at, user in enumerate(USERS)],
            rows_per_batch=2,
        )
        plays = p.read(
            "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
        )
        rows = plays.map(shaky, name="shaky")
        if without:
            rows = rows.filter(bl.col("user") != without)
        rows.write("whole", bl.Parquet(out / "whole"))
        rows.write("by user", bl.JSONLines(out / "by user", partition_by="user"))
        rows.write("memory", self.memory)
        rows.write(
            "called", bl.Callback(lambda frame, batch: self.called.update({batch: frame["at"].to_list()}))
        )
        each = out / "each"
        rows.write(
            "each",
            bl.ForEachBatch(
                lambda frame, batch: frame.write.mode("overwrite").parquet(f"{each}/batch={batch}")
            ),
        )
        if self.levels:
            counts = rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("counted")
            counts.write("counts", bl.CSV(out / "counts"))
        return p

    def found(self) -> dict[str, list[int]]:
        """Returns the times of the rows in each sink, and the number of dead letters and of hidden files."""
        out = self.folder / "out"
        parts = {
            "whole": [pl.read_parquet(file) for file in (out / "whole").glob("part-*")],
            "by user": [pl.read_ndjson(file) for file in (out / "by user").rglob("part-*")],
            "memory": [self.memory.frame()],
            "each": [pl.read_parquet(file) for file in (out / "each").rglob("part-*")],
        }
        found = {name: sorted(at for frame in frames for at in frame["at"]) for name, frames in parts.items()}
        found["called"] = sorted(at for rows in self.called.values() for at in rows)
        letters = (self.folder / "checkpoint").rglob("dead-letters/part-*")
        hidden = [file for file in out.rglob(".part-*") if not file.name.endswith(".crc")]
        return {**found, "letters": [len([*letters])], "hidden": [len(hidden)]}


def state(rows: list[int], letters: int = 0) -> dict[str, list[int]]:
    """Returns the expected result of `found`: all sinks have these rows."""
    return {
        "whole": rows,
        "by user": rows,
        "memory": rows,
        "called": rows,
        "each": rows,
        "letters": [letters],
        "hidden": [0],
    }


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "levels"),
    [
        pytest.param("it fails no more", False, marks=pytest.mark.long),
        ("a filter is new", True),
        pytest.param("it fails no more", True, marks=pytest.mark.long),
        pytest.param("a filter is new", False, marks=pytest.mark.long),
    ],
)
def test_nothing_stays_of_an_attempt_that_was_not_noted(
    change: str, levels: bool, spark: SparkSession, tmp_path: Path
) -> None:
    def cut(record: Any) -> None:
        if record.batch == 1:
            raise RuntimeError("cut")

    job, fails = Job(tmp_path, levels), change == "it fails no more"
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=3, drain=True)
    if fails:
        job.faulty.touch()
    with pytest.raises((bl.RunError, StreamingQueryException), match="cut"):
        job.pipeline().run(attrs.evolve(runner, on_batch=cut))
    assert job.found() == (state([0, 1], letters=1) if fails else state([0, 1, 2, 3]))
    job.faulty.unlink(missing_ok=True)
    part = next((tmp_path / "out" / "whole").glob("part-*"))
    part.with_name(f".{part.name}.0a6b4d02.tmp").touch()  # of a task that was killed
    job.pipeline(without="" if fails else "b").run(runner)
    assert job.found() == state([0, 1, 2, 3, 4, 5] if fails else [0, 1, 4, 5])


def test_where_a_task_was_tried_again_its_batch_is_looked_through(tmp_path: Path) -> None:
    sink = bl.JSONLines(tmp_path, partition_by="user")
    leftovers = Leftovers({"out": sink, "rows": bl.Memory()}, "q")

    def prepared(user: str) -> dict[str, str]:
        return sink.prepare(pl.DataFrame({"user": [user], "n": [1]}), Part("q", 1, 1))

    leftovers.settle(0, {})
    failed, counts = prepared("a"), prepared("b")
    assert [*counts.values()] == ["user=b/part-q-000001-001.jsonl"]
    leftovers.settle(1, {"out": counts})
    assert sorted(file.name for file in tmp_path.iterdir()) == [*failed, "user=b"]  # nothing was looked for
    leftovers.settle(1, {"out": prepared("b")}, again=True)
    assert [file.name for file in tmp_path.iterdir()] == ["user=b"]


def test_where_copies_of_tasks_may_replace_files_of_an_object_store_that_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    there, here = bl.CSV("s3://bucket/out"), bl.Parquet("out")
    for sinks, speculation in [([there], None), ([there], "false"), ([here, bl.Memory()], "true")]:
        warn_of_copies(sinks, speculation)
    assert caplog.messages == []
    warn_of_copies([there, here], "true")
    assert "spark.speculation is on" in caplog.text
    assert "'s3://bucket/out' may be replaced" in caplog.text
