"""Defaults of fields in place of nulls: the value of the class, whatever the type of the column."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import beamlike as bl
from beamlike.rows.objects import RowObjects
from beamlike.rows.row_class import RowClass

PLUS_2 = timezone(timedelta(hours=2))


def with_default(annotation: Any, default: Any) -> type:
    return make_dataclass("Row", [("x", annotation, field(default=default))])


@pytest.mark.parametrize(
    ("annotation", "default", "dtype", "value"),
    [
        (str, "unknown", pl.Enum(["a"]), "a"),
        (str, "unknown", pl.Categorical(), "a"),
        (timedelta, timedelta(microseconds=1), pl.Duration("ms"), timedelta(1)),
        (float, 0.1, pl.Float32(), 0.5),
        (float, float("inf"), pl.Float32(), 1.0),
        (int, -1, pl.UInt64(), 2**63 + 5),
        (int, 1000, pl.Int8(), 1),
        (
            datetime,
            datetime(2020, 1, 1),
            pl.Datetime("us", "UTC"),
            datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")),
        ),
        (datetime, datetime(2020, 1, 1, tzinfo=PLUS_2), pl.Datetime("ms"), datetime(2026, 1, 1)),
        (date, date(2020, 1, 1), pl.Date(), date(2026, 1, 1)),
        (Decimal, Decimal("0.12345"), pl.Decimal(10, 2), Decimal("1.50")),
        (int, 5, pl.Null(), None),
        (int | None, 5, None, None),
        (str, None, pl.String(), "a"),
    ],
)
def test_a_default_is_as_it_is_in_the_class(annotation: Any, default: Any, dtype: Any, value: Any) -> None:
    kind = with_default(annotation, default)
    frame = pl.DataFrame({"other": [1, 2]})
    if dtype is not None:
        frame = frame.with_columns(pl.Series("x", [None, value], dtype=dtype))
    objects = RowObjects(RowClass(kind), tuple(name for name in frame.columns if name == "x"))
    for made in (list(objects.iterate(frame)), list(map(objects.make, objects.raw(frame)))):
        found = [one.x for one in made]
        assert [*map(repr, found)] == [repr(default), repr(default if value is None else value)]


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "x"), (str, 1), (bool, 1), (datetime, "2026-01-01"), (date, datetime(2026, 1, 1, 5)), (int, 1.5)],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_default_of_another_type_is_refused(annotation: Any, default: Any, nested: bool) -> None:
    kind = with_default(annotation, default)
    taken = make_dataclass("Outer", [("rows", list[kind])]) if nested else kind  # type: ignore[valid-type]

    def function(row: Any) -> None:
        raise AssertionError

    function.__annotations__ = {"return": taken}
    with pytest.raises(bl.PlanError) as error:
        bl.Pipeline("p").read("rows", bl.Rows([{"n": 7}])).map(function, name="step")
    why = f"step 'step': Row.x is {annotation.__name__}, and its default is {default!r}"
    assert str(error.value) == why
