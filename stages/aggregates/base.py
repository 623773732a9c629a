"""Aggregates as triples of expressions: lift (rows -> accumulator columns), merge (an aggregation), extract.

Merging is associative, and the accumulator of nothing is its identity, so how elements were bundled does not show.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, Protocol

import attrs
import polars as pl
from polars.exceptions import PolarsError

from stages.errors import ResultError
from windowing.columns import EVENT_TIME
from windowing.identity import Declared, fields_of

Schema = pl.Schema

ARRIVAL: Final = "__arrival"
"""Of single rows, where an aggregate is `numbered`: their number, in order of arrival; there may be gaps."""

COMPARABLE: Final = "a column of numbers, text, booleans or times"


@attrs.frozen
class Part:
    """One accumulator column: its type and its value for no elements."""

    dtype: pl.DataType
    empty: object = None

    def literal(self) -> pl.Expr:
        """That value, for every row."""
        value = list(self.empty) if isinstance(self.empty, tuple) else self.empty
        # A literal of a duration cannot be made of a number.
        if isinstance(self.dtype, pl.Duration):
            return pl.lit(value).cast(self.dtype)
        return pl.lit(value, self.dtype)


class Condition(Protocol):
    """Which rows an aggregate takes."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Boolean, for each row."""


@attrs.frozen
class Aggregate(Declared):
    """What a grouping computes of each window. Accumulator columns of the result `name` begin with `name + "."`."""

    where: Condition | None = attrs.field(default=None, kw_only=True)
    """Only the rows for which this is true are in it; for others it has what it has for no elements."""

    subtractable: ClassVar[bool] = False
    """Whether accumulators are sums, so that an element that is taken back can be subtracted."""

    idempotent: ClassVar[bool] = False
    """Whether an element that comes again, as what it was or as what it has become, does no harm."""

    ordered: ClassVar[bool] = False
    """Whether the result may depend on the order in which elements arrive."""

    python: ClassVar[bool] = False
    """Whether it calls functions of the user's."""

    numbered: ClassVar[bool] = False
    """Whether it reads the number of each element in `ARRIVAL`."""

    @property
    def kind(self) -> str:
        """What it is called: `arg_max`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def identity(self) -> Any:
        """What it is called, and what it was given. The types of its accumulators are told elsewhere."""
        types = [
            field.name
            for field in attrs.fields(type(self))
            if isinstance(getattr(self, field.name), pl.DataType)
        ]
        return {**fields_of(self, without=tuple(types)), "kind": self.kind}

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns of the input that it reads."""
        conditions = () if self.where is None else self.where.columns
        return tuple(dict.fromkeys([*self.reads, *(name for name in conditions if name != EVENT_TIME)]))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it reads of rows that it takes."""
        return ()

    def dtype(self, schema: Schema) -> pl.DataType:
        """The type of the result; `TypeError` says what the input column should have been."""
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        """The accumulator columns, by the end of their name."""
        return {}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        """The accumulators of single rows."""
        return {}

    def taken_back(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        """The accumulators that undo those of single rows, if it is `subtractable`."""
        parts = self.parts(schema)
        return {part: parts[part].literal() - value for part, value in lifted.items()}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        """The accumulators of a group of accumulators, in order of arrival; nulls are those of nothing."""
        return {}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        """The result."""
        raise NotImplementedError

    def lift_taken(self, schema: Schema) -> dict[str, pl.Expr]:
        """The same, and those of nothing for rows for which its condition does not hold."""
        lifted = self.lift(schema)
        if self.where is None:
            return lifted
        rows = pl.struct(list(dict.fromkeys([EVENT_TIME, *self.where.columns])))
        taken = rows.map_batches(
            lambda rows: self.takes(rows.struct.unnest()), return_dtype=pl.Boolean, is_elementwise=True
        )
        parts = self.parts(schema)
        return {
            part: pl.when(taken).then(value).otherwise(parts[part].literal())
            for part, value in lifted.items()
        }

    def takes(self, rows: pl.DataFrame) -> pl.Series:
        """For each row whether its condition holds. Raises `ResultError` where that fails."""
        if self.where is None:
            return pl.repeat(True, len(rows), dtype=pl.Boolean, eager=True)
        try:
            return self.where.evaluate(rows).fill_null(False)
        except PolarsError as error:
            reason = str(error).partition("\n")[0]
            raise ResultError(
                f"{self.kind}: where={self.where} fails: {reason}; compute it with with_columns(...) before, which "
                "sets aside the rows for which it fails"
            ) from error

    def where_windows_merge(self) -> Aggregate:
        """What gives the same result where accumulators are merged in another order than that of arrival."""
        return self

    def where_taken_back(self) -> Aggregate:
        """What gives the same result, also of what is left where elements are taken back, if it is `subtractable`."""
        return self


@attrs.frozen
class OfColumn(Aggregate):
    """An aggregate of the values of one column."""

    column: str

    wants: ClassVar[str] = "values that can be stored"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def accepts(self, dtype: pl.DataType) -> bool:
        return dtype != pl.Object

    def dtype(self, schema: Schema) -> pl.DataType:
        dtype = schema[self.column]
        if not self.accepts(dtype):
            raise TypeError(f"{self.kind}({self.column!r}) needs {self.wants}, but the column is {dtype}")
        return self.result(dtype)

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return dtype


class OfNumbers(OfColumn):
    wants: ClassVar[str] = "a column of numbers"

    def accepts(self, dtype: pl.DataType) -> bool:
        return dtype.is_numeric() or dtype == pl.Boolean


class Numeric(OfNumbers):
    wants: ClassVar[str] = "a column of numbers or durations"

    def accepts(self, dtype: pl.DataType) -> bool:
        return super().accepts(dtype) or isinstance(dtype, pl.Duration)


class OfComparable(OfColumn):
    wants: ClassVar[str] = COMPARABLE

    def accepts(self, dtype: pl.DataType) -> bool:
        return is_comparable(dtype)


def is_comparable(dtype: pl.DataType) -> bool:
    """Whether values of this type have an order."""
    return not (dtype.is_nested() or dtype in (pl.Object, pl.Null))


def alike(column: str, dtype: pl.DataType) -> pl.Expr:
    """The values of a column, of which those that are equal are the same: the zero below 0 is 0."""
    value = pl.col(column)
    if not dtype.is_float():
        return value
    # To add 0 would do as well, and be left out by polars.
    return pl.when(value == 0).then(pl.lit(0, dtype)).otherwise(value).alias(column)
