"""Checks of a grouping's aggregates against the columns that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import DuplicateName, PlanError, ReservedName, WrongType, listed, nearest, unknown_column
from beamlike.expressions import aggregates, functions
from beamlike.expressions.describe import function_name, text_of
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.io.base import SHOWN
from beamlike.rows.dtypes import require_column_name, type_name
from beamlike.steps.infer import Shape, row_value
from stages.aggregates.base import Aggregate
from windowing.columns import EVENT_TIME, SYSTEM_COLUMNS


def fitted(
    schema: pl.Schema, keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Any], step: str
) -> dict[str, Aggregate]:
    """Returns the aggregates of a grouping by name, after a check against the columns `schema`. Raises `PlanError`
    for `unnamed` ones.
    """
    if unnamed:
        raise PlanError(
            f"give every aggregate a name: aggregate(plays=bl.count()), not {text_of(unnamed[0])}", step=step
        )
    if not aggregates:
        raise PlanError("give at least one aggregate: aggregate(plays=bl.count())", step=step)
    result: dict[str, Aggregate] = {}
    for name, aggregate in aggregates.items():
        require_column_name(name, step)
        if name in keys:
            raise DuplicateName(f"the aggregate {name!r} has the name of a key", step=step)
        result[name] = _fitted(schema, name, aggregate, step)
        if name in SHOWN:
            # At sinks, a column of this name would replace the engine's own column of each pane.
            raise ReservedName(
                f"an aggregate must not be named {name!r}, as sinks get a column of that name with every pane; "
                f"choose another, such as {f'{aggregate.kind}_{name}'!r}",
                step=step,
            )
    return result


def _fitted(schema: pl.Schema, name: str, aggregate: Any, step: str) -> Aggregate:
    if not isinstance(aggregate, Aggregate):
        raise WrongType(f"{name} must be an aggregate such as bl.count(), not {_shown(aggregate)}", step=step)
    for column in aggregate.reads:
        if not isinstance(column, str):
            raise WrongType(f"{name} must aggregate a column by its name, not {_shown(column)}", step=step)
        if column not in schema:
            raise unknown_column(column, schema, step)
    try:
        aggregate.dtype(schema)
    except TypeError as error:
        raise WrongType(f"{name}: {error}", step=step) from error
    return under_condition(schema, name, aggregate, step)


def under_condition(schema: pl.Schema, name: str, aggregate: Aggregate, step: str) -> Aggregate:
    """Checks that the aggregate's `where=` condition uses only existing columns and is evaluated row by row. Returns
    the aggregate with the checked condition.
    """
    given = aggregate.where
    if given is None:
        return aggregate
    assert isinstance(given, ExpressionOfRows)
    for column in given.columns:
        if column in SYSTEM_COLUMNS and column != EVENT_TIME:
            raise PlanError(
                f"{name}: where={given} reads the window or the pane; a condition has the user's columns and "
                "bl.event_time(): compute a column with with_columns(...) before",
                step=step,
            )
    shape = Shape(schema, (EVENT_TIME,))
    condition, dtypes = row_value(shape, given.expression, step=step)
    if dtypes != [pl.Boolean]:
        told = listed(map(type_name, dtypes))
        raise WrongType(f"{name}: where= must be one Boolean, but {given} is {told}", step=step)
    return attrs.evolve(aggregate, where=ExpressionOfRows(condition))


def _shown(given: Any) -> str:
    """Describes a value that is no aggregate, and names the aggregate that the user may have meant."""
    if isinstance(given, str):
        hint = nearest(given, aggregates.__all__).replace("'", "")
        return f"{given!r}{hint}; a step is named with .named({given!r})"
    if isinstance(given, nw.Expr):
        return "an expression: compute columns with with_columns(...) before, and aggregate columns by name"
    function = function_name(given) if callable(given) else ""
    if function and any(getattr(module, function, None) is given for module in (aggregates, functions)):
        return f"the function itself; call it: bl.{function}(...)"
    return repr(given)
