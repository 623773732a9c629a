"""Functions that declare classes of rows: their arguments and results, and errors at plan time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, wraps
from typing import Any, Generic, NamedTuple, NotRequired, Protocol, TypedDict, TypeVar

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import PlanError, UnknownColumn, WrongType
from beamlike.steps.declared import given, taken
from tests.support.row_classes import Flat, Kind, Place, Score, scored

ROWS = [
    {"user": "ada", "points": 3, "note": "x"},
    {"user": None, "points": 4, "note": None},
    {"user": "bob", "points": -1, "note": None},
]
SCHEMA = pl.Schema({"user": pl.String(), "points": pl.Int64(), "note": pl.String()})


def rows(given: list[Any] = ROWS) -> bl.Collection:
    return bl.Pipeline("p", max_dead_letters=100).read("rows", bl.Rows(given, schema=SCHEMA))


def errors(collection: bl.Collection) -> list[str]:
    return collection.dead_letters().collect()["error"].to_list()


_T = TypeVar("_T")


@dataclass
class Pair(Generic[_T]):
    user: _T


# Calls


def test_a_function_takes_and_gives_objects_and_what_a_class_refuses_is_a_dead_letter() -> None:
    scores = rows().map(scored)
    assert scores.schema["last"] == pl.Struct(SCHEMA)
    assert scores.collect().to_dicts() == [{"user": "ada", "points": 3, "last": ROWS[0]}]
    assert errors(scores) == [
        "column 'user' is null, and Flat.user may not be None: give it a default, or the type str | None",
        "ValidationError: Score.points: Input should be greater than or equal to 0",
    ]


def test_the_dead_letter_of_an_object_has_the_whole_row() -> None:
    class Named(NamedTuple):
        user: str

    def named(row: Named) -> Named:
        return row

    named.__annotations__ = {"row": Named, "return": Named}
    letters = rows().map(named).dead_letters().collect()
    assert letters["row"].to_list() == ['{"user":null,"points":4,"note":null}']


def test_a_model_refuses_rows_with_its_own_message() -> None:
    def kept(row: Score) -> bool:
        return row.points > 0

    found = rows().filter(kept)
    assert found.collect().to_dicts() == [ROWS[0]]
    assert sorted(errors(found)) == [
        "ValidationError: Score.points: Input should be greater than or equal to 0",
        "ValidationError: Score.user: Input should be a valid string",
    ]


def test_flat_map_gives_any_number_of_objects() -> None:
    def several(row: Flat) -> Iterator[Flat]:
        for number in range(row.points):
            yield row._replace(points=number)

    found = rows().flat_map(several)
    assert found.schema == SCHEMA
    assert found.collect()["points"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("result", [Flat("a", 1), Score(user="a", points=1), "text", {"user": "a"}])
def test_flat_map_refuses_a_single_row(result: Any) -> None:
    (why, *_) = errors(rows().flat_map(lambda row: result, schema=Flat))
    assert why.startswith("flat_map expects several dicts for a row, such as a list")


def test_a_schema_may_be_the_class_of_results_that_no_annotation_tells() -> None:
    found = rows().map(lambda row: Flat(row["user"], row["points"]), schema=Flat).collect()
    assert found["points"].to_list() == [3, 4, -1]
    mixed = rows().map(lambda row: Flat("a", 1) if row["points"] > 3 else ROWS[0], schema=Flat)
    assert mixed.collect()["user"].to_list() == ["ada", "a", "ada"]


def test_a_schema_beside_an_annotation_chooses_other_types() -> None:
    def kept(row: Flat) -> Flat:
        return row

    small = rows().map(kept, schema={"note": str, "user": str, "points": pl.Int16})
    assert small.collect().schema == {"note": pl.String(), "user": pl.String(), "points": pl.Int16()}


def test_a_function_with_sides_takes_objects_too() -> None:
    p = bl.Pipeline("p", max_dead_letters=100)
    source = bl.Rows([{**row, "at": n} for n, row in enumerate(ROWS)], schema={**SCHEMA, "at": int})
    plays = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())

    def more(row: Flat, extra: int) -> Score:
        return Score(user=row.user, points=row.points + extra)

    best = p.read("extra", bl.Rows([{"n": 10}]))
    found = plays.map(more, side={"extra": bl.as_singleton(best, "n")})
    assert found.collect()["points"].to_list() == [13, 9]
    assert errors(found) == [
        "column 'user' is null, and Flat.user may not be None: give it a default, or the type str | None"
    ]


class Points(TypedDict):
    points: float
    note: NotRequired[str]


class Kinds(TypedDict):
    kind: Kind


def test_a_typed_dict_has_the_other_columns_too_and_lacks_keys_that_are_null() -> None:
    def keys(row: Points) -> dict[str, Any]:
        return {"found": f"{sorted(row)} {row['points']}"}

    found = rows().map(keys, schema={"found": str}).collect()["found"].to_list()
    assert found[:2] == ["['note', 'points', 'user'] 3.0", "['points', 'user'] 4.0"]

    def kind(row: Kinds) -> dict[str, Any]:
        return {**row, "kind": row["kind"].value.upper()}

    pages = bl.Pipeline("p").read("pages", bl.Rows([{"user": "ada", "kind": "page"}]))
    assert pages.map(kind).collect().rows() == [("ada", "PAGE")]


def test_an_error_of_the_function_keeps_the_rows_after_it() -> None:
    def fails(row: Flat) -> Flat:
        if row.points == 3:
            raise LookupError("the user's")
        return row

    found = rows().map(fails)
    assert found.collect()["points"].to_list() == [-1]
    assert "LookupError: the user's" in errors(found)


# How annotations are found


class Methods:
    def method(self, row: Flat) -> Score:
        raise NotImplementedError

    @staticmethod
    def static(row: Flat) -> Score:
        raise NotImplementedError

    def __call__(self, row: Flat) -> Score:
        raise NotImplementedError


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


def with_extra(extra: int, row: Flat) -> Score:
    raise NotImplementedError


@pytest.mark.parametrize(
    "fn", [scored, Methods().method, Methods.static, Methods(), logged(scored), partial(with_extra, 1)]
)
def test_annotations_of_anything_that_can_be_called_are_found(fn: Any) -> None:
    found = taken(fn, SCHEMA, "step")
    assert found is not None
    assert (found.kind, found.columns) == (Flat, ("user", "points", "note"))
    assert given(fn, "step") is Score


def test_a_class_of_the_function_around_is_found() -> None:
    class Inner(NamedTuple):
        user: str

    def around(row: Flat) -> Inner:
        return Inner(row.user)

    assert given(around, "step") is Inner


class HasUser(Protocol):
    user: str


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], Mapping, Any, object, "Unknown", HasUser, None])
def test_functions_of_other_rows_receive_dicts(annotation: Any) -> None:
    def fn(row):
        return {"user": type(row).__name__}

    if annotation is not None:
        fn.__annotations__ = {"row": annotation}
    assert taken(fn, SCHEMA, "step") is None
    assert rows().map(fn, schema={"user": str}).collect()["user"].to_list() == ["dict"] * 3
    assert taken(Flat, SCHEMA, "step") is None
    assert taken(max, SCHEMA, "step") is None


@pytest.mark.parametrize(
    "annotation",
    [list[Score], Iterator[Score], Iterable[Score], Generator[Score, None, None], tuple[Score, ...],
     list[Score] | None, Iterator[Score | bl.TimestampedValue]],
)  # fmt: skip
def test_results_of_many_forms_have_a_class(annotation: Any) -> None:
    def fn(row): ...

    fn.__annotations__ = {"return": annotation}
    assert given(fn, "step", several=True) is Score
    assert given(fn, "step") is None


# Refusals


class Missing(NamedTuple):
    usr: str


class Wrong(NamedTuple):
    user: str
    points: str


class Exact(NamedTuple):
    points: Decimal


class WithPlace(NamedTuple):
    place: Place | None


class Other(NamedTuple):
    user: str
    other: int


@dataclass
class NoColumn:
    user: str
    any: object


class Bare:
    user: str


def annotated(row: Any = Any, result: Any = Any) -> Callable[..., Any]:
    def fn(row): ...

    fn.__annotations__ = {"row": row, "return": result}
    return fn


REFUSED: dict[str, tuple[Callable[[bl.Collection], Any], type[PlanError], str]] = {
    "a column that is not there": (
        lambda c: c.map(annotated(Missing)),
        UnknownColumn,
        "step 'rows.map': there is no column 'usr'; the columns are user, points, note; did you mean 'user'?; "
        "Missing.usr needs it, as it has no default",
    ),
    "a column of another type": (
        lambda c: c.filter(annotated(Wrong)),
        WrongType,
        "step 'rows.filter': Wrong.points is str, and its column is Int64; cast the column 'points' before, or change "
        "the field",
    ),
    "a float for a Decimal": (
        lambda c: c.select(points=bl.col("points") * 1.5).map(annotated(Exact)),
        WrongType,
        "Exact.points is Decimal, and its column is Float64",
    ),
    "a struct without a field": (
        lambda c: c.map(dict, schema={"place": {"contry": str}}).map(annotated(WithPlace)),
        WrongType,
        "WithPlace.place.country is not in 'place', which has contry; did you mean 'contry'?",
    ),
    "a struct with a field of another type": (
        lambda c: c.map(dict, schema={"place": {"country": str, "zips": list[str]}}).map(annotated(WithPlace)),
        WrongType,
        "WithPlace.place.zips[] is int, and its column is String",
    ),
    "text for a struct": (
        lambda c: c.select(place=bl.col("user")).map(annotated(WithPlace)),
        WrongType,
        "WithPlace.place is Place | None, and its column is String",
    ),
    "a class that is no class of rows": (
        lambda c: c.map(annotated(Bare)),
        WrongType,
        "declares row: Bare, which no row can be; rows are dicts, or objects of a dataclass, attrs class, NamedTuple, "
        "TypedDict or pydantic model",
    ),
    "a field that no column can have": (
        lambda c: c.map(annotated(result=NoColumn)),
        WrongType,
        "step 'rows.map': NoColumn.any: object has no column type",
    ),
    "results of two classes": (
        lambda c: c.flat_map(annotated(result=list[Flat | Score])),
        WrongType,
        "returns Flat and Score; the rows of a step are of one class",
    ),
    "a result beside another schema": (
        lambda c: c.map(annotated(result=Other), schema={"user": str, "othr": int}),
        PlanError,
        "step 'rows.map': schema= has no 'other', and Other has; the columns are user, othr; did you mean 'othr'?",
    ),
    "a schema with more columns": (
        lambda c: c.map(annotated(result=Other), schema={"user": str, "other": int, "more": int}),
        PlanError,
        "Other has no 'more', and schema= has; the columns are user, other",
    ),
    "a result of another type than the schema": (
        lambda c: c.map(annotated(result=Other), schema={"user": str, "other": str}),
        WrongType,
        "Other.other is Int64, and schema= declares String",
    ),
    "two classes for a row": (
        lambda c: c.map(annotated(row=Flat | Other), schema=SCHEMA),
        WrongType,
        "declares row: Flat | Other, but the rows of a step are of one class",
    ),
    "a list for a row": (
        lambda c: c.map(annotated(row=list[int]), schema=SCHEMA),
        WrongType,
        "declares row: list[int], which no row can be; rows are dicts, or objects of a dataclass",
    ),
    "a generic class for a row": (
        lambda c: c.map(annotated(row=Pair[int]), schema=SCHEMA),
        WrongType,
        "declares Pair[int], but rows cannot be of a generic class; write a class whose fields have the types",
    ),
    "a generic class as result": (
        lambda c: c.flat_map(annotated(result=Iterator[Pair[int] | None])),
        WrongType,
        "declares Pair[int], but rows cannot be of a generic class; write a class whose fields have the types",
    ),
    "a class for a schema that is none": (
        lambda c: c.map(dict, schema=Bare),
        WrongType,
        "schema= must be a class with fields that are columns, and Bare is none; make it a dataclass",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_at_plan_time(case: str) -> None:
    call, kind, message = REFUSED[case]
    with pytest.raises(PlanError) as caught:
        call(rows())
    assert message in str(caught.value)
    assert type(caught.value) is kind
