"""Counts by key and second, or of sessions, from a topic to another, in Flink SQL, its connector on HADOOP_CLASSPATH.

python flink_latency.py [--exactly-once] SERVERS INPUT OUTPUT CHECKPOINT windows|flagship

Every element may advance the watermark, which is checked every five milliseconds. Rows are visible when they are sent.
With exactly-once delivery a reader of committed messages waits for the next checkpoint, so there are ten in a second.
"""

from __future__ import annotations

import argparse

from pyflink.table import EnvironmentSettings, TableEnvironment

_SETTINGS = {
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "pipeline.auto-watermark-interval": "5 ms",
    "execution.buffer-timeout.interval": "0 ms",
    "pipeline.object-reuse": "true",
}
_SOURCE = """
CREATE TABLE elements (`key` BIGINT, `at` BIGINT, ts AS TO_TIMESTAMP_LTZ(`at`, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{source}',
  'scan.startup.mode' = 'latest-offset', 'format' = 'json', 'properties.fetch.max.wait.ms' = '5')
"""
_TARGET = """
CREATE TABLE panes (window_end BIGINT, {columns})
WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{target}', 'format' = 'json'
  {delivery})
"""
_EXACTLY_ONCE = """, 'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'panes',
  'properties.transaction.timeout.ms' = '60000'"""
_COUNTS = """
INSERT INTO panes SELECT UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000, `key`, COUNT(*)
FROM TABLE(TUMBLE(TABLE elements, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end, `key`
"""
_SESSIONS = """
CREATE TEMPORARY VIEW sessions AS
SELECT window_time AS ended, TIMESTAMPDIFF(SECOND, window_start, window_end) AS length
FROM TABLE(SESSION(TABLE elements PARTITION BY `key`, DESCRIPTOR(ts), INTERVAL '0.3' SECOND))
GROUP BY window_start, window_end, window_time, `key`
"""
_LENGTHS = """
INSERT INTO panes SELECT UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000, COUNT(*), AVG(CAST(length AS DOUBLE))
FROM TABLE(TUMBLE(TABLE sessions, DESCRIPTOR(ended), INTERVAL '1' SECOND)) GROUP BY window_start, window_end
"""
_JOBS = {
    "windows": ("`key` BIGINT, n BIGINT", [], _COUNTS),
    "flagship": ("n BIGINT, length DOUBLE", [_SESSIONS], _LENGTHS),
}


def main(given: argparse.Namespace) -> None:
    columns, views, insert = _JOBS[given.job]
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    interval = "100 ms" if given.exactly_once else "1 s"
    settings = {
        **_SETTINGS,
        "execution.checkpointing.dir": f"file://{given.checkpoint}",
        "execution.checkpointing.interval": interval,
    }
    for name, value in settings.items():
        table.get_config().set(name, value)
    table.execute_sql(_SOURCE.format(servers=given.servers, source=given.source))
    delivery = _EXACTLY_ONCE if given.exactly_once else ""
    target = _TARGET.format(servers=given.servers, target=given.target, columns=columns, delivery=delivery)
    table.execute_sql(target)
    for view in views:
        table.execute_sql(view)
    table.execute_sql(insert).wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--exactly-once", action="store_true")
    for name in ("servers", "source", "target", "checkpoint", "job"):
        parser.add_argument(name)
    main(parser.parse_args())
