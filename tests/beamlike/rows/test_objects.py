"""Rows as objects of user classes of every kind: rows become objects and the same rows again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, is_typeddict
from uuid import UUID

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, HttpUrl
from pydantic import dataclasses as pydantic_dataclasses

import beamlike as bl
from beamlike.rows.annotations import class_schema
from beamlike.rows.objects import RowObjects, class_of_results
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import columns_of_class
from beamlike.rows.state_values import conversions
from beamlike.steps.python_results import as_columns
from tests.support.row_classes import CLICKS, Click, Flat, Kind, Place
from windowing.python_rows import each, unusable

_INT = st.integers(-(2**63), 2**63 - 1)
_PLACES = st.none() | st.fixed_dictionaries(
    {"country": st.text(max_size=3), "zips": st.lists(_INT, max_size=2)}
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.text(max_size=3),
            "points": _INT,
            "at": st.datetimes(timezones=st.just(UTC)),
            "rate": st.none() | st.floats(allow_nan=False),
            "kind": st.sampled_from(["page", "video"]),
            "way": st.sampled_from(["web", "app"]),
            "tags": st.sets(st.text(max_size=2), max_size=3).map(lambda tags: sorted(tags, key=repr)),
            "place": _PLACES,
            "times": _INT,
        }
    ),
    max_size=4,
)


def of(kind: Any, schema: Any = None) -> RowObjects:
    known = class_schema(kind) if schema is None else schema
    return RowObjects(RowClass(kind), tuple(name for name in columns_of_class(kind) if name in known))


def back(kind: Any, objects: list[Any]) -> tuple[pl.DataFrame, dict[int, str]]:
    return as_columns(objects, pl.Schema(class_schema(kind)), class_of_results(kind))


@pytest.mark.parametrize("kind", CLICKS)
@given(rows=ROWS)
def test_rows_become_objects_and_the_same_rows_again(kind: str, rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=class_schema(CLICKS[kind]))
    objects = of(CLICKS[kind])
    assert not unusable(frame, objects)
    made = list(objects.iterate(frame))
    if not is_typeddict(CLICKS[kind]):
        assert all(type(one) is CLICKS[kind] and isinstance(one.kind, Kind) for one in made)
        assert all(isinstance(one.tags, set) and isinstance(one.place, Place | None) for one in made)
        # The same objects one by one, as a Process receives them.
        assert [objects.make(raw) for raw in objects.raw(frame)] == made
    result, wrong = back(CLICKS[kind], made)
    assert not wrong
    assert result.equals(frame)


def fits(row: dict[str, Any]) -> bool:
    """True if a naive reading of the annotations of a click allows the row, with its nulls and defaults."""
    required = ("user", "points", "at", "kind", "way", "tags")
    if any(row[name] is None for name in required) or None in row["tags"]:
        return False
    place = row["place"]
    return place is None or (place["country"] is not None and None not in (place["zips"] or []))


NULLS = st.sets(
    st.sampled_from(["user", "points", "at", "rate", "kind", "way", "tags", "place", "times"]), max_size=2
)


@pytest.mark.parametrize("kind", CLICKS)
@given(
    rows=ROWS,
    nulls=st.lists(NULLS, min_size=4, max_size=4),
    inner=st.sampled_from(["country", "zips", "zip", "tag"]),
)
def test_rows_with_nulls_are_refused_or_have_defaults(
    kind: str, rows: list[dict[str, Any]], nulls: list[set[str]], inner: str
) -> None:
    rows = [row | dict.fromkeys(names) for row, names in zip(rows, nulls, strict=False)]
    for row in rows[::2]:
        if inner == "tag" and row["tags"] is not None:
            row["tags"] = [*row["tags"], None]
        elif row["place"] is not None:
            row["place"] = row["place"] | ({"zips": [1, None]} if inner == "zip" else {inner: None})
    frame = pl.DataFrame(rows, schema=class_schema(CLICKS[kind]))
    objects, failed = of(CLICKS[kind]), dict[int, Exception]()
    made = each(lambda one: one, objects.iterate(frame), len(rows), failed.__setitem__, None)
    refused = {*unusable(frame, objects), *failed}
    assert refused == {number for number, row in enumerate(rows) if not fits(row)}
    for number in {*range(len(rows))} - refused:
        one, row = made[number], rows[number]
        get = one.get if is_typeddict(CLICKS[kind]) else lambda name, one=one: getattr(one, name)
        assert get("times") == (row["times"] if row["times"] is not None or is_typeddict(CLICKS[kind]) else 1)
        assert get("rate") == row["rate"]
        assert row["place"] is None or get("place").zips == (row["place"]["zips"] or [])


class Plain(NamedTuple):
    a: int
    b: float
    c: str | None
    d: int = 7
    e: datetime | None = None


@dataclass
class Nested:
    one: Plain
    many: list[Plain]


@attrs.define
class Checked:
    a: int = attrs.field(validator=attrs.validators.ge(0))
    b: Kind = Kind.PAGE


@pydantic_dataclasses.dataclass
class Positive:
    a: int = Field(gt=0)


class Bounded(BaseModel):
    a: int = Field(gt=0)
    many: list[Positive] = []


def test_whole_numbers_are_floats_in_float_fields_and_defaults_stand_for_nulls_and_missing_columns() -> None:
    frame = pl.DataFrame({"a": [1, 2], "b": [1, 2], "c": ["x", None], "d": [None, 2]})
    made = list(of(Plain, frame.schema).iterate(frame))
    assert made == [Plain(1, 1.0, "x", 7), Plain(2, 2.0, None, 2)]
    assert all(type(one.b) is float for one in made)


def test_nulls_in_nested_classes_are_their_defaults() -> None:
    row = {"one": {"a": 1, "b": 1.0, "c": None, "d": None, "e": None}, "many": []}
    frame = pl.DataFrame([{**row, "many": [row["one"]]}], schema=class_schema(Nested))
    assert list(of(Nested).iterate(frame)) == [Nested(Plain(1, 1.0, None), [Plain(1, 1.0, None)])]
    frame = pl.DataFrame([{"a": 1, "many": None}], schema=class_schema(Bounded))
    assert list(of(Bounded).iterate(frame)) == [Bounded(a=1)]


def test_a_null_where_none_is_not_allowed_is_refused_at_any_depth() -> None:
    frame = pl.DataFrame({"a": [1, None, 3], "b": [1.0, 2.0, None], "c": [None, None, None]})
    assert unusable(frame, of(Plain, frame.schema)) == {
        1: "column 'a' is null, and Plain.a may not be None: give it a default, or the type int | None",
        2: "column 'b' is null, and Plain.b may not be None: give it a default, or the type float | None",
    }
    good = {"a": 1, "b": 1.0, "c": None, "d": None, "e": None}
    rows = [
        (good, [good]),
        (good | {"b": None}, []),
        (good, [good, good | {"a": None}]),
        (good, None),
        (None, []),
    ]
    nested = pl.DataFrame([{"one": one, "many": many} for one, many in rows], schema=class_schema(Nested))
    assert sorted(unusable(nested, of(Nested))) == [1, 2, 3, 4]
    # A model refuses by itself, with a message of its own.
    assert not unusable(pl.DataFrame({"a": [None]}, schema={"a": pl.Int64}), of(Bounded, {"a": pl.Int64()}))


def raised(kind: Any, row: dict[str, Any]) -> str:
    frame = pl.DataFrame(
        [row], schema={name: dtype for name, dtype in class_schema(kind).items() if name in row}
    )
    with pytest.raises(Exception) as error:  # noqa: PT011  of any class
        list(of(kind, frame.schema).iterate(frame))
    return f"{type(error.value).__name__}: {error.value}"


def test_a_row_that_a_class_refuses_raises_its_error_or_names_the_field() -> None:
    assert raised(Checked, {"a": -1}) == "ValueError: 'a' must be >= 0: -1"
    assert raised(Checked, {"a": 1, "b": "x"}) == "ValueError: 'x' is not a valid Kind @ Checked.b"
    assert "greater than 0" in raised(Bounded, {"a": 0})
    assert "greater than 0" in raised(Positive, {"a": 0})
    place = {"country": "uk", "zips": None}
    row = {
        "user": "a",
        "points": 1,
        "at": datetime(2026, 1, 1),
        "rate": 1.0,
        "kind": "page",
        "way": "w",
        "tags": [],
    }
    assert raised(Click, row | {"place": place}) == (
        "ValueError: w not in literal typing.Literal['web', 'app'] @ Click.way"
    )


def test_rows_after_one_that_is_refused_are_objects() -> None:
    frame = pl.DataFrame({"a": [0, 1]})
    made = of(Bounded, frame.schema).iterate(frame)
    with pytest.raises(ValueError, match="greater than 0"):
        next(made)
    assert next(made) == Bounded(a=1)


# Objects as columns


class Special(BaseModel):
    url: HttpUrl
    id: UUID
    price: Decimal = Field(max_digits=5, decimal_places=2)
    user_name: str = Field(alias="userName")


def test_values_without_a_column_type_are_text() -> None:
    row = {"url": "http://a.b/", "id": "12345678-1234-5678-1234-567812345678", "price": Decimal("1.25")}
    frame = pl.DataFrame([{**row, "userName": "ada"}], schema=class_schema(Special))
    made = list(of(Special).iterate(frame))
    assert made[0].user_name == "ada"
    assert back(Special, made)[0].equals(frame)


def test_results_that_do_not_fit_are_told_one_by_one() -> None:
    good, other = Nested(Plain(1, 1.0, None), []), Plain(1, 1.0, None)
    wrong_type, wrong_inner = Nested(Plain("x", 1.0, None), []), Nested(7, [])  # type: ignore[arg-type]
    as_dict = {"one": None, "many": None}
    frame, wrong = back(Nested, [good, other, wrong_type, as_dict, None, wrong_inner])
    assert sorted(wrong) == [1, 2, 4, 5]
    assert wrong[1].startswith("expected an object of Nested, or a dict with the keys one, many, got Plain(")
    assert wrong[2].startswith("column 'one' was declared Struct(")
    assert wrong[5] == (
        "Nested cannot be a row: TypeError: Nested.one is 7: 'int' object has no attribute 'a'"
    )
    assert frame["one"][0] == {"a": 1, "b": 1.0, "c": None, "d": 7, "e": None}


def test_objects_of_a_subclass_are_rows() -> None:
    class More(Flat):
        pass

    assert back(Flat, [More("a", 1), Flat("b", 2)])[0].rows() == [("a", 1, None), ("b", 2, None)]


def test_state_has_objects_of_a_class_and_lists_of_it() -> None:
    assert conversions(int) is None
    assert conversions(dict) is None
    load, store = conversions(list[Plain]) or ()
    assert load(store([Plain(1, 1.0, None)])) == [Plain(1, 1.0, None)]
    with pytest.raises(TypeError, match="expected an object of Plain, got 7"):
        store([7])


class ValuesOfEnums(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    kind: Kind
    kinds: list[Kind]
    other: Kind | None = None


@dataclass
class Unchecked:
    kind: Kind
    kinds: list[Kind]
    other: Kind | None = None


@pytest.mark.parametrize("kind", [ValuesOfEnums, Unchecked])
def test_a_field_of_an_enum_may_have_the_value_of_a_member(kind: Any) -> None:
    row = kind(kind="page", kinds=["video", Kind.PAGE], other="page")
    frame, wrong = back(kind, [row])
    assert not wrong
    assert frame.rows() == bl.Rows([row]).frame.rows() == [("page", ["video", "page"], "page")]


def test_an_object_with_a_wrong_value_is_refused_with_its_field() -> None:
    row = Unchecked(7, [])  # type: ignore[arg-type]
    assert back(Unchecked, [row])[1] == {
        0: "Unchecked cannot be a row: TypeError: Unchecked.kind is 7: 7 is not a valid Kind"
    }
    with pytest.raises(TypeError, match=r"Unchecked\.kind is 7: 7 is not a valid Kind"):
        bl.Rows([row])


@dataclass
class Lists:
    a: list[int]
    b: list[int] | None = None
    c: list[Plain] | None = None


def test_arrays_and_columns_of_nulls_are_lists() -> None:
    plain = {"a": 1, "b": 1.0, "c": None, "d": None, "e": None}
    inner = pl.Array(class_schema(Lists)["c"].inner, 1)  # type: ignore[attr-defined]
    frame = pl.DataFrame(
        {"a": [[1, 2], [1, None]], "b": [None, None], "c": [[plain], [plain | {"a": None}]]},
        schema={"a": pl.Array(pl.Int64, 2), "b": pl.Null(), "c": inner},
    )
    assert list(of(Lists).iterate(frame[:1])) == [Lists([1, 2], None, [Plain(1, 1.0, None)])]
    assert sorted(unusable(frame, of(Lists))) == [1]
    frame = frame.with_columns(a=None, c=None)
    assert sorted(unusable(frame, of(Lists))) == [0, 1]
    assert list(of(Lists).iterate(frame.with_columns(a=[1]))) == [Lists([1]), Lists([1])]
