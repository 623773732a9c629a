"""Four queries of Nexmark in Apache Beam's Python SDK, on its default local runner.

echo DATA | BENCHMARK_TURNS=1 python beam_nexmark.py OUT PARALLELISM --query 1|2|5|11
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import Sessions, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from turns import turns

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
COLUMNS = {1: [name for name, _ in BID], 2: ["auction", "price"], 5: ["auction", "at"], 11: ["bidder", "at"]}


class Rows(beam.DoFn):
    """Emits the rows of a table."""

    def process(self, table: pa.Table) -> Iterable[dict[str, Any]]:
        return table.to_pylist()


class Timed(beam.DoFn):
    """Emits the ids of a table, with their event time."""

    def __init__(self, column: str) -> None:
        self.column = column

    def process(self, table: pa.Table) -> Iterator[TimestampedValue]:
        times = table.column("at").cast(pa.int64()).to_pylist()
        for value, time in zip(table.column(self.column).to_pylist(), times, strict=True):
            yield TimestampedValue(value, Timestamp(micros=time))


class Most(beam.CombineFn):
    """Computes the auctions with the most bids, and the number of these."""

    def create_accumulator(self) -> tuple[int, list[int]]:
        return 0, []

    def add_input(self, best: tuple[int, list[int]], counted: tuple[int, int]) -> tuple[int, list[int]]:
        return self.merge_accumulators([best, (counted[1], [counted[0]])])

    def merge_accumulators(self, parts: Iterable[tuple[int, list[int]]]) -> tuple[int, list[int]]:
        parts = list(parts)
        most = max(count for count, _ in parts)
        return most, [auction for count, auctions in parts if count == most for auction in auctions]

    def extract_output(self, best: tuple[int, list[int]]) -> tuple[int, list[int]]:
        return best


def bounds(window: Any) -> dict[str, Any]:
    """Returns the bounds of a window, as columns."""
    ends = {"window_start": window.start, "window_end": window.end}
    return {name: end.to_utc_datetime(has_tz=True) for name, end in ends.items()}


class Hot(beam.DoFn):
    """Emits a row for each of the auctions."""

    def process(
        self, best: tuple[int, list[int]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[dict[str, Any]]:
        for auction in best[1]:
            yield {**bounds(window), "auction": auction, "bids": best[0]}


class Session(beam.DoFn):
    """Emits a row for each session."""

    def process(
        self, counted: tuple[int, int], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[dict[str, Any]]:
        yield {**bounds(window), "bidder": counted[0], "bids": counted[1]}


def answer(query: int, tables: Any) -> Any:
    """Returns the rows of the query."""
    if query == 1:
        rows = tables | beam.ParDo(Rows())
        return rows | beam.Map(lambda bid: {**bid, "price": bid["price"] * 0.908})
    if query == 2:
        return tables | beam.ParDo(Rows()) | beam.Filter(lambda bid: bid["auction"] % 123 == 0)
    ids = tables | beam.ParDo(Timed("auction" if query == 5 else "bidder")).with_output_types(int)
    windows = SlidingWindows(10, 2) if query == 5 else Sessions(10)
    counts = ids | beam.WindowInto(windows) | beam.combiners.Count.PerElement()
    if query == 11:
        return counts | beam.ParDo(Session())
    return counts | beam.CombineGlobally(Most()).without_defaults() | beam.ParDo(Hot())


def main(data: Path, out: Path, query: int) -> None:
    """Runs the query over all bids."""
    with beam.Pipeline(options=PipelineOptions([])) as pipeline:
        bids = pipeline | beam.io.ReadFromParquetBatched(
            str(data / "bids" / "*.parquet"), columns=COLUMNS[query]
        )
        rows = answer(query, bids)
        rows | beam.io.WriteToParquet(str(out / "answer"), SCHEMAS[query], file_name_suffix=".parquet")


if __name__ == "__main__":
    for folder in turns():
        main(folder, Path(sys.argv[1]), int(sys.argv[sys.argv.index("--query") + 1]))
