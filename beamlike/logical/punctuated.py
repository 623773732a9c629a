"""Watermark strategies that read markers in the rows, found by expressions as in `filter`."""

from __future__ import annotations

from typing import Any

import attrs
import narwhals as nw
import polars as pl

import stages.progress.logs
import stages.strategies.punctuated
from beamlike.errors import PlanError, WrongType
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import Shape, row_value
from stages.strategies.base import WatermarkStrategy
from stages.strategies.punctuated import RowExpression


def _of_rows(given: Any) -> RowExpression:
    """Returns the row expression for a column name or an expression."""
    if isinstance(given, str):
        given = nw.col(given)
    if isinstance(given, nw.Expr):
        return ExpressionOfRows(given)
    if isinstance(given, RowExpression):
        return given
    hint = "; this is a polars expression, write it with bl.col" if isinstance(given, pl.Expr) else ""
    raise WrongType(f"a marker is an expression such as bl.col('kind') == 'mark', not {given!r}{hint}")


@attrs.frozen(repr=False)
class Punctuated(stages.strategies.punctuated.Punctuated):
    """A watermark strategy for sources in which some rows are markers. The watermark is the newest time of a marker.

    A marker promises that no later row has an event time before the marker's time. Markers are elements, too; if they
    must not be counted, filter them out after the source.

    Args:
        predicate: The Boolean column or expression that is true for markers.
        timestamp: The column or expression with the time of a marker, a Datetime or Date; by default, its event time.

    Raises:
        WrongType: An argument is neither a column name nor an expression.

    Example:
        >>> rows = bl.Rows([{"at": 50, "mark": False}, {"at": 70, "mark": True}, {"at": 40, "mark": False}], None, 1)
        >>> marked = bl.Punctuated(bl.col("mark"))
        >>> plays = bl.Pipeline("p").read("plays", rows, timestamp="at", timestamp_unit="s", watermark=marked)
        >>> plays.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).late().collect()["at"].to_list()
        [40]
    """

    predicate: RowExpression = attrs.field(converter=_of_rows)
    timestamp: RowExpression | None = attrs.field(default=None, converter=attrs.converters.optional(_of_rows))


@attrs.frozen
class TimeOrderedLogs(stages.progress.logs.TimeOrderedLogs):
    __doc__ = stages.progress.logs.TimeOrderedLogs.__doc__

    ends: RowExpression | None = attrs.field(
        default=None, kw_only=True, converter=attrs.converters.optional(_of_rows)
    )


def checked(strategy: WatermarkStrategy, shape: Shape, step: str) -> WatermarkStrategy:
    """Checks that the strategy's expressions use existing columns, row by row, and have the right types. Returns it
    with the checked expressions.
    """
    if isinstance(strategy, TimeOrderedLogs) and strategy.ends is not None:
        return attrs.evolve(strategy, ends=_marker(strategy.ends, shape, step, "ends of TimeOrderedLogs"))
    if not isinstance(strategy, Punctuated):
        return strategy
    predicate = _marker(strategy.predicate, shape, step, "the predicate of Punctuated")
    if strategy.timestamp is None:
        return attrs.evolve(strategy, predicate=predicate)
    timestamp, dtype = _checked(strategy.timestamp, shape, step, "Punctuated")
    if not isinstance(dtype, pl.Datetime) and dtype != pl.Date:
        raise WrongType(
            f"the timestamp of Punctuated must be a Datetime or a Date, but {timestamp} is {type_name(dtype)}; "
            "convert it in the expression",
            step=step,
        )
    return attrs.evolve(strategy, predicate=predicate, timestamp=timestamp)


def _marker(given: RowExpression, shape: Shape, step: str, what: str) -> RowExpression:
    marker, dtype = _checked(given, shape, step, what)
    if dtype != pl.Boolean:
        raise WrongType(f"{what} must be Boolean, but {marker} is {type_name(dtype)}", step=step)
    return marker


def _checked(given: RowExpression, shape: Shape, step: str, kind: str) -> tuple[RowExpression, pl.DataType]:
    if not isinstance(given, ExpressionOfRows):
        raise WrongType(f"{kind} takes expressions of bl.col, not {given!r}", step=step)
    expression, dtypes = row_value(shape, given.expression, step=step)
    if len(dtypes) != 1:
        raise PlanError(f"{kind}: {given} gives {len(dtypes)} columns, not one", step=step)
    return ExpressionOfRows(expression), dtypes[0]
