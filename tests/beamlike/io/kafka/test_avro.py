"""Messages in Avro: written records are read back, and a message that is no record of the schema is reported."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.kafka.avro import Avro

FIELDS = [
    {"name": "user", "type": "string"},
    {"name": "points", "type": ["null", "long"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "x", "type": "double"}]}},
]
SCHEMA = {"type": "record", "name": "Play", "fields": FIELDS}
ROWS = st.fixed_dictionaries(
    {
        "user": st.text(),
        "points": st.none() | st.integers(-(2**63), 2**63 - 1),
        "at": st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
        "day": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        "price": st.decimals(-1_000_000, 1_000_000, places=2).map(lambda price: Decimal(price)),
        "kind": st.sampled_from("AB"),
        "tags": st.lists(st.text(), max_size=3),
        "in": st.fixed_dictionaries({"x": st.floats(allow_nan=False)}),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_what_was_written_is_read(rows: list[dict[str, Any]]) -> None:
    codec = bl.avro(SCHEMA)
    frame = pl.DataFrame(rows, schema=codec.columns(""))
    found = codec.decode(codec.encode(frame), "value")
    assert found.frame.equals(frame)
    assert found.kept.to_list() == list(range(len(rows)))
    assert not found.wrong


def test_what_is_no_record_is_told() -> None:
    codec = bl.avro({"type": "record", "name": "P", "fields": [{"name": "user", "type": "string"}]})
    found = codec.decode(pl.Series([b"\x06ada", b"\x06ad", b"\x06adam"]), "value")
    assert found.frame["user"].to_list() == ["ada"]
    assert found.kept.to_list() == [0]
    assert [index for index, _ in found.wrong] == [1, 2]
    assert found.wrong[1][1] == "not an Avro record of the schema: 1 bytes are left"


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the schema must be a record"):
        bl.avro('"string"')
    with pytest.raises(ValueError, match=r"bl.avro: the schema is not JSON .*'\{'"):
        bl.avro("{")
    with pytest.raises(
        ValueError, match=r"bl.avro: each of the fields must have a name and a type, not None"
    ):
        bl.avro({"type": "record", "name": "P"})
    fields = [{"name": "m", "type": {"type": "map", "values": "int"}}]
    with pytest.raises(TypeError, match=r"field 'm' is .*map.*, which no type of column can hold"):
        bl.avro({"type": "record", "name": "P", "fields": fields})


def decimals(precision: int, *, within: bool) -> Avro:
    """Returns the format of records with a decimal of `precision` digits, two of them after the point."""
    kind: object = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
    kind = {"type": "array", "items": kind} if within else kind
    return bl.avro({"type": "record", "name": "Pay", "fields": [{"name": "v", "type": kind}]})


@pytest.mark.parametrize("within", [False, True])
def test_a_decimal_with_more_digits_than_the_schema_is_wrong(within: bool) -> None:
    given = [Decimal("1.25"), Decimal("90071992547409.93")]
    values = pl.Series("v", [[one] for one in given] if within else given)
    found = decimals(12, within=within).decode(decimals(30, within=within).encode(values.to_frame()), "value")
    assert found.frame["v"].to_list() == [[given[0]] if within else given[0]]
    assert found.kept.to_list() == [0]
    [(index, why)] = found.wrong
    assert index == 1
    assert "90071992547409.93" in why


def test_a_float_beyond_the_range_of_the_schema_is_not_written() -> None:
    narrow = bl.avro({"type": "record", "name": "Play", "fields": [{"name": "v", "type": "float"}]})
    with pytest.raises(ValueError, match="the column 'v' has 1e\\+300, which a float of 32 bits cannot hold"):
        narrow.encode(pl.DataFrame({"v": [1.5, 1e300]}))
