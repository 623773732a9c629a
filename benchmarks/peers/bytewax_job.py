"""The flagship job in Bytewax.

python bytewax_job.py DATA OUT THREADS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GAP = timedelta(seconds=60)
_ROWS = 10_000  # of a batch of the source; with a thousand, an event takes twice the CPU time
_SCHEMA = pa.schema(
    [("window_start", pa.timestamp("us", "UTC")), ("mean", pa.float64()), ("sessions", pa.int64())]
)

Span = tuple[datetime, datetime]


class Plays(StatefulSourcePartition[Any, None]):
    """The files of one source, one after another: those of a user would be late if they were read side by side."""

    def __init__(self, folder: Path) -> None:
        self._batches = self._read(folder)

    def _read(self, folder: Path) -> Iterator[list[tuple[str, datetime]]]:
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=["user", "event_time"]):
                users = batch.column("user").cast(pa.string()).to_pylist()  # a key must be text
                # No time zone but this very object will do.
                times = [time.replace(tzinfo=UTC) for time in batch.column("event_time").to_pylist()]
                yield list(zip(users, times, strict=True))

    def next_batch(self) -> list[tuple[str, datetime]]:
        return next(self._batches)  # StopIteration is how a source says that it is at its end

    def snapshot(self) -> None:
        return None


class Folder(FixedPartitionedSource[Any, None]):
    """A source of plays as one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        return [self.folder.name]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Plays:
        return Plays(self.folder)


class _Part(StatelessSinkPartition[Any]):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []

    def write_batch(self, items: list[dict[str, Any]]) -> None:
        self.rows.extend(items)

    def close(self) -> None:
        pq.write_table(pa.Table.from_pylist(self.rows, _SCHEMA), self.path)


class Results(DynamicSink[Any]):
    """A Parquet file for each worker."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Part:
        return _Part(self.out / f"part-{worker_index}.parquet")


def _fold(span: Span | None, time: datetime) -> Span:
    if span is None:
        return time, time
    first, last = span
    return (time, last) if time < first else (first, time) if time > last else span


def _merge(span: Span | None, other: Span | None) -> Span | None:
    if span is None or other is None:
        return span or other
    return min(span[0], other[0]), max(span[1], other[1])


def _length(item: tuple[str, tuple[int, Span]]) -> tuple[str, tuple[datetime, float]]:
    first, last = item[1][1]
    end = last + _GAP
    return "all", (end - timedelta(microseconds=1), (end - first).total_seconds())


def _row(item: tuple[str, tuple[int, tuple[float, int]]]) -> dict[str, Any]:
    window, (total, count) = item[1]
    return {"window_start": _EPOCH + window * timedelta(minutes=2), "mean": total / count, "sessions": count}


def flow(data: Path, out: Path) -> Dataflow:
    flow = Dataflow("averages")
    lengths = []
    for source in ("mobile", "console"):
        plays = op.input(f"read_{source}", flow, Folder(data / source))
        clock = win.EventClock(ts_getter=lambda time: time, wait_for_system_duration=timedelta(seconds=5))
        spans = win.fold_window(
            f"sessions_{source}", plays, clock, win.SessionWindower(gap=_GAP), lambda: None, _fold, _merge
        )
        lengths.append(op.map(f"length_{source}", spans.down, _length))
    # No watermark comes from the steps before: with a wait of seconds most sessions would be late here.
    clock = win.EventClock(ts_getter=lambda length: length[0], wait_for_system_duration=timedelta(hours=3))
    windower = win.TumblingWindower(length=timedelta(minutes=2), align_to=_EPOCH)
    sums = win.fold_window(
        "average",
        op.merge("flatten", *lengths),
        clock,
        windower,
        lambda: (0.0, 0),
        lambda total, length: (total[0] + length[1], total[1] + 1),
        lambda total, other: (total[0] + other[0], total[1] + other[1]),
    )
    op.output("write", op.map("row", sums.down, _row), Results(out))
    return flow


if __name__ == "__main__":
    where = Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    cluster_main(flow(Path(sys.argv[1]), where), [], 0, worker_count_per_proc=int(sys.argv[3]))
