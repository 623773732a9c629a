"""Files of the past and a topic in one pipeline, which moves between the runners."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
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


def of_topics(kafka: Cluster, past: str, live: str, out: bl.Memory, **end: Any) -> bl.Pipeline:
    """The plays of ten seconds each, of a topic that ends and one that goes on."""
    p = bl.Pipeline("plays")
    how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    first = p.read("past", bl.Kafka(kafka.servers, past, value=bl.json(SCHEMA), **end), **how)
    then = p.read("live", bl.Kafka(kafka.servers, live, value=bl.json(SCHEMA)), **how)
    both = bl.flatten(first.select(*SCHEMA), then.select(*SCHEMA)).window_into(bl.FixedWindows("10s"))
    both.group_by("user", name="counts").aggregate(n=bl.count()).write("out", out)
    return p


def panes(out: bl.Memory) -> list[tuple[int, int]]:
    return out.frame().select(pl.col("window_end").dt.epoch("s"), "n").sort("window_end").rows()


@pytest.mark.parametrize("by_time", [False, True])
def test_a_topic_is_over_at_its_end(kafka: Cluster, tmp_path: Path, by_time: bool) -> None:
    past, live = kafka.topic(), kafka.topic()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for at, sent in ((1, 0), (5, 1), (12, 2), (99, 3)):  # the last one is after the end
        seconds = 1_000 * (int(noon.timestamp()) + sent)
        kafka.send(past, [{"user": "ada", "at": at}], timestamp=seconds)
    end: dict[str, Any] = {"end": noon + timedelta(seconds=3) if by_time else {0: 3}}
    send(kafka, live, 25)
    runner = bl.LocalRunner(checkpoint=tmp_path / "checkpoint")
    run = of_topics(kafka, past, live, out := bl.Memory(), **end).run(runner)
    assert panes(out) == [(10, 2), (20, 1)]
    assert [run.batches[-1].sources[name].over for name in ("past", "live")] == [True, False]
    send(kafka, live, 31)
    of_topics(kafka, past, live, out := bl.Memory(), **end).run(runner)
    assert panes(out) == [(30, 1)]
    with pytest.raises(bl.CheckpointError, match="source 'past' is over in this checkpoint"):
        of_topics(kafka, past, live, bl.Memory()).run(runner)


def test_a_topic_is_not_over_as_long_as_messages_before_its_end_may_come(
    kafka: Cluster, tmp_path: Path
) -> None:
    past, live = kafka.topic(), kafka.topic()
    send(kafka, past, 1, 12)
    send(kafka, live, 25)
    runner = bl.LocalRunner(checkpoint=tmp_path / "checkpoint")
    for end in ({"end": "latest"}, {"end": datetime.now(UTC) + timedelta(days=1)}):
        run = of_topics(kafka, past, live, bl.Memory(), **end).run(runner)
        assert run.last is not None
        assert not run.last.sources["past"].over
    send(kafka, past, 14)
    of_topics(kafka, past, live, out := bl.Memory(), end={0: 3}).run(runner)
    assert panes(out) == [(20, 2)]


def test_a_run_with_an_interval_ends_at_the_end_of_its_topic(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [{"user": "ada", "at": at} for at in (1, 12)])
    p = bl.Pipeline("plays")
    how: Any = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    plays = p.read("plays", bl.Kafka(kafka.servers, topic, value=bl.json(SCHEMA), end={0: 2, 1: 0}), **how)
    counts = plays.window_into(bl.FixedWindows("10s")).aggregate(n=bl.count())
    counts.write("out", out := bl.Memory())
    p.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", trigger="1 second"))
    assert panes(out) == [(10, 1), (20, 1)]


@pytest.mark.spark
def test_a_topic_that_is_over_moves_to_spark(kafka: Cluster, tmp_path: Path, spark: Any) -> None:
    past, live = kafka.topic(), kafka.topic()
    send(kafka, past, 1, 12)
    send(kafka, live, 25)
    here, there, saved = (str(tmp_path / name) for name in ("here", "there", "saved"))
    of_topics(kafka, past, live, bl.Memory(), end={0: 2}).run(bl.LocalRunner(checkpoint=here))
    bl.savepoint.save(here, saved)
    moved = of_topics(kafka, past, live, out := bl.Memory(), end={0: 2})
    bl.savepoint.restore(saved, there, moved, runner="spark", session=spark)
    send(kafka, live, 31)
    moved.run(bl.SparkRunner(there, session=spark, shards=1))
    assert panes(out) == [(30, 1)]
