"""The flagship job in Flink SQL, from Python. Its wheel reads no Parquet: the input is CSV.

python flink_sql.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path

from flink import write
from pyflink.table import EnvironmentSettings, TableEnvironment

_PLAYS = """
CREATE TABLE {name} (
  `millis` BIGINT, `user` BIGINT, `score` INT,
  `event_time` AS TO_TIMESTAMP_LTZ(`millis`, 3),
  WATERMARK FOR `event_time` AS `event_time` - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""
_SESSIONS = """
CREATE TEMPORARY VIEW sessions_of_{name} AS
SELECT window_time, MAX(`millis`) - MIN(`millis`) + 60000 AS millis
FROM TABLE(SESSION(TABLE {name} PARTITION BY `user`, DESCRIPTOR(`event_time`), INTERVAL '1' MINUTE))
GROUP BY `user`, window_start, window_end, window_time
"""
_AVERAGES = """
SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) * 1000, AVG(CAST(millis AS DOUBLE)) / 1000, COUNT(*)
FROM TABLE(TUMBLE(TABLE lengths, DESCRIPTOR(window_time), INTERVAL '2' MINUTE))
GROUP BY window_start, window_end
"""


def main(data: Path, out: Path, parallelism: int) -> None:
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table.get_config().set("parallelism.default", str(parallelism)).set("table.local-time-zone", "UTC")
    for name in ("mobile", "console"):
        table.execute_sql(_PLAYS.format(name=name, path=(data / f"{name}.csv").absolute()))
        table.execute_sql(_SESSIONS.format(name=name))
    table.execute_sql(
        "CREATE TEMPORARY VIEW lengths AS SELECT window_time, millis FROM sessions_of_mobile"
        " UNION ALL SELECT window_time, millis FROM sessions_of_console"
    )
    with table.execute_sql(_AVERAGES).collect() as results:
        write(((row[0], float(row[1]), row[2]) for row in results), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
