"""The result of an expression here and in DuckDB, and the smallest part for which they differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import attrs
import duckdb
import narwhals as nw
import polars as pl
from sqlglot import exp

from beamlike.errors import BadQuery
from beamlike.expressions.tree import TypedExpr
from beamlike.spec.sql_expressions import Scope
from beamlike.spec.sql_parser import parse
from tests.beamlike.spec.oracle.generated import Part

REFUSED: Final = "refused"
FAILED: Final = "failed"
_TYPES: Final = {
    "BIGINT": "int", "INTEGER": "int", "SMALLINT": "int", "HUGEINT": "int", "TINYINT": "int", "DOUBLE": "float",
    "FLOAT": "float", "BOOLEAN": "bool", "VARCHAR": "text", "DATE": "date", "TIMESTAMP": "ts", "TIMESTAMP_NS": "ts",
    "TIMESTAMP_MS": "ts", "TIMESTAMP WITH TIME ZONE": "tz", "INTERVAL": "interval",
}  # fmt: skip


_STRICT: Final = {"CASE": 1, "CASE OF": 2, "COALESCE": 1}
"""The number of first arguments that are computed for each row; others only where they are chosen."""


@attrs.frozen
class Result:
    """The kind of an expression's type and its value for each row; `FAILED` for a row that is an error. `kind` is
    `REFUSED` if the expression is refused.
    """

    kind: str
    values: tuple[Any, ...] = ()
    message: str = ""


@attrs.frozen
class Both:
    """Evaluates expressions over one table here and in DuckDB."""

    frame: pl.DataFrame
    database: duckdb.DuckDBPyConnection
    scope: Scope = attrs.field(init=False)
    results: dict[tuple[str, str], Result] = attrs.field(factory=dict, init=False)

    @scope.default
    def _scope(self) -> Scope:
        return Scope("", {"r": {name: name for name in self.frame.columns}}, types=self.frame.schema)

    def here(self, text: str) -> Result:
        """Returns the result of an expression here, over rows as a step computes them."""
        return self._known("here", text, self._here)

    def there(self, text: str) -> Result:
        """Returns the result of an expression in DuckDB."""
        return self._known("there", text, self._there)

    def _known(self, place: str, text: str, find: Callable[[str], Result]) -> Result:
        if (place, text) not in self.results:
            self.results[place, text] = find(text)
        return self.results[place, text]

    def _here(self, text: str) -> Result:
        try:
            (selected,) = parse(f"SELECT {text} AS v FROM r").find_all(exp.Alias)
            made = self.scope.expression(selected.this)
        except BadQuery as error:
            return Result(REFUSED, message=str(error))
        assert isinstance(made, TypedExpr)
        assert made.dtype is not None
        return Result(_kind(made.dtype), self._rows(made, self.frame))

    def _rows(self, made: nw.Expr, rows: pl.DataFrame) -> tuple[Any, ...]:
        """Evaluates by bisection, as a step does: a row that fails is a dead letter."""
        try:
            lazy = nw.from_native(rows.lazy()).with_columns(made.alias("v"))
            return tuple(lazy.to_native().collect()["v"])
        except pl.exceptions.PolarsError:
            if rows.height == 1:
                return (FAILED,)
            half = rows.height // 2
            return self._rows(made, rows[:half]) + self._rows(made, rows[half:])

    def _there(self, text: str) -> Result:
        try:
            query = self.database.execute(f"SELECT {text} AS v FROM r ORDER BY id")
            return Result(_duckdb_kind(query.description), tuple(value for (value,) in query.fetchall()))
        except duckdb.Error as error:
            return self._tried(text, str(error))

    def _tried(self, text: str, message: str) -> Result:
        """Returns the result of an expression that is refused, or fails for some rows."""
        try:
            query = self.database.execute(f"SELECT TRY({text}), TRY(({text}) IS NULL) FROM r ORDER BY id")
        except duckdb.Error:
            return Result(REFUSED, message=message)
        kind = _duckdb_kind(query.description)
        return Result(
            kind, tuple(FAILED if missing is None else value for value, missing in query.fetchall())
        )

    def difference(self, part: Part) -> Difference | None:
        """Returns the difference of the smallest part that differs; None if nothing does."""
        try:
            found = differing(part, self.here(part.text()), self.there(part.in_duckdb()), frozenset())
        except ValueError:
            return None  # a date that Python does not have
        if found is None:
            return None
        for one in part.arguments:
            inner = self.difference(one)
            if inner is not None:
                return inner
        results = [self.here(one.text()) for one in part.arguments]
        if any(one.kind == REFUSED for one in results):
            return None  # a constant that fails for each row, in DuckDB as well
        # An error of an operand is one of the whole here, also beside NULL, and a number beyond 64 bits is one.
        strict = results[: _STRICT.get(part.name, len(results))]
        rows = range(self.frame.height)
        failed = frozenset(n for n in rows if any(one.values[n] is FAILED for one in strict))
        return differing(part, self.here(part.text()), self.there(part.in_duckdb()), failed)


@attrs.frozen
class Difference:
    """A part with unlike results. `outcome` says how they differ, and `here` and `there` are the first such values."""

    part: Part
    outcome: str
    here: Any
    there: Any

    @property
    def kind(self) -> str:
        return f"{self.part.signature}: {self.outcome}"


def differing(part: Part, here: Result, there: Result, without: frozenset[int]) -> Difference | None:
    """Compares two results of a part, `without` some rows."""
    if here.kind == REFUSED and {*there.values} == {FAILED}:
        return None  # a constant that fails for each row
    if REFUSED in (here.kind, there.kind):
        if here.kind == there.kind:
            return None
        outcome = "refused here" if here.kind == REFUSED else "refused there"
        return Difference(part, outcome, here.message or here.kind, there.message or there.kind)
    for number, (one, other) in enumerate(zip(here.values, there.values, strict=True)):
        if number not in without and not alike(one, other):
            return Difference(part, _outcome(one, other), one, other)
    if here.kind != there.kind and "null" not in (here.kind, there.kind):
        return Difference(part, f"type {here.kind} for {there.kind}", here.kind, there.kind)
    return None


def _outcome(here: Any, there: Any) -> str:
    for value, what in ((FAILED, "fails"), (None, "null")):
        if here is value or there is value:
            return f"{what} {'here' if here is value else 'there'}"
    return "value"


def alike(here: Any, there: Any) -> bool:
    """True if two values are the same: floats up to rounding, and integers beyond 64 bits fail here."""
    if here is FAILED or there is FAILED:
        beyond = isinstance(there, int) and not -(2**63) <= there < 2**63
        return here is there or (here is FAILED and beyond)
    if here is None or there is None:
        return here is there
    if isinstance(here, float) or isinstance(there, float):
        one, other = float(here), float(there)
        return one == other or (one != one and other != other) or math.isclose(one, other, rel_tol=1e-9)
    if (
        isinstance(here, datetime)
        and isinstance(there, datetime)
        and (here.tzinfo is None) != (there.tzinfo is None)
    ):
        return False
    return bool(here == there)


def _duckdb_kind(description: Any) -> str:
    name = str(description[0][1])
    return "decimal" if name.startswith("DECIMAL") else _TYPES.get(name, name)


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "int"
    if dtype.is_float():
        return "float"
    if isinstance(dtype, pl.Datetime):
        return "tz" if dtype.time_zone else "ts"
    kinds = {
        pl.Decimal: "decimal",
        pl.Boolean: "bool",
        pl.String: "text",
        pl.Enum: "text",
        pl.Date: "date",
        pl.Duration: "interval",
        pl.Null: "null",
    }
    return kinds[type(dtype)]
