"""The base classes of aggregates. An aggregate is three sets of expressions: lift, merge and extract.

`lift` computes accumulators of single rows, `merge` merges the accumulators of a group, `extract` computes the result.
Merging is associative, and merging an empty accumulator changes nothing. So results do not depend on bundles.
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
"""The column with the number of each row in order of arrival, for aggregates that are `numbered`. It may have gaps."""

COMPARABLE: Final = "a column of numbers, text, booleans or times"


@attrs.frozen
class Part:
    """An accumulator column: its type, and its value before any element (`empty`)."""

    dtype: pl.DataType
    empty: object = None

    def literal(self) -> pl.Expr:
        """Returns an expression for the value of the accumulator before any element."""
        value = list(self.empty) if isinstance(self.empty, tuple) else self.empty
        # Polars makes no Duration literal from an integer.
        if isinstance(self.dtype, pl.Duration):
            return pl.lit(value).cast(self.dtype)
        return pl.lit(value, self.dtype)


class Condition(Protocol):
    """A condition (`where=`) on the rows that an aggregate accepts."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition reads."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Returns a Boolean column, true for rows that meet the condition."""


@attrs.frozen
class Aggregate(Declared):
    """The base class of aggregates: a result that a grouping computes for each key and window."""

    where: Condition | None = attrs.field(default=None, kw_only=True)
    """The condition that a row must meet; other rows are ignored. None accepts all rows."""

    subtractable: ClassVar[bool] = False
    """True if accumulators are sums, so that a retracted element can be subtracted."""

    has_differences: ClassVar[bool] = False
    """True if the result for all elements is the sum of the results for its parts, also for retracted elements."""

    idempotent: ClassVar[bool] = False
    """True if an element that arrives again, unchanged or updated, does not change the result."""

    ordered: ClassVar[bool] = False
    """True if the result may depend on the order in which elements arrive."""

    python: ClassVar[bool] = False
    """True if the aggregate calls Python functions of the user."""

    numbered: ClassVar[bool] = False
    """True if the aggregate reads the column `ARRIVAL`, the number of each element."""

    @property
    def kind(self) -> str:
        """The name of the aggregate in messages and checkpoints, such as `arg_max`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def identity(self) -> Any:
        """Returns the kind and the attributes, as a checkpoint compares them. Types are compared with the
        accumulators.
        """
        types = [
            field.name
            for field in attrs.fields(type(self))
            if isinstance(getattr(self, field.name), pl.DataType)
        ]
        return {**fields_of(self, without=tuple(types)), "kind": self.kind}

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the aggregate reads, including those of its condition."""
        conditions = () if self.where is None else self.where.columns
        return tuple(dict.fromkeys([*self.reads, *(name for name in conditions if name != EVENT_TIME)]))

    @property
    def reads(self) -> tuple[str, ...]:
        """The user's columns that the aggregate reads, without those of its condition."""
        return ()

    def dtype(self, schema: Schema) -> pl.DataType:
        """Returns the type of the result. Raises `TypeError` for a column type that the aggregate does not support."""
        raise NotImplementedError

    def parts(self, schema: Schema) -> dict[str, Part]:
        """Returns the accumulator columns by name."""
        return {}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        """Returns expressions, by name, for the accumulators of single rows."""
        return {}

    def negated(self, lifted: dict[str, pl.Expr], schema: Schema) -> dict[str, pl.Expr]:
        """Returns expressions for accumulators that undo `lifted` in a merge. The aggregate must be subtractable."""
        parts = self.parts(schema)
        return {part: parts[part].literal() - value for part, value in lifted.items()}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        """Returns aggregations, by name, that merge a group's accumulators in arrival order. Nulls are empty ones."""
        return {}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        """Returns the expression that computes the result from accumulators."""
        raise NotImplementedError

    def lift_accepted(self, schema: Schema) -> dict[str, pl.Expr]:
        """Like `lift`, but with empty accumulators for rows that do not meet the condition `where`."""
        lifted = self.lift(schema)
        if self.where is None:
            return lifted
        rows = pl.struct(list(dict.fromkeys([EVENT_TIME, *self.where.columns])))
        taken = rows.map_batches(
            lambda rows: self.accepted(rows.struct.unnest()), return_dtype=pl.Boolean, is_elementwise=True
        )
        parts = self.parts(schema)
        return {
            part: pl.when(taken).then(value).otherwise(parts[part].literal())
            for part, value in lifted.items()
        }

    def accepted(self, rows: pl.DataFrame) -> pl.Series:
        """Returns a mask of the rows that meet the condition `where`. Raises `ResultError` if its evaluation fails."""
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

    def for_merging_windows(self) -> Aggregate:
        """Returns an aggregate with the same result, for windows that merge: accumulators are merged in any order."""
        return self

    def for_retractions(self) -> Aggregate:
        """Returns an aggregate with the same result, for elements that may be retracted. It must be subtractable."""
        return self


@attrs.frozen
class OfColumn(Aggregate):
    """The base class of aggregates of the values of one column."""

    column: str

    wants: ClassVar[str] = "values that can be stored"
    """The description, in errors, of the columns that the aggregate supports."""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def accepts(self, dtype: pl.DataType) -> bool:
        """True if the aggregate supports columns of this type."""
        return dtype != pl.Object

    def dtype(self, schema: Schema) -> pl.DataType:
        dtype = schema[self.column]
        if not self.accepts(dtype):
            raise TypeError(f"{self.kind}({self.column!r}) needs {self.wants}, but the column is {dtype}")
        return self.result(dtype)

    def result(self, dtype: pl.DataType) -> pl.DataType:
        """Returns the type of the result for a column of this type."""
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
    """True if values of this type can be compared by `<`."""
    return not (dtype.is_nested() or dtype in (pl.Object, pl.Null))


def alike(column: str, dtype: pl.DataType) -> pl.Expr:
    """Returns an expression for the values of a column, with -0.0 replaced by 0.0, so that equal values have equal
    bits.
    """
    return without_sign(pl.col(column), dtype).alias(column)


def without_sign(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Returns an expression for values in which -0.0 is replaced by 0.0, also within structs and lists."""
    if not _has_floats(dtype):
        return value
    if isinstance(dtype, pl.Struct):
        fields = [
            without_sign(value.struct.field(one.name), _made(one.dtype)).alias(one.name)
            for one in dtype.fields
        ]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if isinstance(dtype, pl.List):
        return value.list.eval(without_sign(pl.element(), _made(dtype.inner)))
    if isinstance(dtype, pl.Array):
        return value.arr.eval(without_sign(pl.element(), _made(dtype.inner)))
    # Adding 0 would do the same, but polars optimizes it away.
    return pl.when(value == 0).then(pl.lit(0, dtype)).otherwise(value)


def _has_floats(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_floats(one.dtype) for one in dtype.fields)
    return _has_floats(dtype.inner) if isinstance(dtype, pl.List | pl.Array) else dtype.is_float()


def _made(dtype: Any) -> pl.DataType:
    """Returns a type within another one, which may be its class."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
