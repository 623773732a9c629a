"""Received messages become rows or dead letters, with the topic, partition and timestamp of the message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import polars as pl
import pytest

from beamlike.io.kafka import codecs, messages
from beamlike.io.kafka.buffer import MessageBuffer

KEYS = {messages.KEY: codecs.codec(str), messages.VALUE: codecs.json({"n": int, "name": str})}


def message(
    partition: int, offset: int, value: bytes | None, kind: int = 1, at: int = 5, topic: str = "t"
) -> Any:
    return confluent_kafka.Message(topic, partition, offset, b"k", value, None, None, (kind, at))


def buffered(*received: Any, headers: bool = False) -> MessageBuffer:
    buffer = MessageBuffer(headers)
    buffer.put(received)
    return buffer


def rows_and_letters(buffer: MessageBuffer) -> tuple[pl.DataFrame, list[str]]:
    frame = buffer.take(buffer.ends)
    assert frame.schema == messages.raw_schema(headers=False)
    pieces = messages.rows_of(frame, KEYS, headers=False).pieces
    letters = [text for piece in pieces[:-1] for text in piece.rows.dead_letters["error"]]  # type: ignore[union-attr]
    rows = pieces[-1].rows
    assert isinstance(rows, pl.DataFrame)
    assert rows.schema == messages.row_schema(KEYS, headers=False)
    return rows, letters


@pytest.mark.parametrize(
    ("places", "names"),
    [
        ([("t", 0), ("t", 0)], ["t-0", "t-0"]),
        ([("t", 10), ("t", 2)], ["t-2", "t-10"]),
        ([("u", 0), ("t", 0)], ["t-0", "u-0"]),
    ],
)
def test_rows_have_the_partition_of_their_message(places: list[tuple[str, int]], names: list[str]) -> None:
    received = [
        message(partition, offset, b'{"n":1,"name":"a"}', topic=topic)
        for offset, (topic, partition) in enumerate(places)
    ]
    rows, letters = rows_and_letters(buffered(*received))
    assert rows[messages.SPLIT].to_list() == names
    assert [
        f"{topic}-{number}" for topic, number in rows[[messages.TOPIC, messages.PARTITION]].rows()
    ] == names
    assert letters == []


@pytest.mark.parametrize("kinds", [(1,), (2,), (0,), (1, 2), (0, 2), (0, 1, 2)])
def test_a_timestamp_has_its_kind_or_is_null(kinds: tuple[int, ...]) -> None:
    received = [
        message(0, offset, b'{"n":1,"name":"a"}', kind, 5 if kind else -1)
        for offset, kind in enumerate(kinds)
    ]
    rows, _ = rows_and_letters(buffered(*received))
    at = datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)
    assert rows[messages.TIMESTAMP].to_list() == [at if kind else None for kind in kinds]
    assert rows[messages.TIMESTAMP_TYPE].to_list() == [(None, "create", "append")[kind] for kind in kinds]


def test_messages_are_taken_up_to_an_offset_of_each_partition() -> None:
    buffer = buffered(*(message(number % 2, number // 2, b'{"n":%d}' % number) for number in range(10)))
    buffer.put([message(0, 5, b'{"n":10}')])
    first = buffer.take({"t-0": 3, "t-1": 1})
    assert first[messages.OFFSET].to_list() == [0, 1, 2, 0]
    assert buffer.counts() == {"t-0": 3, "t-1": 4}
    rows, _ = rows_and_letters(buffer)
    assert rows["n"].to_list() == [6, 8, 10, 3, 5, 7, 9]
    assert buffer.take({"t-0": 9}).is_empty()


def test_a_value_with_line_ends_is_one_row_and_others_are_dead_letters() -> None:
    values = [
        b'{"n":1,\n"name":"a"}',
        b'{"n":2}\n{"n":3}',
        b"",
        b'{"n":"x"}',
        None,
        b'{"name":"[\\n"}\n',
        b'{"name":[1]}',
    ]
    rows, letters = rows_and_letters(buffered(*(message(0, at, value) for at, value in enumerate(values))))
    assert rows["n"].to_list() == [1, None, None]
    assert rows["name"].to_list() == ["a", None, "[\n"]
    assert rows[messages.OFFSET].to_list() == [0, 4, 5]
    assert [text.partition(": ")[0] for text in letters] == [
        f"topic 't', partition 0, offset {at}" for at in (1, 2, 3, 6)
    ]


def test_headers_are_kept() -> None:
    received = confluent_kafka.Message("t", 0, 0, None, b"x", [("a", b"1"), ("b", None)], None, (1, 5))
    frame = buffered(received, headers=True).take({"t-0": 1})
    rows = messages.rows_of(frame, {messages.VALUE: codecs.codec(bytes)}, headers=True).pieces[0].rows
    assert isinstance(rows, pl.DataFrame)
    assert rows[messages.HEADERS].to_list() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}]]
