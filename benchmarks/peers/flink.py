"""The code that the two Flink jobs share: the plays as a table, and the output of results. Not a script."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_SCHEMA = pa.schema(
    [("window_start", pa.timestamp("us", "UTC")), ("mean", pa.float64()), ("sessions", pa.int64())]
)

PLAYS = """
CREATE TABLE {name} (
  `millis` BIGINT, `user` BIGINT, `score` INT,
  `event_time` AS TO_TIMESTAMP_LTZ(`millis`, 3),
  WATERMARK FOR `event_time` AS `event_time` - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""


def write(rows: Iterable[tuple[int, float, int]], out: Path) -> None:
    """Writes rows of window start (milliseconds), mean and sessions to a Parquet file below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    starts, means, sessions = zip(*rows, strict=True)
    times = [datetime.fromtimestamp(start / 1000, UTC) for start in starts]
    pq.write_table(pa.table([times, means, sessions], _SCHEMA), out / "averages.parquet")
