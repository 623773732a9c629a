"""The flagship job in PyFlink's DataStream API, with Python in Flink's own threads.

Java reads the plays through Flink's table API, and assigns times and watermarks.

python flink_datastream.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flink import PLAYS, write
from pyflink.common import Configuration, Time, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.functions import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from pyflink.table import StreamTableEnvironment

_GAP = 60_000  # milliseconds


class First(ReduceFunction):
    """A play of a session: the length of the session is in its window."""

    def reduce(self, a: Any, b: Any) -> Any:
        return a


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
    """A session's length in seconds, without its key.

    It is that of the window: if sessions merge, PyFlink 2.3 loses the state of the merged one.
    """

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterable[float]:
        yield (context.window().end - context.window().start) / 1000


def lengths(table: StreamTableEnvironment, path: Path) -> DataStream:
    """Returns the lengths in seconds of the sessions in one file of plays."""
    table.execute_sql(PLAYS.format(name=path.stem, path=path.absolute()))
    plays = table.to_data_stream(table.sql_query(f"SELECT `user`, `event_time` FROM {path.stem}"))
    return (
        plays.key_by(lambda play: play[0], Types.LONG())
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(_GAP)))
        .reduce(First(), Length(), Types.DOUBLE())
    )


def main(data: Path, out: Path, parallelism: int) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    table = StreamTableEnvironment.create(environment)
    mobile, console = (lengths(table, data / f"{name}.parquet") for name in ("mobile", "console"))
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
