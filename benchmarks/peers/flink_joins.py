"""An interval join, and one row of each key, in Flink SQL, to a table that keeps no rows.

python flink_joins.py DATA join|dedup SECONDS

DATA has left.parquet and right.parquet: k, v and at, in whole microseconds. The right row of a pair is at most SECONDS
after the left one: whole minutes, below a hundred.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

TABLE = """
CREATE TABLE {side} (k BIGINT, v DOUBLE, `at` BIGINT,
  ts AS TO_TIMESTAMP_LTZ(`at` / 1000, 3), proctime AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet')
"""
JOBS = {
    "join": """
      SELECT l.k, l.`at`, r.v, r.`at` AS at_right FROM `left` l JOIN `right` r ON l.k = r.k
      WHERE r.ts BETWEEN l.ts AND l.ts + INTERVAL '{minutes}' MINUTE
    """,
    # By time of arrival, which is Flink's fastest: the first row of a key is emitted at once, and once.
    "dedup": """
      SELECT k, v, `at` FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY proctime ASC) AS place FROM `left`)
      WHERE place = 1
    """,
}


def main(data: Path, job: str, seconds: int) -> None:
    """Runs the job to the end of its input."""
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = table.get_config()
    config.set("parallelism.default", "1").set("table.local-time-zone", "UTC")
    config.set("pipeline.object-reuse", "true").set("table.exec.state.ttl", f"{seconds} s")
    for side in ("left", "right"):
        path = (data / f"{side}.parquet").absolute()
        table.execute_sql(TABLE.format(side=f"`{side}`", path=path))
    query = JOBS[job].format(minutes=seconds // 60)
    table.execute_sql(f"CREATE TABLE answer WITH ('connector' = 'blackhole') AS {query}").wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
