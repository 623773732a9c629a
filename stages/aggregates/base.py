"""Aggregates as triples of expressions: lift (rows -> accumulator columns), merge (an aggregation), extract.

Merging is associative, and the accumulator of no elements is its identity, so results do not depend on bundles.
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
"""Column of single rows, for an aggregate that is `numbered`: their number, in order of arrival; there may be gaps."""

COMPARABLE: Final = "a column of numbers, text, booleans or times"


@attrs.frozen
class Part:
    """An accumulator column: its type and its value for no elements."""

    dtype: pl.DataType
    empty: object = None

    def literal(self) -> pl.Expr:
        """The value for no elements, for every row."""
        value = list(self.empty) if isinstance(self.empty, tuple) else self.empty
        # A literal of a duration cannot be made of a number.
        if isinstance(self.dtype, pl.Duration):
            return pl.lit(value).cast(self.dtype)
        return pl.lit(value, self.dtype)


class Condition(Protocol):
    """A condition on the rows that an aggregate accepts."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Returns a Boolean for each row."""


@attrs.frozen
class Aggregate(Declared):
    """A result that a grouping computes for each window.

    Its accumulator columns begin with the name of the result and ".".
    """

    where: Condition | None = attrs.field(default=None, kw_only=True)
    """The rows to accept; all other rows count as no elements."""

    subtractable: ClassVar[bool] = False
    """True if accumulators are sums, so that an element that is retracted can be subtracted."""

    idempotent: ClassVar[bool] = False
    """True if an element may arrive again, unchanged or updated, without an effect on the result."""

    ordered: ClassVar[bool] = False
    """True if the result may depend on the order in which elements arrive."""

    python: ClassVar[bool] = False
    """True if it calls functions of the user's."""

    numbered: ClassVar[bool] = False
    """True if it reads the number of each element in `ARRIVAL`."""

    @property
    def kind(self) -> str:
        """The name of the aggregate: `arg_max`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def identity(self) -> Any:
        """The kind and the attributes, without types: those of the accumulators are compared separately."""
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
        """The columns that it reads of rows that it accepts."""
        return ()

    def dtype(self, schema: Schema) -> pl.DataType:
        """The type of the result. Raises `TypeError`, which names the expected type, for a column of another type."""
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        """The accumulator columns, by the suffix of their name."""
        return {}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        """The accumulators of single rows."""
        return {}

    def taken_back(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        """The accumulators that undo those of single rows, if it is `subtractable`."""
        parts = self.parts(schema)
        return {part: parts[part].literal() - value for part, value in lifted.items()}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Merges a group's accumulators, in arrival order. Nulls are empty accumulators."""
        return {}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        """The result."""
        raise NotImplementedError

    def lift_taken(self, schema: Schema) -> dict[str, pl.Expr]:
        """Like `lift`, with empty accumulators for rows for which its condition does not hold."""
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
        """True for rows for which its condition holds. Raises `ResultError` if the condition fails."""
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
        """Returns an aggregate with the same result if accumulators are merged in another order than of arrival."""
        return self

    def where_taken_back(self) -> Aggregate:
        """Returns an aggregate with the same result if elements may be retracted; it is `subtractable`."""
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
    """True if values of this type have an order."""
    return not (dtype.is_nested() or dtype in (pl.Object, pl.Null))


def alike(column: str, dtype: pl.DataType) -> pl.Expr:
    """The values of a column, with -0.0 as 0.0, so that equal values are identical."""
    value = pl.col(column)
    if not dtype.is_float():
        return value
    # To add 0 would do as well, and be left out by polars.
    return pl.when(value == 0).then(pl.lit(0, dtype)).otherwise(value).alias(column)
