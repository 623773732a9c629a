"""A run on Spark with its state in one of the two stores, as a process of its own, in turns with another one.

The first batches make the state, and the next ones warm up. From then on the run waits for its turn before each batch.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import parse_qs

import attrs
import click
import numpy as np
import polars as pl
from pyarrow import fs

import beamlike as bl
from beamlike.records.model import BatchRecord
from benchmarks.family import Meter, Used, family, memory
from benchmarks.workloads import SCHEMA, SECOND, START

WARM: Final = 12
"""Batches that are not measured, after those that make the state."""
_CHUNK: Final = 1_000_000  # rows of a batch that makes state
_CORES: Final = 2
_CLUSTER: Final = "local-cluster[2,1,1024]"

Store = Literal["files", "spark"]


@attrs.frozen
class Case:
    """A state and the batches on it.

    Attributes:
        part: The part of the benchmark.
        operator: "running" (totals of each key, read and written at each arrival) or "windows" (a day long, to which
            arrivals are only appended).
        keys: "random" (among the rows of the state) or "growing" (new ones).
        rows: The rows that the state has at first.
        shards: The number of shards.
        batches: The number of measured batches.
        arrivals: The rows of a batch.
        cluster: True if there are two executors, and a task does not wait for the one that had its state.
        every: The number of batches between two looks at memory and files; 0 for none.
    """

    part: str
    operator: str
    keys: str
    rows: int
    shards: int
    batches: int = 40
    arrivals: int = 10_000
    cluster: bool = False
    every: int = 0

    @property
    def before(self) -> int:
        """The number of batches that are not measured."""
        return -(-self.rows // _CHUNK) + WARM

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yields the rows of each batch."""
        random = np.random.default_rng(1)
        users = random.permutation(self.rows)
        for first in range(0, self.rows, _CHUNK):
            yield self._frame(random, users[first : first + _CHUNK], START - SECOND)
        for number in range(WARM + self.batches):
            if self.keys == "growing":
                users = self.rows + number * self.arrivals + random.permutation(self.arrivals)
            else:
                users = random.integers(0, self.rows, self.arrivals)
            yield self._frame(random, users, START + number * SECOND)

    def _frame(self, random: np.random.Generator, users: np.ndarray, begin: int) -> pl.DataFrame:
        times = begin + np.sort(random.integers(0, SECOND, len(users)))
        columns = {"user": users, "score": random.integers(1, 100, len(users)), "event_time": times}
        return pl.DataFrame(columns, schema_overrides={"event_time": pl.Int64}).cast(dict(SCHEMA))

    def write(self, folder: Path) -> None:
        """Writes a file for each batch."""
        folder.mkdir()
        for number, rows in enumerate(self.frames()):
            path = folder / f"{number:05d}.parquet"
            rows.write_parquet(path)
            os.utime(path, (START // SECOND + number,) * 2)  # the oldest is read first

    def pipeline(self, data: Path, out: Path) -> bl.Pipeline:
        p = bl.Pipeline("stores")
        source = bl.Parquet(data, dict(SCHEMA), max_files_per_trigger=1)
        watermark = bl.BoundedOutOfOrderness("1s")
        rows = p.read("rows", source, timestamp="event_time", watermark=watermark)
        totals = {"score": bl.sum("score"), "plays": bl.count()}
        if self.operator == "running":
            grouped = rows.select("user", "score").group_by("user", name="totals")
            made = grouped.running(
                order="arrival", keep_forever=True, total=totals["score"], plays=bl.count()
            )
        else:
            windows = rows.window_into(bl.FixedWindows("1d"))
            made = windows.group_by("user", name="totals").aggregate(**totals)
        made.write("out", bl.Parquet(out))
        return p


@attrs.frozen
class Turns:
    """The turns of two processes. Each reads a byte from a pipe of its own when its turn begins."""

    mine: int
    other: int
    leads: bool

    @classmethod
    def of(cls, mine: Path, other: Path, *, leads: bool) -> Turns:
        return cls(os.open(mine, os.O_RDWR), os.open(other, os.O_RDWR), leads)

    def give(self) -> None:
        os.write(self.other, b".")

    def wait(self) -> None:
        os.read(self.mine, 1)


@attrs.define
class Watch:
    """The measurements of a run. `log` is the log of the object store, if the checkpoint is there."""

    case: Case
    turns: Turns
    checkpoint: str
    out: Path
    log: Path | None = None
    meter: Meter = attrs.field(factory=Meter)
    batches: list[Used] = attrs.field(factory=list, init=False)
    between: list[Used] = attrs.field(factory=list, init=False)
    looks: list[dict[str, float]] = attrs.field(factory=list, init=False)
    live: int = attrs.field(default=0, init=False)
    requests: Counter[str] = attrs.field(factory=Counter, init=False)
    _count: int = attrs.field(default=0, init=False)
    _begin: Used | None = attrs.field(default=None, init=False)

    def batch(self, record: BatchRecord) -> None:
        """Ends the turn, and waits for the next one."""
        self._count += 1
        if not self.case.before <= self._count <= self.case.before + self.case.batches:
            return
        end = self.meter.read()
        if self._begin is not None:
            self.batches.append(end.since(self._begin))
        self.live = record.stages["totals"].live
        with self.meter.aside():
            self._look()
        is_last = len(self.batches) == self.case.batches
        if is_last:
            self.requests = self._requested() - self.requests
        if self._begin is not None or not self.turns.leads:
            self.turns.give()
        if not is_last:
            self.turns.wait()
            if self._begin is None:
                self.requests = self._requested()
            else:
                self.between.append(self.meter.read().since(end))
            self._begin = self.meter.read()

    def _requested(self) -> Counter[str]:
        """Counts the requests so far by method and folder of the checkpoint."""
        if self.log is None:
            return Counter()
        bucket = self.checkpoint.removeprefix("s3://").partition("/")[0]
        return Counter(requested(self.log, bucket))

    def _look(self) -> None:
        done = len(self.batches)
        if self.case.every and done % self.case.every == 0:
            recent = [used.cpu for used in self.batches[-self.case.every :]]
            cpu = 1e3 * statistics.fmean(recent) if recent else 0.0
            found = {"batches": done, "CPU ms": cpu, **memory(family()), **stored(self.checkpoint)}
            self.looks.append(found)
            self.out.write_text(json.dumps(self.looks))  # also if the run does not end

    def facts(self) -> dict[str, Any]:
        """Returns the figures of a batch: milliseconds and kilobytes."""

        def mean(used: Sequence[Used], name: str) -> float:
            return statistics.fmean(getattr(each, name) for each in used) if used else 0.0

        return {
            "cpu": 1e3 * mean(self.batches, "cpu"),
            "java": 1e3 * mean(self.batches, "java"),
            "python": 1e3 * mean(self.batches, "python"),
            "cpu median": 1e3 * statistics.median(used.cpu for used in self.batches),
            "between": 1e3 * mean(self.between, "cpu"),
            "wall": 1e3 * statistics.median(used.wall for used in self.batches),
            "written": (mean(self.batches, "written") + mean(self.between, "written")) / 1e3,
            "live": self.live,
            "requests": {
                method: count / self.case.batches for method, count in sorted(self.requests.items())
            },
            "looks": self.looks,
        }


def requested(log: Path, bucket: str) -> Iterator[str]:
    """Yields the method and the folder of each request for a bucket. A request for a list of objects is a LIST."""
    from tests.connectors.s3 import requests

    for method, path in requests(log, bucket):
        prefix = parse_qs(path.removeprefix("?")).get("prefix", [""])[0]
        parts = (prefix if "list-type" in path else path.partition("?")[0]).strip("/").split("/")[1:]
        folder = "/".join(parts[:3] if parts[:2] == ["beamlike", "state"] else parts[:1])
        yield f"{'LIST' if 'list-type' in path else method} {folder or 'checkpoint'}"


def stored(checkpoint: str) -> dict[str, float]:
    """Returns the files and megabytes of a checkpoint, and of the state in it."""
    system, path = fs.FileSystem.from_uri(checkpoint if "://" in checkpoint else Path(checkpoint).as_uri())
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    files = {info.path.removeprefix(path).strip("/"): info.size for info in found if info.is_file}
    state = {name: size for name, size in files.items() if name.startswith(("state/", "beamlike/state/"))}
    return {
        "files": len(files),
        "MB": sum(files.values()) / 1e6,
        "state files": len(state),
        "state MB": sum(state.values()) / 1e6,
    }


def moved(events: Path) -> float:
    """Returns the share of the tasks with state that ran on another executor than in the batch before."""
    (log,) = (path for path in events.rglob("*") if path.is_file() and not path.name.startswith("."))
    last: dict[int, str] = {}
    places: dict[tuple[int, int], str] = {}
    for event in map(json.loads, log.read_text().splitlines()):
        if event["Event"] == "SparkListenerJobStart":
            last[max(event["Stage IDs"])] = event["Properties"].get("streaming.sql.batchId", "")
        elif event["Event"] == "SparkListenerTaskEnd" and last.get(event["Stage ID"]):
            place = int(last[event["Stage ID"]]), event["Task Info"]["Index"]
            places[place] = event["Task Info"]["Executor ID"]
    pairs = [
        (at, places[batch - 1, shard])
        for (batch, shard), at in places.items()
        if (batch - 1, shard) in places
    ]
    return sum(now != before for now, before in pairs) / max(1, len(pairs))


def answer(out: Path) -> list[int]:
    """Returns the number of rows of the output, and the sums of its columns."""
    files = [*map(str, out.rglob("*.parquet"))]
    if not files:
        return []
    columns = [
        name for name in pl.scan_parquet(files[0]).collect_schema() if name in ("total", "score", "plays")
    ]
    found = pl.scan_parquet(files).select(pl.len(), *(pl.col(name).sum() for name in columns)).collect()
    return [int(value) for value in found.row(0)]


def _settings(case: Case, work: Path) -> Mapping[str, str]:
    settings = {"spark.driver.memory": "4g", "spark.local.dir": str(work / "local")}
    if not case.cluster:
        return settings
    (work / "events").mkdir()
    return settings | {
        "spark.locality.wait": "0s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (work / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def _of_s3() -> dict[str, str]:
    from tests.connectors.jars import jars
    from tests.connectors.s3 import Store as ObjectStore

    there = {"spark.jars": ",".join(map(os.fspath, jars("spark-s3")))}
    # Soon, each batch also removes an old version.
    return {**there, **ObjectStore("").of_hadoop, "spark.sql.streaming.minBatchesToRetain": "10"}


@click.command()
@click.argument("store", type=click.Choice(["files", "spark"]))
@click.argument("case")
@click.argument("data", type=click.Path(path_type=Path))
@click.argument("work", type=click.Path(path_type=Path))
@click.argument("checkpoint")
@click.argument("pipes", type=click.Path(path_type=Path), nargs=2)
@click.option("--leads", is_flag=True)
@click.option("--log", type=click.Path(path_type=Path))
def main(
    store: Store,
    case: str,
    data: Path,
    work: Path,
    checkpoint: str,
    pipes: tuple[Path, Path],
    leads: bool,
    log: Path | None,
) -> None:
    """Run a case, as JSON, on the files of DATA, and write the figures of its batches to a file in WORK."""
    of = Case(**json.loads(case))
    watch = Watch(of, Turns.of(*pipes, leads=leads), checkpoint, work / "looks.json", log)
    runner = bl.SparkRunner(
        checkpoint,
        master=_CLUSTER if of.cluster else f"local[{_CORES}]",
        shards=of.shards,
        state=store,
        config={**_settings(of, work), **(_of_s3() if log else {})},
        on_batch=watch.batch,
        quiet=True,
    )
    run = runner.start(of.pipeline(data, work / "out"))
    run.wait()
    facts = {**watch.facts(), **stored(checkpoint), "answer": answer(work / "out")}
    if of.cluster:
        run.session.stop()  # completes the log of events
        facts["moved"] = moved(work / "events")
    (work / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
