"""The flagship job in Flink SQL, from Python, with Flink's Parquet reader on HADOOP_CLASSPATH.

python flink_sql.py DATA OUT PARALLELISM
"""

from __future__ import annotations

import sys
from pathlib import Path

from flink import PLAYS, write
from pyflink.table import EnvironmentSettings, TableEnvironment

# A session's length is that of its window: aggregates of its plays would cost a quarter more.
_SESSIONS = """
CREATE TEMPORARY VIEW sessions_of_{name} AS
SELECT window_time, TIMESTAMPDIFF(SECOND, window_start, window_end) * 1000
  + MOD(EXTRACT(MILLISECOND FROM window_end) - EXTRACT(MILLISECOND FROM window_start) + 1000, 1000) AS millis
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
    table.get_config().set("pipeline.object-reuse", "true")
    for name in ("mobile", "console"):
        table.execute_sql(PLAYS.format(name=name, path=(data / f"{name}.parquet").absolute()))
        table.execute_sql(_SESSIONS.format(name=name))
    table.execute_sql(
        "CREATE TEMPORARY VIEW lengths AS SELECT window_time, millis FROM sessions_of_mobile"
        " UNION ALL SELECT window_time, millis FROM sessions_of_console"
    )
    with table.execute_sql(_AVERAGES).collect() as results:
        write(((row[0], float(row[1]), row[2]) for row in results), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
