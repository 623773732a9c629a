"""Operators with much state in Flink SQL, with RocksDB and incremental checkpoints, to a table that keeps no rows.

python flink_state.py DATA OUT PARALLELISM OPERATOR

DATA has state.parquet, warm.parquet and measured.parquet, with user, score, right and at, in whole microseconds. They
are moved to the folder that the job reads, each when Flink has nothing left to do for the one before it. The seconds
of CPU and of wall time for the last file are written to OUT/seconds.json. The job has no end, because Flink would spend
more time there than on all rows: it removes the state of a join row by row.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyflink.common import Configuration, JobStatus
from pyflink.table import EnvironmentSettings, TableEnvironment

TABLE = """
CREATE TABLE `rows` (`user` BIGINT, score BIGINT, `right` BOOLEAN, `at` BIGINT,
  ts AS TO_TIMESTAMP_LTZ(`at` / 1000, 3), proctime AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet', 'source.monitor-interval' = '500 ms')
"""
_JOIN = """
  SELECT l.`user`, l.score, r.`user` AS user_right, r.score AS score_right
  FROM (SELECT * FROM `rows` WHERE NOT `right`) l {how} JOIN (SELECT * FROM `rows` WHERE `right`) r
  ON l.`user` = r.`user` AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR
"""
QUERIES: Mapping[str, str] = {
    "early panes": """
      SELECT `at` / 86400000000 AS `day`, `user`, SUM(score) AS score, COUNT(*) AS `count`
      FROM `rows` GROUP BY `at` / 86400000000, `user`
    """,
    # By time of arrival, which is Flink's fastest: the first row of a key is emitted at once, and once.
    "dedup": """
      SELECT `user`, score, `at` FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY proctime ASC) AS place FROM `rows`)
      WHERE place = 1
    """,
    "distinct": "SELECT DISTINCT `user` FROM `rows`",
    "interval join": _JOIN.format(how="INNER"),
    "interval join, outer": _JOIN.format(how="FULL OUTER"),
}
SETTINGS: Mapping[str, str] = {
    "table.local-time-zone": "UTC",
    "table.exec.source.idle-timeout": "1 s",  # one of two readers has the file
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "state.backend.type": "rocksdb",
    "state.backend.rocksdb.use-bloom-filter": "true",
    "state.backend.rocksdb.timer-service.factory": "HEAP",
    "taskmanager.memory.managed.size": "2g",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.incremental": "true",
}
"""The settings of the community's runs of Nexmark, with memory for all of the state, and more frequent checkpoints."""

_QUIET = 3.0  # seconds without work, after which all rows are done
_LITTLE = 0.1  # of a core


def environment(out: Path, parallelism: int, operator: str) -> TableEnvironment:
    """Returns a streaming environment with its checkpoints below `out`."""
    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    configuration.set_string("parallelism.default", str(parallelism))
    configuration.set_string("execution.checkpointing.dir", (out / "checkpoints").absolute().as_uri())
    configuration.set_string("io.tmp.dirs", str((out / "tmp").absolute()))
    if operator == "dedup":
        configuration.set_string("table.exec.state.ttl", "1 h")
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    return TableEnvironment.create(settings.build())


def main(data: Path, out: Path, parallelism: int, operator: str) -> None:
    """Runs the operator, and measures the last of its files."""
    folder = out / "rows"
    folder.mkdir()
    (data / "state.parquet").rename(folder / "0.parquet")
    table = environment(out, parallelism, operator)
    table.execute_sql(TABLE.format(path=folder.absolute()))
    job = table.execute_sql(f"CREATE TABLE answer WITH ('connector' = 'blackhole') AS {QUERIES[operator]}")
    client = job.get_job_client()
    while client.get_job_status().result() != JobStatus.RUNNING:
        time.sleep(0.1)
    _settle()
    for number, name in enumerate(("warm", "measured"), start=1):
        wall, cpu = time.monotonic(), _cpu_of_java()
        (data / f"{name}.parquet").rename(folder / f"{number}.parquet")
        _settle()
        seconds = {"wall": time.monotonic() - wall - _QUIET, "cpu": _cpu_of_java() - cpu}
    (out / "seconds.json").write_text(json.dumps(seconds))
    client.cancel().result()


def _settle() -> None:
    """Waits until Flink has had no work for some seconds, which is longer than it takes to find a new file."""
    busy, used = time.monotonic(), _cpu_of_java()
    while time.monotonic() - busy < _QUIET:
        time.sleep(_QUIET / 6)
        if (now := _cpu_of_java()) - used > _LITTLE * _QUIET:
            busy, used = time.monotonic(), now


def _cpu_of_java() -> float:
    """Returns the CPU seconds of the child of this process in which Flink runs."""
    (java,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    # The second field, a name, may hold spaces and brackets: count the others from its end (proc(5)).
    fields = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
