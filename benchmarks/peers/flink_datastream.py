"""The flagship job in PyFlink's DataStream API, with Python in Flink's own threads. The input is CSV.

python flink_datastream.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flink import write
from pyflink.common import Configuration, Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import AggregateFunction, ProcessAllWindowFunction, ProcessWindowFunction
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

_GAP = 60_000  # milliseconds


class EventTime(TimestampAssigner):
    """A play's first field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0])


class Span(AggregateFunction):
    """First and last play of a session.

    The result is the accumulator: where sessions merge, PyFlink's thread mode puts the one in place of the other.
    """

    def create_accumulator(self) -> tuple[int, int]:
        return sys.maxsize, -sys.maxsize

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return min(accumulator[0], value[0]), max(accumulator[1], value[0])

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return min(a[0], b[0]), max(a[1], b[1])


class Average(AggregateFunction):
    """Mean and number of lengths."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] / accumulator[1], accumulator[1]

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]


class Start(ProcessAllWindowFunction):
    """A result with the start of its window."""

    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        for mean, sessions in elements:
            yield context.window().start, mean, sessions


class Length(ProcessWindowFunction):
    """A session's length in seconds, without its key."""

    def process(self, key: int, context: Any, elements: Iterable[tuple[int, int]]) -> Iterable[float]:
        for first, last in elements:
            yield (last - first + _GAP) / 1000


def parsed(line: str) -> tuple[int, int]:
    """Time (milliseconds) and user of a play."""
    millis, user, _ = line.split(",")
    return int(millis), int(user)


def lengths(environment: StreamExecutionEnvironment, path: Path) -> DataStream:
    """The lengths in seconds of the sessions in one file of plays."""
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(path.absolute())
    ).build()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    return (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), path.stem)
        .map(parsed, Types.TUPLE([Types.LONG(), Types.LONG()]))
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))
        .key_by(lambda play: play[1], Types.LONG())
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(_GAP)))
        .aggregate(
            Span(),
            Length(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=Types.DOUBLE(),
        )
    )


def main(data: Path, out: Path, parallelism: int) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    mobile, console = (lengths(environment, data / f"{name}.csv") for name in ("mobile", "console"))
    averages = (
        mobile.union(console)
        .window_all(TumblingEventTimeWindows.of(Time.minutes(2)))
        .aggregate(
            Average(),
            Start(),
            accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.LONG()]),
            output_type=Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.LONG()]),
        )
    )
    with averages.execute_and_collect() as results:
        write(((row[0], row[1], row[2]) for row in results), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
