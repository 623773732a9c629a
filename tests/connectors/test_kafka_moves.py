"""A broker with authentication, and a run on its topics that moves between the runners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.errors import SourceError
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

PLAYS = bl.json({"user": str, "at": int})


def sessions(kafka: Cluster, plays: str, out: str, mechanism: str) -> bl.Pipeline:
    """Declares sessions of users from one topic into another, both at the secured address."""
    p, options = bl.Pipeline("sessions"), kafka.options(mechanism)
    source = bl.Kafka(kafka.secured, plays, value=PLAYS, options=options)
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    found = read.window_into(bl.Sessions("1m")).group_by("user", name="sessions").aggregate(n=bl.count())
    value = bl.json({"user": str, "n": int})
    found.write("out", bl.KafkaSink(kafka.secured, out, key="user", value=value, options=options))
    return p


def written(kafka: Cluster, topic: str) -> list[tuple[str, int]]:
    """Returns the sessions in a topic."""
    rows = bl.Pipeline("p").read("out", bl.Kafka(kafka.servers, topic, value=str)).collect()
    return sorted(tuple(json.loads(value).values()) for value in rows["value"])


def send(kafka: Cluster, topic: str, *times: int) -> None:
    """Sends a play of each user at each of these seconds."""
    kafka.send(topic, [{"user": user, "at": at} for at in times for user in ("ada", "bob")])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_source_and_sink_in_process_reach_a_broker_that_asks_who_is_there(
    kafka: Cluster, mechanism: str
) -> None:
    plays, out = kafka.topic(), kafka.topic()
    send(kafka, plays, 0, 10)
    sessions(kafka, plays, out, mechanism).run()
    assert written(kafka, out) == [("ada", 2), ("bob", 2)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"sasl.password": "byron-7"}, "authentication failed"),
        ({"ssl.ca.location": "probe"}, "certificate verify failed"),  # that of this machine's authorities
    ],
)
def test_who_is_refused_and_who_refuses_the_broker_is_told_why(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], why: str
) -> None:
    monkeypatch.setattr("beamlike.io.kafka.contact._FIRST", 5.0)
    options = {**kafka.options("PLAIN"), **changed}
    source = bl.Kafka(kafka.secured, kafka.topic(), value=PLAYS, options=options)
    with pytest.raises(SourceError, match=f"(?i){why}") as raised:
        bl.Pipeline("p").read("plays", source).collect()
    assert "byron-7" not in str(raised.value)


@pytest.mark.spark
def test_a_run_goes_from_one_process_to_spark_and_back_by_savepoints(
    kafka: Cluster, spark: Any, tmp_path: Path
) -> None:
    plays, out = kafka.topic(2), kafka.topic()
    p = sessions(kafka, plays, out, "SCRAM-SHA-512")
    checkpoints = [str(tmp_path / name) for name in ("one", "two", "three")]
    moved = [str(tmp_path / name) for name in ("first move", "second move")]

    send(kafka, plays, 0, 10)
    p.run(bl.LocalRunner(checkpoint=checkpoints[0]))
    bl.savepoint.save(checkpoints[0], moved[0])

    bl.savepoint.restore(moved[0], checkpoints[1], p.plan(), shards=2, session=spark)
    send(kafka, plays, 20, 200)
    p.run(bl.SparkRunner(checkpoints[1], session=spark))
    assert written(kafka, out) == [("ada", 3), ("bob", 3)]
    bl.savepoint.save(checkpoints[1], moved[1], session=spark)

    bl.savepoint.restore(moved[1], checkpoints[2], p.plan(), runner="local")
    send(kafka, plays, 210)
    p.run(bl.LocalRunner(checkpoint=checkpoints[2], drain=True))
    assert written(kafka, out) == [("ada", 2), ("ada", 3), ("bob", 2), ("bob", 3)]
