"""Silent sensors in PyFlink's DataStream API: a KeyedProcessFunction, with Python in Flink's own threads.

Java reads the readings through Flink's table API, and assigns times and watermarks.

python flink_silence.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyflink.common import Configuration, Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

_SILENCE = 600_000  # milliseconds
_SCHEMA = pa.schema([("sensor", pa.string()), ("since", pa.timestamp("us", "UTC"))])
_READINGS = """
CREATE TABLE readings (
  `sensor` STRING, `millis` BIGINT,
  `at` AS TO_TIMESTAMP_LTZ(`millis`, 3),
  WATERMARK FOR `at` AS `at` - INTERVAL '30' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""


class Silence(KeyedProcessFunction):
    """Reports that a sensor has been silent for ten minutes."""

    def open(self, runtime_context: Any) -> None:
        self.since = runtime_context.get_state(ValueStateDescriptor("since", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        timers, before = ctx.timer_service(), self.since.value()
        if before is not None:
            timers.delete_event_time_timer(before + _SILENCE)
            # The readings of a sensor arrive in order, and this one before the watermark: the timer has not fired.
            if ctx.timestamp() >= before + _SILENCE:
                yield ctx.get_current_key(), before
        self.since.update(ctx.timestamp())
        timers.register_event_time_timer(ctx.timestamp() + _SILENCE)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int]]:
        self.since.clear()
        yield ctx.get_current_key(), timestamp - _SILENCE


def main(data: Path, out: Path, parallelism: int) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(parallelism)
    table = StreamTableEnvironment.create(environment)
    table.execute_sql(_READINGS.format(path=(data / "readings.parquet").absolute()))
    heard = table.to_data_stream(table.sql_query("SELECT `sensor`, `at` FROM readings"))
    told = heard.key_by(lambda row: row[0], Types.STRING()).process(
        Silence(), Types.TUPLE([Types.STRING(), Types.LONG()])
    )
    out.mkdir(parents=True, exist_ok=True)
    with told.execute_and_collect() as results:
        sensors, millis = zip(*results, strict=True)
    since = [datetime.fromtimestamp(each / 1000, UTC) for each in millis]
    pq.write_table(pa.table([list(sensors), since], _SCHEMA), out / "silences.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
