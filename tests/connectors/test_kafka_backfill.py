"""Files of the past and a topic in one pipeline, which moves between the runners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

SCHEMA = {"user": str, "at": int}


def pipeline(kafka: Cluster, topic: str, out: bl.Memory) -> bl.Pipeline:
    """Declares counts of plays in ten seconds, of files and a topic together."""
    p = bl.Pipeline("plays")
    how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    past = p.read("past", bl.Parquet(Path("past").absolute(), SCHEMA, complete=True), **how)
    live = p.read("live", bl.Kafka(kafka.servers, topic, value=bl.json(SCHEMA)), **how)
    both = bl.flatten(past, live.select(*SCHEMA)).window_into(bl.FixedWindows("10s"))
    both.group_by("user", name="counts").aggregate(n=bl.count()).write("out", out)
    return p


def run(kafka: Cluster, topic: str, runner: Any) -> list[tuple[int, int]]:
    """Runs the pipeline on the existing input. Returns the ends of windows (s) and their counts."""
    out = bl.Memory()
    done = pipeline(kafka, topic, out).run(runner)
    assert done.batches[-1].sources["past"].over
    assert not done.batches[-1].sources["live"].over
    return out.frame().select(pl.col("window_end").dt.epoch("s"), "n").sort("window_end").rows()


def send(kafka: Cluster, topic: str, *times: int) -> None:
    kafka.send(topic, [{"user": "ada", "at": at} for at in times])


def test_a_backfill_on_spark_goes_on_live_in_process(
    kafka: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic = kafka.topic()
    Path("past").mkdir()
    pl.DataFrame({"user": ["ada"] * 4, "at": [1, 5, 12, 23]}).write_parquet("past/1.parquet")
    send(kafka, topic, 24, 31)
    on_spark = bl.SparkRunner(str(tmp_path / "spark"), session=spark, shards=1)
    here = run(kafka, topic, bl.LocalRunner(checkpoint="here"))
    assert run(kafka, topic, on_spark) == here == [(10, 2), (20, 1), (30, 2)]
    send(kafka, topic, 35, 42)
    bl.savepoint.save("spark", "saved", session=spark)
    bl.savepoint.restore("saved", "moved", pipeline(kafka, topic, bl.Memory()), runner="local")
    assert run(kafka, topic, bl.LocalRunner(checkpoint="moved")) == [(40, 2)]
    assert run(kafka, topic, bl.LocalRunner(checkpoint="here")) == [(40, 2)]
