"""`bl.Rows` converts values to the types of its schema, and refuses values that would be lost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import polars as pl
import pytest

import beamlike as bl


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Painted:
    colour: Colour
    mark: Literal["x", None]


def frame(rows: list[Any], **schema: Any) -> pl.DataFrame:
    return bl.Pipeline("p").read("rows", bl.Rows(rows, schema=schema or None)).collect()


def test_members_of_an_enum_are_their_values() -> None:
    rows = [{"c": Colour.RED, "n": 1}, {"c": Colour.BLUE, "n": None}]
    for schema in ({}, {"c": str, "n": int}, {"c": Colour, "n": int}):
        assert frame(rows, **schema)["c"].cast(pl.String).to_list() == ["red", "blue"]
    assert frame([{"c": ["red", Colour.BLUE]}], c=list[str])["c"].to_list() == [["red", "blue"]]
    assert frame([{"c": {"d": Colour.RED}}], c={"d": str})["c"].to_list() == [{"d": "red"}]
    found = frame([Painted(Colour.RED, None), Painted(Colour.BLUE, "x")])
    assert found.rows() == [("red", None), ("blue", "x")]


def test_text_of_numbers_is_read() -> None:
    assert frame([{"n": "3"}, {"n": 4}], n=int).rows() == [(3,), (4,)]


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        ("many", int, "'n' is Int64: found 'many'"),
        (1.5, int, "'n' is Int64: found 1.5"),
        (Decimal("1.5"), int, r"'n' is Int64: found Decimal\('1.5'\)"),
        (300, pl.Int8, "'n' is Int8: found 300"),
        (-1, pl.UInt8, "'n' is UInt8: found -1"),
        ("soon", pl.Datetime("us", "UTC"), "'n' is Datetime.*: found 'soon'"),
        (Colour.RED, pl.Enum(["blue"]), "'n' is Enum.*: found 'red'"),
        (["a"], list[int], r"'n' is List\(Int64\)"),
        ({"x": "a"}, {"x": int}, r"'n' is Struct"),
    ],
)
def test_a_value_that_would_be_lost_is_refused(value: Any, kind: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        frame([{"n": None}, {"n": value}], n=kind)


def test_rows_without_a_column_of_the_schema_are_refused() -> None:
    with pytest.raises(TypeError, match=r"the rows have the columns user, and none of the schema's, usr"):
        frame([{"user": "ada"}], usr=str)
