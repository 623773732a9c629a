"""The cost of an event until it is in an envelope: files read by polars in the tasks, by Spark's reader, and natively.

    python -m benchmarks.reading                 # Parquet, CSV and JSON lines; two sizes, one Spark
    python -m benchmarks.reading --rows 2000000 --format Parquet

`files` is the way of `bl.Parquet` and others: Spark lists, the tasks read. `spark source` is `bl.SparkSource` with
Spark's own reader, whose rows pass through `mapInArrow`. Both parse event times, sort rows by shard and make envelopes.
`native` only reads the columns. The cost of one more event is the difference between two sizes in the same number of
micro-batches, in CPU time of Spark's whole process tree, which excludes the fixed cost of a batch. The batches before
count as warm-up; the least of `--repeats` counts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession

import beamlike as bl
from beamlike.io.files.files import Files
from beamlike.runtime.batch.envelope import Topology
from beamlike.spark.query.ingest import source_envelopes
from beamlike.spark.query.labels import labels
from beamlike.spark.session.session import open_session, ship, worker_environment

FORMATS: dict[str, type[Files]] = {"Parquet": bl.Parquet, "CSV": bl.CSV, "JSONLines": bl.JSONLines}
_BATCHES = 4
_SCHEMA = {"event_time": pl.Datetime("us", "UTC"), "user": int, "score": int}
_DDL = "event_time timestamp, user long, score long"
_READERS = {"Parquet": "parquet", "CSV": "csv", "JSONLines": "json"}


def write(folder: Path, files: type[Files], rows: int) -> Path:
    """Writes as many files as there are batches, of `rows` rows in all."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for number in range(_BATCHES):
        count = rows // _BATCHES
        times = 1_700_000_000_000_000 + np.sort(random.integers(0, 3_600_000_000, count))
        columns = {"event_time": times, "user": random.integers(0, 100_000, count), "score": np.arange(count)}
        frame = pl.DataFrame(columns).cast(_SCHEMA)  # type: ignore[arg-type]
        files(folder)._save(frame, str(folder / f"{number}.{files.extension}"))
    return folder


def envelopes(session: SparkSession, source: object, shards: int) -> DataFrame:
    """Returns the envelopes from the source to a stage that counts by user."""
    p = bl.Pipeline("reading")
    plays = p.read("plays", source, timestamp="event_time", watermark=bl.BoundedOutOfOrderness("5s"))
    counted = plays.window_into(bl.Sessions("1m")).group_by("user").aggregate(n=bl.count(), s=bl.sum("score"))
    counted.write("out", bl.Memory())
    plan = p.plan()
    (stream,) = source_envelopes(session, plan.sources.values(), Topology.of(plan, labels(session, shards)))
    return stream


def engines(
    session: SparkSession, name: str, folder: Path, shards: int
) -> dict[str, Callable[[], DataFrame]]:
    """Returns the streams that read the files of the folder, one in a micro-batch, by name."""

    def rows(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(_DDL).option("maxFilesPerTrigger", 1).format(_READERS[name])
        return reader.option("header", True).load(str(folder))

    files = FORMATS[name](folder, schema=_SCHEMA, max_files_per_trigger=1)
    return {
        "files": lambda: envelopes(session, files, shards),
        "spark source": lambda: envelopes(session, bl.SparkSource(rows, schema=_SCHEMA), shards),
        "native": lambda: rows(session),
    }


def cpu() -> float:
    """Returns the CPU seconds of this process, its descendants, and the processes that these have waited for."""
    processes: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            processes[int(folder.name)] = (
                int(fields[1]),
                sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
            )
    total, found = 0.0, [os.getpid()]
    while found:
        parent = found.pop()
        total += processes[parent][1]
        found += [pid for pid, (its_parent, _) in processes.items() if its_parent == parent]
    return total


def spent(session: SparkSession, stream: Callable[[], DataFrame]) -> float:
    """Returns the CPU seconds of reading all files."""
    before = cpu()
    with tempfile.TemporaryDirectory() as checkpoint, worker_environment(session):
        writer = stream().writeStream.format("noop").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return cpu() - before


@click.command(help=__doc__)
@click.option("--rows", default=4_000_000, show_default=True, help="Rows of the larger input.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--format", "formats", multiple=True, type=click.Choice([*FORMATS]), default=[*FORMATS])
@click.option("--cores", default=2, show_default=True)
def main(rows: int, repeats: int, formats: tuple[str, ...], cores: int) -> None:
    """Read, and print CPU microseconds per event."""
    session = open_session(
        None, master=f"local[{cores}]", shards=cores, name="reading", config={}, row_loops=True
    )
    ship(session, [])
    small = rows // 8
    with tempfile.TemporaryDirectory() as data:
        for name in formats:
            folders = {
                count: write(Path(data) / name / str(count), FORMATS[name], count) for count in (small, rows)
            }
            for engine in ("files", "spark source", "native"):
                streams = {
                    count: engines(session, name, folder, cores)[engine] for count, folder in folders.items()
                }
                spent(session, streams[small])
                costs = {
                    count: min(spent(session, stream) for _ in range(repeats))
                    for count, stream in streams.items()
                }
                each = (costs[rows] - costs[small]) / (rows - small) * 1e6
                click.echo(
                    f"{name:10} {engine:13} {each:6.3f} us CPU per event   ({costs[rows]:.2f} s for {rows:,})"
                )


if __name__ == "__main__":
    main()
