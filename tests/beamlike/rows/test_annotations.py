"""The column types of annotations, and annotations that no column can have."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
)
from uuid import UUID

import attrs
import polars as pl
import pyarrow as pa
import pytest
from pydantic import AwareDatetime, BaseModel, Field, HttpUrl, PositiveInt, SecretStr

import beamlike as bl
from beamlike.rows.annotations import annotated_dtype, class_schema
from beamlike.rows.converter import to_object
from beamlike.rows.row_classes import fields_of_class
from tests.support.row_classes import CLICKS

UTC = pl.Datetime("us", "UTC")


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 1


class UserId(str):
    pass


class Point(NamedTuple):
    x: int
    y: float


Name = NewType("Name", str)

TYPES: dict[str, tuple[Any, pl.DataType]] = {
    "int": (int, pl.Int64()),
    "float": (float, pl.Float64()),
    "bool": (bool, pl.Boolean()),
    "str": (str, pl.String()),
    "bytes": (bytes, pl.Binary()),
    "datetime": (datetime, UTC),
    "date": (date, pl.Date()),
    "time": (time, pl.Time()),
    "timedelta": (timedelta, pl.Duration("us")),
    "Decimal": (Decimal, pl.Decimal(38, 18)),
    "UUID": (UUID, pl.String()),
    "may be None": (int | None, pl.Int64()),
    "Optional": (Optional[str], pl.String()),  # noqa: UP045
    "enum of text": (Colour, pl.String()),
    "enum of numbers": (Size, pl.Int64()),
    "Literal": (Literal["a", "b"], pl.String()),
    "Literal of an enum": (Literal[Colour.RED], pl.String()),
    "extended str": (UserId, pl.String()),
    "NewType": (Name, pl.String()),
    "Annotated": (Annotated[int, "any"], pl.Int64()),
    "Annotated with a dtype": (Annotated[int, pl.Int32], pl.Int32()),
    "Annotated Decimal": (Annotated[Decimal, pl.Decimal(9, 2)], pl.Decimal(9, 2)),
    "list": (list[datetime], pl.List(UTC)),
    "list of None": (list[int | None], pl.List(pl.Int64)),
    "set": (set[str], pl.List(pl.String)),
    "tuple": (tuple[int, ...], pl.List(pl.Int64)),
    "Sequence": (Sequence[Colour], pl.List(pl.String)),
    "class": (Point, pl.Struct({"x": pl.Int64, "y": pl.Float64})),
    "list of classes": (list[Point], pl.List(pl.Struct({"x": pl.Int64, "y": pl.Float64}))),
    "pydantic's datetime": (AwareDatetime, UTC),
    "pydantic's URL": (HttpUrl, pl.String()),
    "pydantic's number": (PositiveInt, pl.Int64()),
}


@pytest.mark.parametrize("case", TYPES)
def test_an_annotation_has_a_column_type(case: str) -> None:
    annotation, dtype = TYPES[case]
    assert annotated_dtype(annotation) == dtype
    assert annotated_dtype(Optional[annotation]) == dtype  # noqa: UP045


@dataclass
class Tree:
    left: Tree | None


class Mixed(enum.Enum):
    A = 1
    B = "b"


REFUSED: dict[str, tuple[Any, str]] = {
    "mapping": (dict[str, int], "dict[str, int] has no column type; write a class with its fields"),
    "bare list": (list, "list has no column type; write the type of its values, such as list[str]"),
    "bare set": (set, "such as set[str]"),
    "tuple": (tuple[int, str], "write a NamedTuple"),
    "union": (int | str, "int | str has no column type; a column has values of one type"),
    "anything": (Any, "Any has no column type"),
    "object": (object, "object has no column type"),
    "mixed enum": (Mixed, "the values of Mixed are neither all text nor all whole numbers"),
    "recursive class": (Tree, "Tree.left: Tree contains itself"),
    "secret": (SecretStr, "SecretStr of pydantic has no column type"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_annotation_without_a_column_type_is_refused(case: str) -> None:
    annotation, message = REFUSED[case]
    with pytest.raises(TypeError, match=re.escape(message)):
        annotated_dtype(annotation)


@pytest.mark.parametrize("kind", CLICKS)
def test_classes_of_every_kind_have_the_same_columns(kind: str) -> None:
    assert class_schema(CLICKS[kind]) == {
        "user": pl.String(),
        "points": pl.Int64(),
        "at": UTC,
        "rate": pl.Float64(),
        "kind": pl.String(),
        "way": pl.String(),
        "tags": pl.List(pl.String),
        "place": pl.Struct({"country": pl.String, "zips": pl.List(pl.Int64)}),
        "times": pl.Int64(),
    }


def test_a_typed_dict_may_lack_the_keys_that_are_marked() -> None:
    class Base(TypedDict, total=False):
        a: int
        b: Required[int]

    class Both(Base):
        c: NotRequired[int]
        d: int

    # The names in annotations are found in the module, and these classes are in a function.
    sys.modules[__name__].__dict__.update(Base=Base)
    assert [one.name for one in fields_of_class(Both) if one.required] == ["b", "d"]


@dataclass
class Fields:
    a: int
    b: Final[int] = 1
    c: int = field(init=False)
    d: list[int] = field(default_factory=list)


@attrs.define(these={"_a": attrs.field(type=int), "b": attrs.field(type=float, default=1.0, kw_only=True)})
class Attributes:
    pass


def test_fields_that_no_call_sets_are_no_columns() -> None:
    assert class_schema(Fields) == {"a": pl.Int64(), "b": pl.Int64(), "d": pl.List(pl.Int64)}


def test_attrs_may_know_types_that_are_no_annotations() -> None:
    assert class_schema(Attributes) == {"_a": pl.Int64(), "b": pl.Float64()}
    assert to_object(Attributes)({"_a": 1, "b": 2.0}) == Attributes(1, b=2.0)


class Prices(BaseModel):
    amount: Decimal = Field(max_digits=9, decimal_places=2)
    user_name: str = Field(alias="userName")


class Apart(BaseModel):
    user: str = Field(validation_alias="u")


def test_a_model_has_columns_by_alias_and_decimals_of_its_digits() -> None:
    assert class_schema(Prices) == {"amount": pl.Decimal(9, 2), "userName": pl.String()}
    with pytest.raises(TypeError, match=r"Apart.user is read as 'u' and written as 'user'.* alias="):
        class_schema(Apart)


@dataclass
class Unknown:
    a: Nowhere  # noqa: F821


class Empty(BaseModel):
    pass


def test_a_class_without_known_fields_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Unknown has an annotation .*'Nowhere' is not defined"):
        class_schema(Unknown)
    with pytest.raises(TypeError, match="Empty has no fields"):
        class_schema(Empty)


# Schemas in all forms


@pytest.mark.parametrize(
    "schema",
    [
        {"x": int, "y": float},
        Point,
        pl.Schema({"x": pl.Int64, "y": pl.Float64}),
        pa.schema([("x", pa.int64()), ("y", pa.float64())]),
        pl.DataFrame({"x": [1], "y": [1.0]}).to_arrow().schema,
    ],
)
def test_a_schema_may_have_any_form(schema: Any) -> None:
    wanted = pl.Schema({"x": pl.Int64(), "y": pl.Float64()})
    assert bl.Rows([{"x": 1, "y": 2}], schema=schema).schema() == wanted
    assert bl.CSV("points.csv", schema=schema).schema() == wanted
    assert bl.TestStream(schema).schema() == wanted
    rows = bl.Pipeline("p").read("rows", bl.Rows([{"a": 1}]))
    assert rows.map(dict, schema=schema).schema == wanted
    assert rows.with_columns(x=1, y=2).cast(schema).schema["y"] == pl.Float64()


def test_a_class_is_a_struct_in_a_dict() -> None:
    assert bl.Rows([], schema={"point": Point}).schema() == {
        "point": pl.Struct({"x": pl.Int64, "y": pl.Float64})
    }
    assert bl.Rows([], schema={"way": Literal["a"]}).schema() == {"way": pl.String()}


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="a class with fields that are columns, and Colour is none"):
        bl.Rows([], schema=Colour)
    with pytest.raises(TypeError, match="schema= cannot be read from Arrow"):
        bl.Rows([], schema=pa.int64())
