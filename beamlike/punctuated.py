"""Punctuated watermarks as users declare them: by expressions on the row, as in `filter`."""

from __future__ import annotations

from typing import Any

import attrs
import narwhals as nw
import polars as pl

import stages.punctuated
from beamlike.dtypes import type_name
from beamlike.errors import PlanError, WrongType
from beamlike.expression_of_rows import ExpressionOfRows
from beamlike.inference import Shape, expressions, outputs
from stages.punctuated import RowExpression


def _of_rows(given: Any) -> RowExpression:
    """What the user gave: a column name or an expression."""
    if isinstance(given, str):
        given = nw.col(given)
    if isinstance(given, nw.Expr):
        return ExpressionOfRows(given)
    if isinstance(given, RowExpression):
        return given
    hint = "; this is a polars expression, write it with bl.col" if isinstance(given, pl.Expr) else ""
    raise WrongType(f"Punctuated takes expressions such as bl.col('kind') == 'mark', not {given!r}{hint}")


@attrs.frozen
class Punctuated(stages.punctuated.Punctuated):
    """Rows for which `predicate` is true are markers: the watermark is the newest `timestamp` of a marker.

    A marker promises that no element before its timestamp, a Datetime or Date, is still to come; without `timestamp`
    that is its event time. Both are columns or expressions. Markers are elements like others: where they should not
    be counted, filter them out after the source.
    """

    predicate: RowExpression = attrs.field(converter=_of_rows)
    timestamp: RowExpression | None = attrs.field(default=None, converter=attrs.converters.optional(_of_rows))


def checked(strategy: Punctuated, shape: Shape, step: str) -> Punctuated:
    """The strategy with expressions over columns that are there, row by row, and of the types that they must have."""
    predicate, dtype = _checked(strategy.predicate, shape, step)
    if dtype != pl.Boolean:
        raise WrongType(
            f"the predicate of Punctuated must be Boolean, but {predicate} is {type_name(dtype)}", step=step
        )
    if strategy.timestamp is None:
        return attrs.evolve(strategy, predicate=predicate)
    timestamp, dtype = _checked(strategy.timestamp, shape, step)
    if not isinstance(dtype, pl.Datetime) and dtype != pl.Date:
        raise WrongType(
            f"the timestamp of Punctuated must be a Datetime or a Date, but {timestamp} is {type_name(dtype)}; "
            "convert it in the expression",
            step=step,
        )
    return attrs.evolve(strategy, predicate=predicate, timestamp=timestamp)


def _checked(given: RowExpression, shape: Shape, step: str) -> tuple[RowExpression, pl.DataType]:
    if not isinstance(given, ExpressionOfRows):
        raise WrongType(f"Punctuated takes expressions of bl.col, not {given!r}", step=step)
    (expression,) = expressions(shape, [given.expression], {}, step=step, plain=False)
    dtypes = outputs(shape, [expression], step=step)[0].dtypes()
    if len(dtypes) != 1:
        raise PlanError(f"Punctuated: {given} gives {len(dtypes)} columns, not one", step=step)
    return ExpressionOfRows(expression), dtypes[0]
