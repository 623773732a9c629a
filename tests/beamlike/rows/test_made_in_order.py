"""Objects of classes whose constructor does not accept the fields in their order."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any, NamedTuple

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.rows.annotations import class_schema
from beamlike.rows.objects import RowObjects
from beamlike.rows.row_class import RowClass
from beamlike.rows.row_classes import columns_of_class


@dataclass
class Between:
    a: int
    extra: InitVar[int] = 3
    b: int = 4


@dataclass(init=False)
class Own:
    a: int
    b: int

    def __init__(self, b: int, a: int) -> None:
        self.a, self.b = a, b


@dataclass
class Base:
    a: int
    b: int


class Extended(Base):
    def __init__(self, b: int, a: int) -> None:
        super().__init__(a, b)


class Pair(NamedTuple):
    a: int
    b: int


class Turned(Pair):
    def __new__(cls, b: int, a: int) -> Turned:
        return super().__new__(cls, a, b)


@attrs.define(init=False)
class Attrs:
    a: int
    _b: int = attrs.field(alias="c")

    def __init__(self, c: int, a: int) -> None:
        self.__attrs_init__(a, c)  # type: ignore[attr-defined]

    @property
    def b(self) -> int:
        return self._b


@attrs.define(kw_only=True)
class Named:
    a: int
    b: int


@dataclass
class Plain:
    a: int
    b: int
    twice: int = field(init=False, default=0)


@pytest.mark.parametrize("kind", [Between, Own, Extended, Turned, Attrs, Named, Plain, Base, Pair])
def test_a_value_is_in_the_field_of_its_name(kind: Any) -> None:
    columns = tuple(columns_of_class(kind))
    frame = pl.DataFrame([dict(zip(columns, (1, 2), strict=True))], schema=class_schema(kind))
    objects = RowObjects(RowClass(kind), columns)
    for made in [*objects.iterate(frame), *map(objects.make, objects.raw(frame))]:
        assert (made.a, made.b) == (1, 2)


@dataclass
class Needs:
    a: int
    secret: InitVar[int]


@dataclass(init=False)
class Other:
    a: int

    def __init__(self, x: int) -> None:
        self.a = x


@dataclass
class Outer:
    one: list[Other]


@pytest.mark.parametrize(
    ("kind", "called", "why"),
    [
        (Needs, "Needs(a=...)", "'secret'"),
        (Other, "Other(a=...)", "'x'"),
        (Outer, "Other(a=...)", "'x'"),
    ],
)
def test_a_class_that_needs_more_than_its_fields_is_refused(kind: Any, called: str, why: str) -> None:
    def function(row: Any) -> None:
        raise AssertionError

    function.__annotations__ = {"row": kind, "return": kind}
    rows = bl.Rows(pl.DataFrame(schema=class_schema(kind)))
    with pytest.raises(bl.PlanError) as error:
        bl.Pipeline("p").read("rows", rows).map(function, name="step")
    assert str(error.value).startswith(f"step 'step': rows are made by {called}")
    assert why in str(error.value)


def test_a_class_of_state_that_needs_more_than_its_fields_is_refused() -> None:
    class Kept(bl.Process):
        all = bl.List(Needs)

        def element(self, row: dict[str, Any]) -> list[Pair]:
            raise AssertionError

    source, watermark = bl.Rows([{"user": "ada", "at": 1}]), bl.MonotonousTimestamps()
    rows = bl.Pipeline("p").read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    with pytest.raises(
        bl.PlanError, match=r"rows are made by Needs\(a=...\), with one argument for each field"
    ):
        rows.group_by("user").process(Kept(), keep_forever=True)
