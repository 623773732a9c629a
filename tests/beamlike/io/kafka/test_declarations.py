"""Declarations of topics, and the conversion of messages, without a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.kafka.client import for_java
from beamlike.io.kafka.messages import raw_schema
from beamlike.io.kafka.offsets import boundary_of, in_turn
from beamlike.io.sinks import SinkInput
from beamlike.system.locks import InUse

SERVER = "localhost:9092"


@pytest.mark.parametrize(
    ("arguments", "choices", "message"),
    [
        (("localhost", "t"), {}, r"servers must be such as 'localhost:9092', not 'localhost'"),
        ((9092, "t"), {}, r"servers must be text .*, not 9092"),
        ((SERVER, []), {}, r"topics must be a name or a list of names, not \[\]"),
        ((SERVER, "t"), {"value": int}, r"value must be bytes, str, or a format such as bl.json"),
        ((SERVER, "t"), {"value": bl.json()}, r"needs the columns: bl.json"),
        (
            (SERVER, "t"),
            {"value": bl.json({"key": str}), "key": str},
            r"value= has a column 'key', which already exists",
        ),
        (
            (SERVER, "t"),
            {"value": bl.json({"kafka_offset": int})},
            r"has a column 'kafka_offset', which already exists",
        ),
        ((SERVER, "t"), {"start": "now"}, r"start must be 'earliest', 'latest', a datetime"),
        ((SERVER, "t"), {"end": "earliest"}, r"end must not be 'earliest'"),
        ((SERVER, ["t", "u"]), {"start": {0: 1}}, r"there are several topics, so start must name them"),
        ((SERVER, "t"), {"start": {"u": {0: 1}}}, r"start has a topic 'u', which is not among t"),
        ((SERVER, "t"), {"end": {0: -1}}, r"end must have an offset for each partition, not 0: -1"),
        ((SERVER, "t"), {"on_data_loss": "ignore"}, r"on_data_loss must be 'fail' or 'skip', not 'ignore'"),
        ((SERVER, "t"), {"options": {"a": 1}}, r"options must be text"),
        (
            (SERVER, "t"),
            {"options": {"linger.ms": "5"}},
            r"'linger.ms' would have no effect here, as it is a setting of writers; give it to bl.KafkaSink",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(arguments: Any, choices: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        bl.Kafka(*arguments, **choices)


def test_a_sink_refuses_settings_of_readers() -> None:
    with pytest.raises(
        ValueError, match=r"'fetch.min.bytes' would have no effect here, .*; give it to bl.Kafka\("
    ):
        bl.KafkaSink(SERVER, "t", options={"linger.ms": "5", "fetch.min.bytes": "1"})


def test_passwords_are_not_shown() -> None:
    source = bl.Kafka(SERVER, "t", options={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(source)
    assert "sasl.password" in repr(source)


def test_a_watermark_is_kept_for_each_partition_unless_others_are_named() -> None:
    def split(strategy: bl.WatermarkStrategy) -> Any:
        p = bl.Pipeline("p")
        source = bl.Kafka(SERVER, "t", value=bl.json({"at": int, "site": str}))
        p.read("t", source, timestamp="at", timestamp_unit="s", watermark=strategy).write("out", bl.Memory())
        return p.plan().sources["t"].watermark.per_split

    assert split(bl.BoundedOutOfOrderness("5s")) == "kafka_topic_partition"
    assert split(bl.BoundedOutOfOrderness("5s", per_split="site")) == "site"
    assert split(bl.ProcessingTimeLag("5s")) is None


def test_so_it_is_where_the_watermark_is_set_after_a_step() -> None:
    p = bl.Pipeline("p")
    lines = p.read("lines", bl.Kafka(SERVER, "t", value=str))
    timed = {"timestamp": "at", "timestamp_unit": "s"}
    columns = {"at": int, "kafka_topic_partition": str}
    plays = lines.map(
        lambda row: {"at": 1, "kafka_topic_partition": row["kafka_topic_partition"]}, schema=columns
    )
    plays.with_watermark(bl.MonotonousTimestamps(), **timed).write("out", bl.Memory())
    [source] = p.plan().sources.values()
    assert source.watermark.per_split == "kafka_topic_partition"
    without = lines.map(lambda row: {"at": 1}, schema={"at": int}, name="without")
    with pytest.raises(bl.PlanError, match=r"no longer have the column 'kafka_topic_partition'.*per_split="):
        without.with_watermark(bl.MonotonousTimestamps(), **timed)


def messages(*values: bytes | None) -> pl.DataFrame:
    rows = [("t", 0, at, None, 0, None, value) for at, value in enumerate(values)]
    return pl.DataFrame(rows, raw_schema(headers=False), orient="row")


@given(
    st.lists(
        st.sampled_from(
            [b'{"a": 1}', b'{"a":\n2}', b"{}", b"", b"[]", b'{"a": "x"}', b'{"a":1}{"a":2}', None]
        )
    )
)
def test_each_message_is_one_row_or_one_dead_letter(values: list[bytes | None]) -> None:
    source = bl.Kafka(SERVER, "t", value=bl.json({"a": int}))
    good = {b'{"a": 1}': 1, b'{"a":\n2}': 2, b"{}": None, None: None}
    pieces = source.decode(messages(*values)).pieces
    rows = pieces[-1].rows.lazy().collect()  # type: ignore[union-attr]
    assert rows.schema == source.schema()
    assert rows.select("kafka_offset", "a").rows() == [
        (at, good[value]) for at, value in enumerate(values) if value in good
    ]
    letters = [row for piece in pieces[:-1] for row in piece.rows.dead_letters["row"]]  # type: ignore[union-attr]
    bad = [(at, value.decode()) for at, value in enumerate(values) if value is not None and value not in good]
    assert [(row["kafka_offset"], row["value"]) for row in map(json.loads, letters)] == bad


LOGS = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1)


@given(LOGS, st.integers(1, 30))
def test_batches_come_to_the_end_and_each_partition_with_anything_new_has_a_share(
    logs: dict[str, tuple[int, int]], most: int
) -> None:
    at = {name: first for name, (first, _) in logs.items()}
    end = {name: first + count for name, (first, count) in logs.items()}
    while at != end:
        to = in_turn(at, end, most)
        taken = {name: to[name] - at[name] for name in logs}
        assert all(count > 0 for name, count in taken.items() if at[name] < end[name])
        assert sum(taken.values()) <= most + len(logs)
        assert all(to[name] <= end[name] for name in logs)
        at = dict(to)
    assert in_turn(at, end, most) == at


def test_positions_in_time_are_those_of_the_first_message_that_is_not_older() -> None:
    assert boundary_of(datetime(1970, 1, 1, 0, 0, 1, 500_001), ("t",), "start") == 1501
    assert boundary_of(datetime(1970, 1, 1, tzinfo=UTC), ("t",), "start") == 0


def test_settings_are_those_of_the_java_client_on_spark(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("A CERTIFICATE")
    user = {"sasl.mechanism": "PLAIN", "sasl.username": 'a"b', "sasl.password": "c"}
    assert for_java({**user, "ssl.ca.location": str(tmp_path / "ca"), "ssl.key.pem": "A KEY"}) == {
        "isolation.level": "read_committed",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="a\\"b" password="c";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "A CERTIFICATE",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "A KEY",
    }
    algorithm = "ssl.endpoint.identification.algorithm"
    assert [for_java({algorithm: name})[algorithm] for name in ("none", "https")] == ["", "https"]


def test_two_sinks_of_a_run_may_send_to_one_topic_and_two_runs_of_one_name_may_not() -> None:
    one, other = (
        bl.KafkaSink("localhost:9092", "t").fitted(SinkInput(name, pl.Schema({"n": pl.Int64()}), ("n",)))
        for name in ("one", "other")
    )
    with one.hold("run") as lock, other.hold("run"), one.hold("another run"):
        assert lock.held
        with pytest.raises(InUse, match="the run 'run' in process"):
            one.hold("run")
    assert bl.KafkaSink("localhost:9092", "t", transactions=False).hold("run") is None
