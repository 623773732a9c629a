"""Four queries of Nexmark in Bytewax, with its windows.

echo DATA | BENCHMARK_TURNS=1 python bytewax_nexmark.py OUT THREADS --query 1|2|5|11
"""

from __future__ import annotations

import argparse
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
from bytewax.outputs import DynamicSink
from bytewax.testing import cluster_main
from bytewax_job import Replay, Results, _moment, _Part
from turns import turns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 50_000  # of a batch of the source
_NEVER = timedelta(days=1)  # between two snapshots: nothing would keep them
_WAIT = timedelta(seconds=1)
TIME = pa.timestamp("us", "UTC")
BID = [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64())]
BID += [("channel", pa.string()), ("url", pa.string()), ("at", TIME)]
WINDOW = [("window_start", TIME), ("window_end", TIME)]
SCHEMAS = {
    1: pa.schema([(name, pa.float64() if name == "price" else kind) for name, kind in BID]),
    2: pa.schema([("auction", pa.int64()), ("price", pa.int64())]),
    5: pa.schema([*WINDOW, ("auction", pa.int64()), ("bids", pa.int64())]),
    11: pa.schema([*WINDOW, ("bidder", pa.int64()), ("bids", pa.int64())]),
}


class Bids(StatefulSourcePartition[Any, None]):
    """Reads the files of bids in order: rows, or pairs of an id, which is a key, and the time (us)."""

    def __init__(self, folder: Path, query: int) -> None:
        self._batches = self._pairs(folder, query) if query in (5, 11) else self._rows(folder)

    def _rows(self, folder: Path) -> Iterator[list[dict[str, Any]]]:
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS):
                yield batch.to_pylist()

    def _pairs(self, folder: Path, query: int) -> Iterator[list[tuple[str, int]]]:
        column = "auction" if query == 5 else "bidder"
        for path in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS, columns=[column, "at"]):
                ids = batch.column(column).cast(pa.string()).to_pylist()  # a key must be text
                yield list(zip(ids, batch.column("at").cast(pa.int64()).to_pylist(), strict=True))

    def next_batch(self) -> list[Any]:
        return next(self._batches)  # StopIteration marks the end of a source

    def snapshot(self) -> None:
        return None


class Folder(FixedPartitionedSource[Any, None]):
    """All bids as one partition."""

    def __init__(self, folder: Path, query: int) -> None:
        self.folder, self.query = folder, query

    def list_parts(self) -> list[str]:
        return ["bids"]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> Bids:
        return Bids(self.folder, self.query)


class _Rows(_Part):
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__(path)
        self.schema = schema

    def close(self) -> None:
        pq.write_table(pa.Table.from_pylist(self.rows, self.schema), self.path)


class Answer(Results):
    """A Parquet file for each worker, with the columns of the query."""

    def __init__(self, out: Path, schema: pa.Schema) -> None:
        super().__init__(out)
        self.schema = schema

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Rows:
        return _Rows(self.out / f"part-{worker_index}.parquet", self.schema)


def counts(stream: Any, windower: win.Windower[Any]) -> Any:
    """Returns (key, (number of the window, count)), and (key, (number, bounds))."""
    clock = Replay(_moment, _WAIT)
    return win.fold_window(
        "count", stream, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b, ordered=False
    )


def hot(stream: Any) -> Any:
    """Returns the auctions with the most bids of each window."""
    windower = win.SlidingWindower(length=timedelta(seconds=10), offset=timedelta(seconds=2), align_to=_EPOCH)
    found = counts(stream, windower)
    of_window = op.map("of window", found.down, lambda it: (str(it[1][0]), (int(it[0]), it[1][1])))
    best = op.fold_final("most", of_window, list, _most)
    return op.flat_map("rows", best, _hot_rows)


def _most(best: list[tuple[int, int]], counted: tuple[int, int]) -> list[tuple[int, int]]:
    if not best or counted[1] > best[0][1]:
        return [counted]
    return [*best, counted] if counted[1] == best[0][1] else best


def _hot_rows(item: tuple[str, list[tuple[int, int]]]) -> list[dict[str, Any]]:
    start = _EPOCH + int(item[0]) * timedelta(seconds=2)
    bounds = {"window_start": start, "window_end": start + timedelta(seconds=10)}
    return [{**bounds, "auction": auction, "bids": bids} for auction, bids in item[1]]


def sessions(stream: Any) -> Any:
    """Returns the bids of each session."""
    found = counts(stream, win.SessionWindower(gap=timedelta(seconds=10)))
    key = lambda it: (f"{it[0]} {it[1][0]}", it[1][1])  # noqa: E731
    both = op.join("both", op.map("counted", found.down, key), op.map("bounds", found.meta, key))
    return op.map("row", both, _session_row)


def _session_row(item: tuple[str, tuple[int, win.WindowMetadata]]) -> dict[str, Any]:
    bids, window = item[1]
    # Its window ends with the last bid.
    end = window.close_time + timedelta(seconds=10)
    return {
        "window_start": window.open_time,
        "window_end": end,
        "bidder": int(item[0].split()[0]),
        "bids": bids,
    }


def flow(data: Path, out: Path, query: int) -> Dataflow:
    """Declares the query from the bids to its answer."""
    flow = Dataflow("nexmark")
    bids = op.input("bids", flow, Folder(data / "bids", query))
    match query:
        case 1:
            rows = op.map("euros", bids, lambda bid: {**bid, "price": bid["price"] * 0.908})
        case 2:
            chosen = op.filter("some", bids, lambda bid: bid["auction"] % 123 == 0)
            rows = op.map("row", chosen, lambda bid: {"auction": bid["auction"], "price": bid["price"]})
        case 5:
            rows = hot(bids)
        case _:
            rows = sessions(bids)
    sink: DynamicSink[Any] = Answer(out, SCHEMAS[query])
    op.output("write", rows, sink)
    return flow


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("threads", type=int)
    parser.add_argument("--query", type=int, choices=SCHEMAS, required=True)
    given = parser.parse_args()
    for folder in turns():
        given.out.mkdir(parents=True, exist_ok=True)
        job = flow(folder, given.out, given.query)
        cluster_main(job, [], 0, epoch_interval=_NEVER, worker_count_per_proc=given.threads)
