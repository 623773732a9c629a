"""Topics as a source, in process and on Spark."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import DataLoss, SourceError
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors

PLAYS = bl.json({"user": str, "at": int})


def play(at: int, user: str = "ada") -> dict[str, Any]:
    return {"user": user, "at": at}


def counted(source: bl.Kafka, strategy: Any = None) -> tuple[bl.Pipeline, bl.Memory, bl.Memory]:
    """Declares plays per minute and user, with a sink of dead letters."""
    p = bl.Pipeline("plays", max_dead_letters=None)
    watermark = strategy or bl.BoundedOutOfOrderness("5s")
    read = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    counts, letters = bl.Memory(), bl.Memory()
    read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).write("counts", counts)
    read.dead_letters().write("letters", letters)
    return p, counts, letters


def test_each_message_is_a_row_with_what_kafka_says_of_it(kafka: Cluster) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [play(1), play(2, "bob")], partition=1, key="k", timestamp=1_000, headers=[("h", b"x")])
    kafka.send(topic, [play(3)])
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, key=str, headers=True)
    rows = bl.Pipeline("p").read("plays", source).collect()
    assert rows.schema == pl.Schema(source.schema())
    assert rows.select("user", "at", "key", "kafka_topic", "kafka_partition", "kafka_offset").rows() == [
        ("ada", 3, None, topic, 0, 0),
        ("ada", 1, "k", topic, 1, 0),
        ("bob", 2, "k", topic, 1, 1),
    ]
    assert rows["kafka_timestamp"][1:].to_list() == 2 * [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
    assert rows["kafka_timestamp_type"].to_list() == 3 * ["create"]
    assert rows["kafka_headers"].to_list() == [
        None,
        [{"key": "h", "value": b"x"}],
        [{"key": "h", "value": b"x"}],
    ]


def test_what_is_none_of_the_format_is_a_dead_letter_that_says_where_it_was(kafka: Cluster) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [play(1), b"{", b'{"at": "soon"}', play(9), b""])
    kafka.send(topic, [b"\xff"], partition=1, key=b"\xfe")
    p, counts, letters = counted(bl.Kafka(kafka.servers, topic, value=PLAYS, key=str))
    p.run()
    assert counts.frame()["n"].to_list() == [2]
    assert letters.frame()["error"].to_list() == [
        f"topic '{topic}', partition 0, offset 1: its value is not a JSON object",
        f"topic '{topic}', partition 0, offset 2: its value is column 'at' is \"soon\", expected Int64",
        f"topic '{topic}', partition 0, offset 4: its value is not a JSON object",
        f"topic '{topic}', partition 1, offset 0: its key is not UTF-8; its value is not UTF-8: it has the byte "
        "0xff, and JSON is UTF-8; is it latin-1?",
    ]
    row = letters.frame()["row"].str.json_decode(pl.Struct({"kafka_offset": pl.Int64, "value": pl.String}))
    assert row.to_list()[:2] == [
        {"kafka_offset": 1, "value": "{"},
        {"kafka_offset": 2, "value": '{"at": "soon"}'},
    ]


def test_a_tombstone_is_a_row_of_nulls(kafka: Cluster) -> None:
    topic = kafka.topic()
    kafka.send(topic, [play(1), None, play(2)], key=b"k")  # type: ignore[list-item]
    rows = bl.Pipeline("p").read("plays", bl.Kafka(kafka.servers, topic, value=PLAYS, key=bytes)).collect()
    assert rows.select("user", "at", "key").rows() == [("ada", 1, b"k"), (None, None, b"k"), ("ada", 2, b"k")]


def test_the_watermark_is_the_least_of_the_partitions(kafka: Cluster) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [play(10 * n) for n in range(1, 21)])
    kafka.send(topic, [play(10 * n, "bob") for n in range(1, 5)], partition=1)
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, max_offsets_per_trigger=12)
    p, counts, _ = counted(source, bl.MonotonousTimestamps())
    run = p.run()
    seconds = [batch.sources["plays"].watermark / 1e6 for batch in run.batches[:-1]]
    assert seconds == [20, 40]  # of batches of 10 and 2 messages
    assert counts.frame().sort("window_start", "user").select("user", "n").rows() == [
        *[("ada", 5), ("bob", 4)],
        *[("ada", 6), ("ada", 6), ("ada", 3)],
    ]
    assert not any(stage.dropped for batch in run.batches for stage in batch.stages.values())


def test_a_run_begins_and_ends_where_it_is_told(kafka: Cluster) -> None:
    topic = kafka.topic()
    for at in range(6):
        kafka.send(topic, [play(at)], timestamp=1_000 * (1 + at))  # 0 is now

    def read(**choices: Any) -> list[int]:
        source = bl.Kafka(kafka.servers, topic, value=PLAYS, **choices)
        return bl.Pipeline("p").read("plays", source).collect()["at"].to_list()

    third = datetime.fromtimestamp(4, UTC)
    assert read() == [0, 1, 2, 3, 4, 5]
    assert read(start={0: 4}) == [4, 5]
    assert read(start={topic: {0: 1}}, end={topic: {0: 3}}) == [1, 2]
    assert read(start=third) == [3, 4, 5]
    assert read(end=third) == [0, 1, 2]
    assert read(start="latest") == []
    assert read(start=datetime(2030, 1, 1)) == []


def test_what_retention_has_removed_is_an_error_or_skipped(
    kafka: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.send(topic, [play(at) for at in range(5)])
    kafka.remove_before(topic, 0, 3)
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, start={0: 1})
    with pytest.raises(
        DataLoss, match=rf"'{topic}', partition 0: the messages from offset 1 to before 3 are"
    ):
        bl.Pipeline("p").read("plays", source).collect()
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, start={0: 1}, on_data_loss="skip")
    assert bl.Pipeline("p").read("plays", source).collect()["at"].to_list() == [3, 4]
    assert "from offset 1 to before 3 are gone" in caplog.text


def test_latest_is_where_the_first_run_was_even_if_nothing_came_then(kafka: Cluster, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    kafka.send(topic, [play(1)])
    found: list[list[int]] = []

    def run() -> None:
        p = bl.Pipeline("p")
        source = bl.Kafka(kafka.servers, topic, value=PLAYS, start="latest")
        out = bl.Memory()
        p.read("plays", source).write("out", out)
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint")))
        found.append([row["at"] for row in out.rows()])

    run()
    kafka.send(topic, [play(2)])
    kafka.grow(topic, 3)
    kafka.send(topic, [play(3)], partition=2)
    run()
    run()
    assert found == [[], [2, 3], []]


def test_a_topic_that_was_made_anew_is_an_error_or_read_from_its_beginning(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beamlike.io.kafka.reader.ASK_EVERY", 0.0)
    topic = kafka.topic(2)
    kafka.send(topic, map(play, range(9)))
    kafka.send(topic, map(play, range(9)), partition=1)
    source = bl.Kafka(kafka.servers, topic, value=PLAYS)
    going = source.resume({}, 100)
    taken = going.new()
    assert taken is not None
    going.read(taken)
    assert going.new() is None
    kafka.anew(topic)
    kafka.send(topic, [play(77)])
    gone = rf"'{topic}', partition 0: the next message to read is at offset 9, but it ends at offset 1"
    with pytest.raises(DataLoss, match=gone):
        deque(iter(going.new, "never"), maxlen=0)  # until the broker knows
    going.close()
    with pytest.raises(DataLoss, match=gone):
        source.resume(taken.position, 100)
    again = attrs.evolve(source, on_data_loss="skip").resume(taken.position, 100)
    new = again.new()
    assert new is not None
    assert _at(again.read(new)) == [77]
    again.close()


def test_only_what_was_committed_is_read(kafka: Cluster) -> None:
    from confluent_kafka import Producer

    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions()
    for at, committed in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(topic, f'{{"user": "ada", "at": {at}}}')
        producer.commit_transaction() if committed else producer.abort_transaction()
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, max_offsets_per_trigger=1)
    assert bl.Pipeline("p").read("plays", source).collect()["at"].to_list() == [0, 2]


def test_a_log_is_read_on_from_where_it_was_and_grows(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beamlike.io.kafka.reader.ASK_EVERY", 0.0)
    topic = kafka.topic()
    kafka.send(topic, [play(0), play(1)])
    source = bl.Kafka(kafka.servers, topic, value=PLAYS)
    reader = source.resume({}, 100)
    first = reader.new()
    assert first is not None
    assert reader.new() == first, "the same until it is read"
    assert _at(reader.read(first)) == [0, 1]
    assert reader.new() is None
    kafka.grow(topic, 2)
    kafka.send(topic, [play(5)], partition=1)
    kafka.send(topic, [play(2)])
    come: list[int] = []
    while len(come) < 2:  # the broker's answer on the new partition is not waited for
        if (taken := reader.new()) is not None:
            come += _at(reader.read(taken))
    assert sorted(come) == [2, 5]
    reader.close()
    again = source.resume(first.position, 100)
    second = again.new()
    assert second is not None
    assert second.position == {f"{topic}-0": 3, f"{topic}-1": 1}
    assert _at(again.read(second)) == [2, 5]
    assert again.new() is None
    again.close()
    assert source.position_of(source.offsets_of_spark(second.position)) == second.position


def test_what_has_come_is_taken_without_asking_the_broker(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.send(topic, [play(0)])
    reader = bl.Kafka(kafka.servers, topic, value=PLAYS).resume({}, 100)
    first = reader.new()
    assert first is not None
    assert _at(reader.read(first)) == [0]
    assert reader.new() is None
    monkeypatch.setattr("beamlike.io.kafka.reader.ASK_EVERY", inf)
    monkeypatch.setattr("beamlike.io.kafka.contact.Contact.listed", None)
    kafka.send(topic, [play(1), play(2)])
    come: list[int] = []
    while len(come) < 2:
        if (taken := reader.new()) is not None:
            come += _at(reader.read(taken))
    assert come == [1, 2]
    reader.close()


def test_a_partition_that_is_far_ahead_waits_for_the_others_and_nothing_is_lost(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beamlike.io.kafka.log._AHEAD", 10)
    topic = kafka.topic(2)
    kafka.send(topic, map(play, range(500)))
    kafka.send(topic, map(play, range(500, 600)), partition=1)
    log = bl.Kafka(kafka.servers, topic).log()
    first, second = f"{topic}-0", f"{topic}-1"
    read, at = list[int](), {first: 0, second: 0}
    spans = [(50 * n, 0) for n in range(1, 6)] + [(250, 100)] + [(50 * n, 100) for n in range(6, 11)]
    for to in spans:
        end = dict(zip(at, to, strict=True))
        read += (
            log.read(at, end)["value"].cast(pl.String).str.json_path_match("$.at").cast(pl.Int64).to_list()
        )
        at = end
    log.close()
    assert read == [*range(250), *range(500, 600), *range(250, 500)]


def _at(pieces: Any) -> list[int]:
    return [at for piece in pieces.pieces for at in piece.rows.lazy().collect()["at"]]


def test_a_topic_or_broker_that_is_not_there_is_an_error_in_words(kafka: Cluster) -> None:
    topic = kafka.topic()
    with pytest.raises(SourceError, match=rf"there is no topic '{topic}s' at .*; did you mean '{topic}'"):
        bl.Pipeline("p").read("plays", bl.Kafka(kafka.servers, f"{topic}s")).collect()
    with pytest.raises(SourceError, match=r"has no partition 7"):
        bl.Pipeline("p").read("plays", bl.Kafka(kafka.servers, topic, start={7: 0})).collect()
    with pytest.raises(
        DataLoss, match=r"partition 0: the next message to read is at offset 7, but it ends at"
    ):
        bl.Pipeline("p").read("plays", bl.Kafka(kafka.servers, topic, start={0: 7})).collect()


def test_servers_that_are_not_there_or_refuse_are_told_of_soon(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read(servers: str, **options: str) -> None:
        bl.Pipeline("p").read("plays", bl.Kafka(servers, "t", options=options)).collect()

    with pytest.raises(SourceError, match="Invalid username or password"):  # long before it is given up
        read(kafka.secured, **{**kafka.options("PLAIN"), "sasl.password": "byron"})
    assert "byron" not in caplog.text
    monkeypatch.setattr("beamlike.io.kafka.contact._FIRST", 0.0)
    with pytest.raises(SourceError, match=r"Kafka at 127\.0\.0\.1:1 cannot be asked .*Connection refused"):
        read("127.0.0.1:1")
    for wrong in ({"sasl.pasword": "byron"}, {"ssl.ca.location": "/nowhere.pem", "security.protocol": "SSL"}):
        with pytest.raises(bl.PlanError, match=r"refuses these options: .*(sasl.pasword|ssl.ca.location)"):
            read(kafka.servers, **wrong)


@pytest.mark.spark
def test_on_spark_too_servers_and_topics_that_are_not_there_are_told_of_at_once(
    kafka: Cluster, spark: Any, tmp_path: Path
) -> None:
    p, _, _ = counted(bl.Kafka(kafka.servers, "nowhere", value=PLAYS))
    with pytest.raises(SourceError, match=r"there is no topic 'nowhere' at"):
        p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1))


@pytest.mark.spark
def test_spark_gives_what_is_given_in_process_batch_by_batch(
    kafka: Cluster, spark: Any, tmp_path: Path
) -> None:
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.send(topic, [play(10 * at, f"u{partition}") for at in range(30)], partition=partition, key=b"k")
        kafka.send(topic, [b"{"], partition=partition)
    source = bl.Kafka(kafka.servers, topic, value=PLAYS, key=str, headers=True, max_offsets_per_trigger=30)
    found = {}
    for name, runner in {
        "in process": bl.LocalRunner(),
        "spark": bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True),
    }.items():
        p, counts, letters = counted(source, bl.MonotonousTimestamps())
        run = p.run(runner)
        moved = [batch.sources["plays"].watermark for batch in run.batches]
        panes = counts.frame().sort("window_start", "user", "pane_index").drop("pane_index")
        found[name] = list(dict.fromkeys(moved)), panes.rows(), sorted(letters.frame()["error"])
    assert found["in process"] == found["spark"]
    assert len(found["spark"][2]) == 3


@pytest.mark.spark
def test_a_run_on_spark_goes_on_where_it_was_and_reads_partitions_that_are_new(
    kafka: Cluster, spark: Any, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.send(topic, [play(1), play(2)])
    runner = bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1)
    source, seen = bl.Kafka(kafka.servers, topic, value=PLAYS), []

    def run() -> list[int]:
        p = bl.Pipeline("plays")
        p.read("plays", source).write("out", bl.Callback(lambda frame, _: seen.extend(frame["at"])))
        seen.clear()
        p.run(runner)
        return sorted(seen)

    assert run() == [1, 2]
    assert run() == []
    kafka.grow(topic, 2)
    kafka.send(topic, [play(3)])
    kafka.send(topic, [play(4)], partition=1)
    assert run() == [3, 4]
    kafka.send(topic, [play(at) for at in range(5, 9)])
    kafka.remove_before(topic, 0, 5)
    with pytest.raises(DataLoss, match=rf"no longer retains .*{topic}-0.*on_data_loss='skip'"):
        run()
    source = attrs.evolve(source, on_data_loss="skip")
    assert run() == [7, 8]
    kafka.send(topic, [play(9), play(10)])
    source = attrs.evolve(source, end={0: 8})
    assert run() == [9]
