"""Silent sensors in Bytewax: a stateful operator, because Bytewax notifies by system time only.

python bytewax_silence.py DATA OUT THREADS
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

_SILENCE = 600_000_000  # microseconds
_ROWS = 50_000  # of a batch of the source
_NEVER = timedelta(days=1)  # between two snapshots: nothing would keep them
_SCHEMA = pa.schema([("sensor", pa.string()), ("since", pa.timestamp("us", "UTC"))])


class Silence(op.StatefulBatchLogic[int, Any, int]):
    """Reports a silence at the next reading, because there are no timers of event time; readings are in order."""

    def __init__(self, since: int | None) -> None:
        self.since = since

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        told, since = [], self.since
        for at in values:
            if since is not None and at - since >= _SILENCE:
                told.append(since)
            since = at
        self.since = since
        return told, False

    def on_eof(self) -> tuple[list[int], bool]:
        return ([] if self.since is None else [self.since]), True

    def snapshot(self) -> int:
        assert self.since is not None
        return self.since


class Readings(StatefulSourcePartition[Any, None]):
    """The files, one after another."""

    def __init__(self, folder: Path) -> None:
        self._batches = self._read(folder)

    def _read(self, folder: Path) -> Iterator[list[tuple[str, int]]]:
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=["sensor", "at"]):
                times = batch.column("at").cast(pa.int64()).to_pylist()
                yield list(zip(batch.column("sensor").to_pylist(), times, strict=True))

    def next_batch(self) -> list[tuple[str, int]]:
        return next(self._batches)  # StopIteration marks the end of a source

    def snapshot(self) -> None:
        return None


class Folder(FixedPartitionedSource[Any, None]):
    """The readings as one partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        return [self.folder.name]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Readings:
        return Readings(self.folder)


class _Part(StatelessSinkPartition[Any]):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[tuple[str, int]] = []

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self.rows.extend(items)

    def close(self) -> None:
        sensors, since = zip(*self.rows, strict=True) if self.rows else ((), ())
        pq.write_table(
            pa.table([list(sensors), pa.array(since, pa.timestamp("us", "UTC"))], _SCHEMA), self.path
        )


class Results(DynamicSink[Any]):
    """A Parquet file for each worker."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Part:
        return _Part(self.out / f"part-{worker_index}.parquet")


def main(data: Path, out: Path, threads: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    flow = Dataflow("silence")
    heard = op.input("readings", flow, Folder(data / "readings"))
    op.output("write", op.stateful_batch("silence", heard, Silence), Results(out))
    cluster_main(flow, [], 0, epoch_interval=_NEVER, worker_count_per_proc=threads)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
