"""Generated expressions of the DSL have the values that plain Python computes, whatever the types of their columns."""

# ruff: noqa: E501  a line for each form

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl
import pytest

import beamlike as bl
from beamlike.expressions.typed import TypeFault, Typing
from tests.beamlike.spec.oracle.columns import COLUMNS, table

FAILED: Final = "failed"
FRAME: Final = table()


class Failed(Exception):
    """Raised by plain Python for a value that is an error here, too."""


@attrs.frozen
class Form:
    """A function: its kind, those of its arguments, and how it is written here and in plain Python.

    Arguments of `python` are never None unless `nulls` is true. Otherwise the result is None if one of them is.
    """

    kind: str
    arguments: str
    here: Callable[..., Any]
    python: Callable[..., Any]
    nulls: bool = False
    lazy: bool = False
    """True if later arguments are computed only where the first is None."""


def whole(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise Failed
    return value


def by_zero(
    function: Callable[[Any, Any], Any], otherwise: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """Returns a division for which Python raises an error if the divisor is zero."""
    return lambda x, y: otherwise(x, y) if y == 0 else function(x, y)


def quotient_by_zero(x: float, y: float) -> float:
    return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1, y)


def float_floor(x: float, y: float) -> float:
    if math.isinf(x) or math.isnan(x) or math.isnan(y):
        return math.nan
    return float(x // y)


def kleene_and(x: bool | None, y: bool | None) -> bool | None:
    return False if x is False or y is False else None if x is None or y is None else True


def kleene_or(x: bool | None, y: bool | None) -> bool | None:
    return True if x or y else None if x is None or y is None else False


def ordered(value: Any) -> Any:
    """Returns a sort key by which NaN equals itself and is greater than all numbers, as in polars and Spark."""
    return (value != value, 0 if value != value else value)


def between(x: Any, low: Any, high: Any) -> bool | None:
    if x is None:
        return None
    return kleene_and(None if low is None else low <= x, None if high is None else x <= high)


def first(x: Any, y: Any) -> Any:
    """Returns the first value that is not None; integers of unlike types have 64 bits."""
    found = y if x is None else x
    return whole(found) if type(found) is int else found


def known(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Returns a function of the arguments that are not None; None without any."""
    return lambda *values: function(some) if (some := [one for one in values if one is not None]) else None


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def as_float(value: Any) -> float:
    return float(value) + (0.0 if isinstance(value, Decimal) else -0.0)  # a decimal has no -0


INT2, FLOAT2 = ("int int", "float float")
COMPARISONS: Final = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
WIDE: Final = timedelta(hours=36, microseconds=7)
FORMS: Final = [
    *(Form("int", INT2, op, lambda x, y, op=op: whole(op(x, y))) for op in (operator.add, operator.sub, operator.mul)),
    *(Form("float", kinds, op, lambda x, y, op=op: op(as_float(x), as_float(y)))
      for op in (operator.add, operator.sub, operator.mul) for kinds in (FLOAT2, "int float", "decimal float")),
    *(Form("decimal", kinds, op, lambda x, y, op=op: op(x, y))
      for op in (operator.add, operator.sub, operator.mul) for kinds in ("decimal decimal", "decimal small")),
    Form("int", INT2, operator.floordiv, by_zero(lambda x, y: whole(x // y), lambda x, y: None)),
    Form("int", INT2, operator.mod, by_zero(lambda x, y: whole(x % y), lambda x, y: None)),
    Form("float", FLOAT2, operator.mod, by_zero(lambda x, y: math.nan if math.isinf(x) else x % y, lambda x, y: math.nan)),
    Form("float", FLOAT2, operator.floordiv, by_zero(float_floor, quotient_by_zero)),
    *(Form("float", kinds, operator.truediv, by_zero(lambda x, y: as_float(x) / as_float(y), lambda x, y: quotient_by_zero(as_float(x), as_float(y))))
      for kinds in (INT2, FLOAT2, "decimal decimal", "int decimal", "decimal int")),
    *(Form("int", "int", lambda x, n=n: x**n, lambda x, n=n: whole(x**n)) for n in (0, 1, 2, 3)),
    *(Form("int", "small", lambda x, n=n: n - x, lambda x, n=n: n - x) for n in (0, 5)),
    *(Form("int", "int", lambda x, n=n: x * n + n, lambda x, n=n: whole(whole(x * n) + n)) for n in (2, 300)),
    Form("int", "int", operator.neg, lambda x: whole(-x)),
    Form("int", "int", lambda x: x.abs(), lambda x: whole(abs(x))),
    Form("float", "float", lambda x: x.abs(), abs),
    Form("float", "float", operator.neg, operator.neg),
    Form("float", "small", lambda x: x.clip(0, 20.5), lambda x: float(min(max(x, 0), 20.5))),
    Form("int", "small", lambda x: x.clip(-500, 3), lambda x: min(max(x, -500), 3)),
    Form("int", "small", lambda x: x.fill_null(300), lambda x: 300 if x is None else x, nulls=True),
    Form("int", "bool", lambda x: x * 10, lambda x: x * 10),
    Form("int", "bool bool", operator.add, operator.add),
    Form("int", "int int", lambda x, y: bl.when(x < y).then(x).otherwise(y), lambda x, y: first(x if None not in (x, y) and x < y else y, None), nulls=True),
    Form("int", "small int", lambda x, y: bl.when(x < 5).then(x * x).otherwise(0), lambda x, y: x * x if x is not None and x < 5 else 0, nulls=True),
    *(Form(kind, f"{kind} {kind}", lambda x, y: nw.coalesce(x, y), first, nulls=True, lazy=True)
      for kind in ("int", "float", "decimal", "text", "ts", "date", "bool")),
    Form("int", INT2, lambda x, y: nw.max_horizontal(x, y), known(lambda some: whole(max(some))), nulls=True),
    Form("int", INT2, lambda x, y: nw.sum_horizontal(x, y), lambda x, y: whole((x or 0) + (y or 0)), nulls=True),
    *(Form("bool", "float float", op, lambda x, y, op=op: op(ordered(x), ordered(y))) for op in COMPARISONS),
    *(Form("bool", kinds, op, op) for op in COMPARISONS for kinds in (INT2, "decimal decimal", "ts ts", "date date", "bool bool")),
    *(Form("bool", "date ts", op, lambda x, y, op=op: op(midnight(x), y)) for op in COMPARISONS),
    *(Form("bool", "decimal small", op, op) for op in COMPARISONS),
    *(Form("bool", "ts", lambda x, op=op: op(x, datetime(2024, 2, 29, 10, 11, 12, 345678)),
           lambda x, op=op: op(x, datetime(2024, 2, 29, 10, 11, 12, 345678))) for op in COMPARISONS),
    *(Form("bool", "int", lambda x, n=n: x < n, lambda x, n=n: x < n) for n in (-1, 300, 2**63)),
    *(Form("bool", "int", lambda x, given=given: x.is_in(given), lambda x, given=given: x in given)
      for given in ([1, 300], [-1, 2.5], [2**63, 7])),
    Form("bool", "ts", lambda x: x.is_in([datetime(1970, 1, 1), datetime(2024, 2, 29, 10, 11, 12, 345678)]),
         lambda x: x in (datetime(1970, 1, 1), datetime(2024, 2, 29, 10, 11, 12, 345678))),
    Form("bool", "int int int", lambda x, y, z: x.is_between(y, z), between, nulls=True),
    Form("bool", "bool bool", operator.and_, kleene_and, nulls=True),
    Form("bool", "bool bool", operator.or_, kleene_or, nulls=True),
    Form("bool", "bool", operator.invert, operator.not_),
    Form("bool", "int", lambda x: x.is_null(), lambda x: x is None, nulls=True),
    Form("text", "text text", operator.add, operator.add),
    Form("int", "text", lambda x: x.str.len_chars() - 10, lambda x: len(x) - 10),
    *(Form("int", "ts", lambda x, part=part: getattr(x.dt, part)() * 100, lambda x, part=part: getattr(x, part) * 100)
      for part in ("year", "month", "day", "hour", "minute", "second")),
    Form("int", "ts", lambda x: x.dt.hour() * 60 + x.dt.minute(), lambda x: x.hour * 60 + x.minute),
    Form("interval", "ts ts", operator.sub, operator.sub),
    Form("interval", "date date", operator.sub, operator.sub),
    *(Form("ts", "ts", lambda x, op=op: op(x, WIDE), lambda x, op=op: op(x, WIDE)) for op in (operator.add, operator.sub)),
    *(Form("ts", "date", lambda x, op=op: op(x, WIDE), lambda x, op=op: op(midnight(x), WIDE)) for op in (operator.add, operator.sub)),
    Form("bool", "interval interval", operator.lt, operator.lt),
    Form("date", "ts", lambda x: x.cast(nw.Date), lambda x: x.date()),
    Form("int", "ts", lambda x: x.cast(nw.Int64), lambda x: (x - datetime(1970, 1, 1)) // timedelta(microseconds=1)),
]  # fmt: skip
BY_KIND: Final = {
    kind: [form for form in FORMS if form.kind == kind] for kind in {form.kind for form in FORMS}
}
SMALL: Final = ("i8", "i16", "u8", "u16", "j")


def drawn(rng: random.Random, kind: str, depth: int) -> tuple[Any, list[Any]]:
    """Returns an expression and its values in plain Python."""
    if depth == 0 or kind not in BY_KIND or rng.random() < 0.1:
        names = SMALL if kind == "small" else [name for name, (of, _, _) in COLUMNS.items() if of == kind]
        name = rng.choice([one for one in names if one not in ("e", "f32")])
        return bl.col(name), FRAME[name].to_list()
    return of_form(rng, rng.choice(BY_KIND[kind]), depth)


def of_form(rng: random.Random, form: Form, depth: int) -> tuple[Any, list[Any]]:
    parts = [drawn(rng, kind, depth - 1) for kind in form.arguments.split()]
    rows = zip(*(values for _, values in parts), strict=True)
    return form.here(*(made for made, _ in parts)), [value(form, row) for row in rows]


def value(form: Form, row: tuple[Any, ...]) -> Any:
    if FAILED in (row[:1] if form.lazy and row[0] is not None else row):
        return FAILED
    if not form.nulls and None in row:
        return None
    try:
        return form.python(*row)
    except Failed:
        return FAILED


def results(expression: Any, rows: pl.DataFrame) -> list[Any]:
    """Computes an expression as a step does: a row that fails is a dead letter."""
    try:
        return nw.from_native(rows.lazy()).select(v=expression).to_native().collect()["v"].to_list()
    except pl.exceptions.PolarsError:
        if rows.height == 1:
            return [FAILED]
        half = rows.height // 2
        return results(expression, rows[:half]) + results(expression, rows[half:])


def alike(here: Any, there: Any) -> bool:
    if isinstance(here, float) and isinstance(there, float):
        return here == there or (here != here and there != there) or math.isclose(here, there, rel_tol=1e-12)
    if isinstance(here, Decimal) and isinstance(there, Decimal):
        return abs(here - there) < Decimal("1e-15")  # a product has at most 18 digits after the point
    return type(here) is type(there) and bool(here == there)


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_each_function_has_the_values_of_plain_python(number: int) -> None:
    rng = random.Random(number)
    typing = Typing.of(FRAME.schema)
    for _ in range(6):
        made, wanted = of_form(rng, FORMS[number], rng.choice((1, 1, 2, 3)))
        (expression,) = typing.typed(made)
        found = results(expression, FRAME)
        lost = [n for n, (one, other) in enumerate(zip(found, wanted, strict=True)) if not alike(one, other)]
        assert not lost, (str(made), [(found[n], wanted[n]) for n in lost[:2]], FRAME[lost[0]].to_dicts())


@pytest.mark.parametrize(
    "mixed",
    [
        lambda: bl.col("ts") < 1_800_000_000,
        lambda: bl.col("ts") < "2024-01-01",
        lambda: bl.col("d2") > "9",
        lambda: bl.col("s") == 1,
        lambda: bl.col("dd").is_in([1, 2]),
        lambda: bl.col("du") > 5,
        lambda: bl.col("ts") == bl.col("tz"),
        lambda: bl.col("dd") + 1,
        lambda: bl.col("s") * 2,
        lambda: bl.col("ts") + bl.col("ts"),
        lambda: nw.coalesce(bl.col("j"), bl.col("s")),
        lambda: bl.when(bl.col("b")).then(bl.col("j")).otherwise(bl.lit("x")),
        lambda: bl.col("u8").clip(0, datetime(2024, 1, 1)),
        lambda: bl.col("j").fill_null("none"),
        lambda: bl.col("tz").is_between(datetime(2024, 1, 1), datetime(2025, 1, 1)),
    ],
)
def test_operands_without_a_common_meaning_are_refused_with_both_types(mixed: Callable[[], Any]) -> None:
    with pytest.raises(TypeFault, match=r"\w+.* (have no|cannot be compared with|and) "):
        Typing.of(FRAME.schema).typed(mixed())


def test_floats_of_32_bits_have_64_beside_whole_numbers() -> None:
    frame = pl.DataFrame({"f": [16777216.0], "n": [1]}, schema={"f": pl.Float32, "n": pl.Int8})
    typing = Typing.of(frame.schema)
    for made, wanted in ((bl.col("f") + bl.col("n"), 16777217.0), (bl.col("n") - bl.col("f"), -16777215.0)):
        assert results(typing.typed(made)[0], frame) == [wanted]
    (among_themselves,) = typing.typed(bl.col("f") * bl.col("f") + 0.5)
    assert among_themselves.dtype == pl.Float32


def squares(*values: int | None) -> bl.Collection:
    rows = [{"x": value, "at": n} for n, value in enumerate(values)]
    how: dict[str, Any] = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    read = bl.Pipeline("p").read("r", bl.Rows(rows), **how)
    x = bl.col("x")
    return read.with_columns(
        square=bl.when(x < 1000).then(x * x).otherwise(-1),
        either=nw.coalesce(x, x * x),
        filled=x.fill_null(x * x) + 0,
        double=x * 2,
    )


def test_a_branch_that_fails_does_not_fail_rows_that_do_not_choose_it() -> None:
    found = squares(3, 2**61, None, -7).collect().sort("at")
    assert found["square"].to_list() == [9, -1, -1, 49]
    assert found["either"].to_list() == [3, 2**61, None, -7]
    assert found["filled"].to_list() == [3, 2**61, None, -7]


def test_a_whole_number_beyond_64_bits_is_a_dead_letter_that_says_so() -> None:
    made = squares(3, 2**62 + 1)
    rows, letters = bl.Memory(), bl.Memory()
    made.write("rows", rows)
    made.dead_letters().write("letters", letters)
    made.pipeline.run()
    assert [row["square"] for row in rows.rows()] == [9]
    (letter,) = letters.rows()
    assert "9223372036854775810 does not fit into 64 bits" in letter["error"]
