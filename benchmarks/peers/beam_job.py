"""The flagship job in Apache Beam's Python SDK, on its default local runner.

python beam_job.py DATA OUT
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

_SCHEMA = pa.schema(
    [("window_start", pa.timestamp("us", "UTC")), ("mean", pa.float64()), ("sessions", pa.int64())]
)


class Length(beam.DoFn):
    """Emits the length in seconds of the session of a key's result."""

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[float]:
        yield (window.end.micros - window.start.micros) / 1e6


class Average(beam.CombineFn):
    """Computes mean and number."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add_input(self, accumulator: tuple[float, int], length: float) -> tuple[float, int]:
        return accumulator[0] + length, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] / accumulator[1], accumulator[1]


class Row(beam.DoFn):
    """Adds the start of its window to a result."""

    def process(
        self, element: tuple[float, int], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[dict[str, Any]]:
        yield {
            "window_start": window.start.to_utc_datetime(has_tz=True),
            "mean": element[0],
            "sessions": element[1],
        }


class Plays(beam.DoFn):
    """Emits the plays of a table by user, with their event time."""

    def process(self, element: pa.Table) -> Iterator[TimestampedValue]:
        times = element.column("event_time").cast(pa.int64()).to_pylist()
        for user, time in zip(element.column("user").to_pylist(), times, strict=True):
            yield TimestampedValue((user, 1), Timestamp(micros=time))


def main(data: Path, out: Path) -> None:
    columns = ["user", "event_time"]
    with beam.Pipeline(options=PipelineOptions([])) as pipeline:
        lengths = [
            pipeline
            | f"read {source}"
            >> beam.io.ReadFromParquetBatched(str(data / source / "*.parquet"), columns=columns)
            | f"plays of {source}" >> beam.ParDo(Plays()).with_output_types(tuple[int, int])
            | f"sessions of {source}" >> beam.WindowInto(Sessions(60))
            | f"per user of {source}" >> beam.GroupByKey()
            | f"length of {source}" >> beam.ParDo(Length())
            for source in ("mobile", "console")
        ]
        (
            lengths
            | beam.Flatten()
            | beam.WindowInto(
                FixedWindows(120), trigger=AfterWatermark(), accumulation_mode=AccumulationMode.DISCARDING
            )
            | beam.CombineGlobally(Average()).without_defaults()
            | beam.ParDo(Row())
            | beam.io.WriteToParquet(str(out / "averages"), _SCHEMA, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
