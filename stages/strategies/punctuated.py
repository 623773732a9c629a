"""Punctuated watermarks: marker rows within the stream announce the watermark."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

import attrs
import polars as pl

from stages.strategies.base import NewestTime
from windowing.columns import EVENT_TIME, RESERVED_PREFIX

_VALUE: Final = "__value"


@runtime_checkable
class RowExpression(Protocol):
    """An expression of any library with one value for each row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expression reads."""

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the value of the expression for each row."""


@attrs.frozen
class PolarsExpression:
    """A polars expression as a `RowExpression`. Expressions with the same text are equal."""

    expression: pl.Expr = attrs.field(eq=str)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.expression.meta.root_names()))

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        return frame.with_columns(self.expression.alias(_VALUE))[_VALUE]


def row_expression(value: Any) -> RowExpression | None:
    """Converts a polars expression to a `RowExpression`. Returns anything else unchanged, for the validator."""
    return PolarsExpression(value) if isinstance(value, pl.Expr) else value


def expression(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    optional = attribute.default is None
    if not isinstance(value, RowExpression) and not (optional and value is None):
        what = f"{type(owner).__name__}: {attribute.name}"
        raise TypeError(f"{what} must be an expression such as col('kind') == 'mark', not {value!r}")


def users(*given: RowExpression | None) -> tuple[str, ...]:
    """Returns the user's columns that these expressions read, without system columns. Ignores None."""
    named = [name for one in given if one is not None for name in one.columns]
    return tuple(dict.fromkeys(name for name in named if not name.startswith(RESERVED_PREFIX)))


def where(predicate: RowExpression, frame: pl.DataFrame, times: pl.Series, what: str) -> pl.Series:
    """Returns `times` with null for rows for which the predicate is not true. `what` names it in errors."""
    marks = predicate.evaluate(frame)
    if marks.dtype != pl.Boolean:
        raise TypeError(f"{what} must be true or false, not {marks.dtype}")
    return times.set(~marks.fill_null(False), None)


@attrs.frozen(repr=False)
class Punctuated(NewestTime):
    """The strategy for streams with marker rows, for which `predicate` is true: W = the newest `timestamp` of a marker.

    A marker states that no element with an event time before its `timestamp`, a datetime, will arrive. The default is
    the event time of the marker. Markers are also elements; if they should not be, filter them out. Counterparts are a
    Flink generator that emits in `onEvent`, and Beam's `Manual` watermark estimator.
    """

    predicate: RowExpression = attrs.field(converter=row_expression, validator=expression)
    timestamp: RowExpression | None = attrs.field(
        default=None, converter=row_expression, validator=expression
    )

    @property
    def reads(self) -> tuple[str, ...]:
        return users(self.predicate, self.timestamp)

    def times(self, frame: pl.DataFrame) -> pl.Series:
        times = frame[EVENT_TIME] if self.timestamp is None else _microseconds(self.timestamp.evaluate(frame))
        return where(self.predicate, frame, times, "Punctuated: predicate")


def _microseconds(times: pl.Series) -> pl.Series:
    if not times.dtype.is_temporal() or times.dtype in (pl.Time, pl.Duration):
        raise TypeError(
            f"Punctuated: timestamp must be a Datetime or a Date, not {times.dtype}; convert it in the expression"
        )
    return times.cast(pl.Datetime("us")).to_physical()
