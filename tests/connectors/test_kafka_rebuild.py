"""A stage of a run on topics is rebuilt from the messages that the broker still has, and the run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import CheckpointError, InputGone
from beamlike.runtime.loop import journal
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

PLAYS = bl.json({"user": str, "at": int})


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pipeline(kafka: Cluster, topic: str, out: list[Any], *, size: str = "10s", **how: Any) -> bl.Pipeline:
    """Declares counts in windows of `size`, and a stage that does not change."""
    p = bl.Pipeline("plays")
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, max_offsets_per_trigger=4, **how)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    for name, width in {"counts": size, "minutes": "1m"}.items():
        windows = plays.window_into(bl.FixedWindows(width)).group_by("user", name=name)
        counted = windows.aggregate(n=bl.count()).with_columns(of=bl.lit(name), to=bl.window_end())
        counted.write(f"{name} out", bl.Callback(lambda rows, _: out.extend(_texts(rows))))
    return p


def _texts(rows: Any) -> list[str]:
    return [str(row) for row in rows.select("of", "to", "user", "n", "pane_timing").rows()]


def send(kafka: Cluster, topic: str, *times: int, partition: int = 0, **more: Any) -> None:
    """Sends a play of each user at each of these seconds."""
    users = ("ada", "bob")
    kafka.send(topic, [{"user": user, "at": at} for at in times for user in users], partition, **more)


def run(kafka: Cluster, topic: str, checkpoint: str, runner: Any = None, **how: Any) -> list[str]:
    """Runs the pipeline on the existing messages. Returns its panes."""
    out: list[str] = []
    made = bl.LocalRunner(checkpoint=checkpoint, quiet=True) if runner is None else runner(checkpoint)
    pipeline(kafka, topic, out, **how).run(made)
    return sorted(out)


def went_on(kafka: Cluster, topic: str, *times: int, size: str = "25s", **how: Any) -> None:
    """Checks that, after these plays, the rebuilt run and an unchanged one emit the same panes."""
    send(kafka, topic, *times)
    panes = run(kafka, topic, "after", size=size, **how)
    assert panes == run(kafka, topic, "always", size=size, **how)
    assert panes


def rebuilt(kafka: Cluster, topic: str, folder: str = "new", since: Any = None, **how: Any) -> Any:
    new = pipeline(kafka, topic, [], size="25s", **how)
    found = bl.rebuild("checkpoint", folder, new, stage="counts", since=since)
    bl.savepoint.restore(folder, "after", new, runner="local")
    return found


@pytest.mark.parametrize("known", [1, 2, 100])
def test_a_run_goes_on_as_if_the_stage_had_always_been_so(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", known)
    topic = kafka.topic(partitions=2)
    for at in (1, 12, 33):
        send(kafka, topic, at, at + 3)
        send(kafka, topic, at + 1, partition=1)
        run(kafka, topic, "checkpoint")
        run(kafka, topic, "always", size="25s")
    found = rebuilt(kafka, topic)
    assert found.read == {"plays": 18}
    told = "source 'plays': the batches of its earlier rows (" in str(found)
    assert told == (known < 100)
    send(kafka, topic, 66, partition=1)
    went_on(kafka, topic, 41, 62, 99)


def test_rows_before_since_are_left_out(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 1)
    topic, day = kafka.topic(), 86_400
    first = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    for number in range(4):
        at = first + number * day
        send(kafka, topic, at, at + 3, timestamp=at * 1000)
        run(kafka, topic, "checkpoint")
        run(kafka, topic, "always", size="25s")
    since = datetime(2026, 3, 4, tzinfo=UTC)
    found = rebuilt(kafka, topic, since=since)
    # The topic is read from one day before that time, as far as a row may be ahead of its message.
    assert found.read == {"plays": 12}
    assert found.before == {"counts": 4}
    went_on(kafka, topic, first + 4 * day, first + 5 * day)


def test_a_rebuilt_run_is_rebuilt_from_the_beginning_of_the_topic(kafka: Cluster) -> None:
    topic = kafka.topic()
    send(kafka, topic, 1, 12, 33)
    run(kafka, topic, "checkpoint")
    rebuilt(kafka, topic)
    send(kafka, topic, 41, 62)
    run(kafka, topic, "after", size="25s")
    run(kafka, topic, "always", size="40s")
    again = pipeline(kafka, topic, [], size="40s")
    found = bl.rebuild("after", "again", again, stage="counts")
    assert found.read == {"plays": 10}
    bl.savepoint.restore("again", "last", again, runner="local")
    send(kafka, topic, 77, 99)
    assert run(kafka, topic, "last", size="40s") == run(kafka, topic, "always", size="40s")


def test_what_the_topic_no_longer_has_is_told(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 1)
    topic = kafka.topic()
    for at in (1, 12, 33):
        send(kafka, topic, at, at + 3)
        run(kafka, topic, "checkpoint")
    kafka.remove_before(topic, 0, 6)
    found = rebuilt(kafka, topic)
    assert found.read == {"plays": 6}
    assert f"({topic}-0, 6 to 8)" in str(found)
    kafka.remove_before(topic, 0, 10)
    with pytest.raises(InputGone, match=f"topic '{topic}', partition 0: the messages from offset 8"):
        rebuilt(kafka, topic, "newer")


def test_where_latest_was_is_not_known_any_more(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 1)
    topic = kafka.topic()
    send(kafka, topic, 1)
    run(kafka, topic, "checkpoint", start="latest")
    run(kafka, topic, "always", start="latest", size="25s")
    for at in (12, 33):
        send(kafka, topic, at)
        run(kafka, topic, "checkpoint", start="latest")
        run(kafka, topic, "always", start="latest", size="25s")
    with pytest.raises(CheckpointError, match=r"source 'plays'.*start='latest'.*give since="):
        rebuilt(kafka, topic, start="latest")
    found = rebuilt(kafka, topic, since=10, start="latest")
    assert found.before == {"counts": 2}
    went_on(kafka, topic, 41, 62, start="latest")


@pytest.fixture
def forgetful(spark: Any) -> Iterator[Any]:
    """A session that keeps the logs of few batches."""
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1")
    yield spark
    spark.conf.unset("spark.sql.streaming.minBatchesToRetain")


def test_so_does_a_run_on_spark_that_has_forgotten_its_first_batches(kafka: Cluster, forgetful: Any) -> None:
    def on_spark(checkpoint: str) -> Any:
        return bl.SparkRunner(str(Path(checkpoint).absolute()), session=forgetful, shards=1)

    topic = kafka.topic()
    for at in (1, 12, 33):
        send(kafka, topic, at, at + 3)
        run(kafka, topic, "checkpoint", on_spark)
        run(kafka, topic, "always", size="25s")
    new = pipeline(kafka, topic, [], size="25s")
    found = bl.rebuild("checkpoint", "new", new, stage="counts", session=forgetful)
    assert found.read == {"plays": 12}
    bl.savepoint.restore("new", "after", new, runner="local")
    went_on(kafka, topic, 41, 62)
