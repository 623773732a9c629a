"""Runs on Spark that read a topic are replayed, recorded and compared, from the messages that the broker still has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import InputGone
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

PLAYS = bl.json({"user": str, "at": int})


def pipeline(kafka: Cluster, topic: str, out: Path, *, size: str = "10s", **how: Any) -> bl.Pipeline:
    """Plays per user and window."""
    p = bl.Pipeline("plays")
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, **how)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    windows = plays.window_into(bl.FixedWindows(size)).group_by("user", name="counts")
    windows.aggregate(n=bl.count()).write("out", bl.Parquet(out))
    return p


def send(kafka: Cluster, topic: str, *times: int, partition: int = 0) -> None:
    kafka.send(topic, [{"user": user, "at": at} for at in times for user in ("ada", "bob")], partition)


def ran(kafka: Cluster, topic: str, folder: Path, spark: Any, **how: Any) -> str:
    """Three runs of a checkpoint on Spark, with new messages before each, and a new partition before the last."""
    checkpoint = str(folder / "checkpoint")
    for number, times in enumerate([(1, 3, 12), (14, 25), (33, 47)]):
        if number == 2:
            kafka.grow(topic, 2)
            send(kafka, topic, 31, 45, partition=1)
        send(kafka, topic, *times)
        runner = bl.SparkRunner(checkpoint, session=spark, shards=2, quiet=True)
        pipeline(kafka, topic, folder / "out", **how).run(runner)
    return checkpoint


@pytest.mark.spark
@pytest.mark.parametrize(
    "how", [{}, pytest.param({"max_offsets_per_trigger": 4, "headers": True}, marks=pytest.mark.long)]
)
def test_each_batch_is_replayed_recorded_and_compared(
    kafka: Cluster, spark: Any, tmp_path: Path, how: dict[str, Any]
) -> None:
    topic = kafka.topic()
    checkpoint = ran(kafka, topic, tmp_path, spark, **how)
    same = pipeline(kafka, topic, tmp_path / "out", **how)
    history = bl.observe.History.open(checkpoint)
    numbers = [record.batch for record in history.batches if record.sources["plays"].elements]
    assert len(numbers) >= 3
    for number in numbers:
        replayed = bl.replay(checkpoint, same, batch=number, session=spark)
        assert not replayed.comparison.differences, str(replayed)
    recording = bl.record(
        checkpoint, same, tmp_path / "recorded", batches=(numbers[0], numbers[-1]), session=spark
    )
    assert recording.numbers
    again = bl.replay(tmp_path / "recorded", same, batch=numbers[-1])
    assert not again.comparison.differences, str(again)
    other = pipeline(kafka, topic, tmp_path / "out", size="20s", **how)
    assert bl.diff(same, same, checkpoint).cause is None
    assert bl.diff(same, other, checkpoint).cause is not None


def test_what_the_broker_no_longer_has_is_told(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic()
    send(kafka, topic, 1, 3, 12)
    plays = pipeline(kafka, topic, tmp_path / "out")
    plays.run(bl.LocalRunner(checkpoint=tmp_path / "checkpoint", quiet=True))
    kafka.remove_before(topic, 0, 4)
    told = rf"batch 0 cannot be read again: source 'plays': topic '{topic}', .* no longer retains them$"
    with pytest.raises(InputGone, match=told):
        bl.replay(tmp_path / "checkpoint", plays, batch=0)


@pytest.mark.spark
def test_so_is_what_a_run_on_spark_has_read(kafka: Cluster, spark: Any, tmp_path: Path) -> None:
    topic = kafka.topic()
    checkpoint = ran(kafka, topic, tmp_path, spark)
    kafka.remove_before(topic, 0, 4)
    with pytest.raises(InputGone, match=topic):
        bl.replay(checkpoint, pipeline(kafka, topic, tmp_path / "out"), batch=0, session=spark)
