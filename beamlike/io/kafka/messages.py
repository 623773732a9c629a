"""Messages as columns: those that both runners read from a topic, and their conversion to rows or dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from beamlike.io.base import Faulty, FromFile, Pieces
from beamlike.io.files.faults import decoded
from beamlike.io.kafka.codecs import Codec
from beamlike.io.kafka.offsets import split_name
from stages.frames import repeated

KEY: Final = "key"
VALUE: Final = "value"
TOPIC: Final = "kafka_topic"
PARTITION: Final = "kafka_partition"
SPLIT: Final = "kafka_topic_partition"
OFFSET: Final = "kafka_offset"
TIMESTAMP: Final = "kafka_timestamp"
TIMESTAMP_TYPE: Final = "kafka_timestamp_type"
HEADERS: Final = "kafka_headers"

_WHERE: Final = {TOPIC: pl.String(), PARTITION: pl.Int32(), OFFSET: pl.Int64()}
_WHEN: Final = {TIMESTAMP: pl.Datetime("us", "UTC"), TIMESTAMP_TYPE: pl.String()}
_HEADERS: Final = {HEADERS: pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))}
_KINDS: Final = {0: "create", 1: "append"}
_AT: Final = "__at"


def raw_schema(*, headers: bool) -> pl.Schema:
    """Returns the columns of messages as they are read. The kind of a timestamp is a number."""
    own = {**_WHERE, **_WHEN, TIMESTAMP_TYPE: pl.Int32(), KEY: pl.Binary(), VALUE: pl.Binary()}
    return pl.Schema({**own, **(_HEADERS if headers else {})})


def row_schema(codecs: Mapping[str, Codec], *, headers: bool) -> pl.Schema:
    """Returns the columns of rows. Raises `ValueError` if two have the same name."""
    schema: dict[str, pl.DataType] = {}
    about = {**_WHERE, SPLIT: pl.String(), **_WHEN, **(_HEADERS if headers else {})}
    parts = [(f"{name}=", codec.columns(name)) for name, codec in codecs.items()]
    for part, columns in [*parts, ("what Kafka says of a message", about)]:
        if twice := [name for name in columns if name in schema]:
            raise ValueError(f"Kafka: {part} has a column {twice[0]!r}, which already exists")
        schema.update(columns)
    return pl.Schema(schema)


def rows_of(messages: pl.DataFrame, codecs: Mapping[str, Codec], *, headers: bool) -> Pieces:
    """Converts messages with the columns of `raw_schema` to rows with those of `row_schema`, or to dead letters.

    A null key or value, as in a tombstone, becomes nulls.
    """
    wrong: list[tuple[int, str]] = []
    parts = [decode_column(messages[name], codec, name, wrong) for name, codec in codecs.items()]
    about = _about(messages, headers=headers)
    rows = pl.DataFrame([column for part in parts for column in part.iter_columns()] + about)
    if wrong:
        bad = pl.Series([index for index, _ in wrong], dtype=pl.UInt32).unique()
        good = pl.int_range(len(messages), dtype=pl.UInt32, eager=True).is_in(bad.implode()).not_()
        return Pieces([FromFile(_dead_letters(messages, wrong), ""), FromFile(rows.filter(good), "")])
    return Pieces([FromFile(rows, "")])


def decode_column(values: pl.Series, codec: Codec, name: str, wrong: list[tuple[int, str]]) -> pl.DataFrame:
    """Returns a row for each value. It has nulls if the value is null or invalid.

    Pairs of index and reason of invalid values are added to `wrong`.
    """
    given = values.drop_nulls() if values.null_count() else values
    found = codec.decode(given, name)
    if len(found.frame) == len(values):
        return found.frame
    there = values.is_not_null().arg_true()
    wrong.extend((there[index], f"its {name} is {why}") for index, why in found.wrong)
    placed = found.frame.with_columns(there.gather(found.kept).alias(_AT))
    every = pl.int_range(len(values), dtype=pl.UInt32, eager=True).alias(_AT).to_frame()
    return every.join(placed, on=_AT, how="left", maintain_order="left").drop(_AT)


def _about(messages: pl.DataFrame, *, headers: bool) -> list[pl.Series]:
    """Returns the columns that Kafka adds. Mostly all messages of a batch have one partition and kind of timestamp."""
    topic, partition, kind = (messages[name] for name in (TOPIC, PARTITION, TIMESTAMP_TYPE))
    if _is_constant(partition) and _is_constant(topic):
        split = repeated(pl.Series([split_name(topic[0], partition[0])]), len(messages))
    else:
        split = topic + "-" + partition.cast(pl.String)
    if _is_constant(kind):
        kind = repeated(pl.Series([_KINDS.get(kind[0])], dtype=pl.String), len(messages))
    else:
        kind = kind.replace_strict(_KINDS, default=None, return_dtype=pl.String)
    moments, others = messages[TIMESTAMP], [messages[name] for name in (_HEADERS if headers else ())]
    return [
        *(messages[name] for name in _WHERE),
        split.alias(SPLIT),
        moments,
        kind.alias(TIMESTAMP_TYPE),
        *others,
    ]


def _is_constant(column: pl.Series) -> bool:
    """True if all rows have the same value, and there are some."""
    least = column.min()
    return least is not None and least == column.max() and not column.null_count()


def _dead_letters(messages: pl.DataFrame, wrong: Sequence[tuple[int, str]]) -> Faulty:
    """Returns a dead letter for each invalid message, in order of arrival."""
    whys: dict[int, str] = {}
    for index, why in sorted(wrong):
        whys[index] = f"{whys[index]}; {why}" if index in whys else why
    bad = messages[list(whys)]
    where = pl.format("topic '{}', partition {}, offset {}: ", TOPIC, PARTITION, OFFSET)
    errors = bad.select(where).to_series() + pl.Series(list(whys.values()), dtype=pl.String)
    texts = {
        name: pl.Series(
            [None if value is None else decoded(value) for value in bad[name].to_list()], dtype=pl.String
        )
        for name in (KEY, VALUE)
    }
    row = bad.with_columns(pl.col(TIMESTAMP).dt.to_string("iso:strict"), **texts).select(
        pl.struct(*_WHERE, TIMESTAMP, KEY, VALUE).struct.json_encode()
    )
    return Faulty(pl.DataFrame({"error": errors, "row": row.to_series()}))
