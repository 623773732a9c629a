"""Finds schemas before a run: expressions are checked, and steps are applied, on empty frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import COMPUTED, DuplicateName, PlanError, StepError, WrongType, listed, unknown_column
from beamlike.expressions.functions import When
from beamlike.expressions.tree import columns_read, expression_text, looks_at_other_rows, resolve
from beamlike.expressions.typed import TypeFault, Typing
from beamlike.rows.dead_letters import reason
from beamlike.rows.dtypes import require_column_name, system_schema, type_name
from beamlike.steps.base import Step
from beamlike.steps.python import MapBatches
from windowing.columns import (
    ASKED_COLUMNS,
    EVENT_TIME,
    PANE_COLUMNS,
    PANE_INDEX,
    PANE_RETRACTED,
    PREVIOUS_END,
    RESERVED_PREFIX,
    SYSTEM_COLUMNS,
    WINDOW_COLUMNS,
)
from windowing.custom import assigned_columns
from windowing.windows import WindowFn

_LITERALS = (bool, int, float, bytes, Decimal, date, datetime, time, timedelta, type(None))


@attrs.frozen
class Shape:
    """The columns of a collection: the user's columns with their types, and the names of the system columns."""

    user: pl.Schema
    system: tuple[str, ...]

    def everything(self) -> pl.Schema:
        """Returns all columns with their types: the user's, then the system columns."""
        return pl.Schema({**self.user, **system_schema(self.system)})

    def empty(self) -> pl.LazyFrame:
        """Returns a frame with these columns and no rows."""
        return pl.LazyFrame(schema=self.everything())

    def shown(self) -> pl.Schema:
        """Returns the columns that a sink receives.

        The end of the previous window is left out, because only the next grouping reads it, and so are pane columns
        that a step must ask for.
        """
        hidden = (PREVIOUS_END, *ASKED_COLUMNS)
        return pl.Schema({name: dtype for name, dtype in self.everything().items() if name not in hidden})

    def kept(self) -> Shape:
        """Returns the shape of rows that a stage keeps: pane columns that a step must ask for are left out."""
        system = tuple(name for name in self.system if name not in ASKED_COLUMNS)
        return attrs.evolve(self, system=system)

    def with_windows(self, windows: WindowFn | None = None) -> tuple[str, ...]:
        """Returns the system columns after rows are assigned to `windows`, or to any windows."""
        assigned = WINDOW_COLUMNS if windows is None else assigned_columns(windows)
        names = ({*self.system} - {PREVIOUS_END}).union(assigned)
        return tuple(name for name in SYSTEM_COLUMNS if name in names)

    def without_windows(self) -> tuple[str, ...]:
        """Returns the system columns of rows that are in no window."""
        return tuple(name for name in self.system if name not in (*WINDOW_COLUMNS, PREVIOUS_END))


def expressions(
    shape: Shape, given: Iterable[Any], named: Mapping[str, Any], *, step: str, plain: bool = True
) -> tuple[nw.Expr, ...]:
    """Converts a user's arguments to row-wise narwhals expressions over existing columns.

    Wildcards become the user's columns. `plain=False` refuses plain values, for filters.
    """
    parsed = parse(given, named, step=step, plain=plain)
    typing = Typing.of(shape.everything())
    return tuple(one for expression in parsed for one in _checked(shape, typing, expression, step))


def parse(given: Iterable[Any], named: Mapping[str, Any], *, step: str, plain: bool = True) -> list[nw.Expr]:
    """Converts a user's arguments to narwhals expressions, at least one. Columns are not checked."""
    parsed = [_expression(item, step, literal=False) for item in flat(given)]
    parsed += [_expression(item, step, literal=plain).alias(name) for name, item in named.items()]
    if not parsed:
        raise PlanError("give it at least one column or expression", step=step)
    return parsed


def flat(given: Iterable[Any]) -> list[Any]:
    """Returns the items, with those in lists and tuples flattened."""
    return [item for entry in given for item in (entry if isinstance(entry, list | tuple) else (entry,))]


def _expression(given: Any, step: str, *, literal: bool) -> nw.Expr:
    if isinstance(given, nw.Expr):
        return given
    if isinstance(given, str):
        return nw.col(given)
    if literal and isinstance(given, _LITERALS):
        return nw.lit(given, _constant_type(given))
    hint = (
        "; a constant column has a name, as in with_columns(answer=42)"
        if isinstance(given, _LITERALS)
        else ""
    )
    if isinstance(given, pl.Expr):
        hint = "; this is a polars expression, write it with bl.col, bl.lit and bl.when"
    if isinstance(given, When | nw.functions.When):
        given, hint = (
            "bl.when(...)",
            "; end it with .then(...), as in bl.when(condition).then(1).otherwise(0)",
        )
    if callable(given):
        hint = "; for a Python function use map, flat_map or map_batches"
    raise WrongType(
        f"expected a column name or an expression such as bl.col('x') + 1, got {given!r}{hint}", step=step
    )


def _constant_type(given: Any) -> Any:
    """Returns the type of a constant. An integer is Int64, like a column declared as `int`, instead of the smallest
    type.
    """
    whole = isinstance(given, int) and not isinstance(given, bool)
    return nw.Int64 if whole and abs(given) < 2**63 else None


def without_wildcards(shape: Shape, expression: nw.Expr, step: str) -> nw.Expr:
    """Replaces the wildcards in an expression by the user's columns."""
    try:
        return resolve(expression, shape.user)
    except Exception as error:
        raise PlanError(f"cannot use {expression_text(expression)}: {reason(error)}", step=step) from error


def _checked(shape: Shape, typing: Typing, expression: nw.Expr, step: str) -> Sequence[nw.Expr]:
    resolved = without_wildcards(shape, expression, step)
    for name in columns_read(resolved):
        if name not in shape.user and name not in shape.system:
            raise _missing(name, shape, resolved, step)
    function = looks_at_other_rows(resolved)
    if function is not None:
        raise PlanError(
            f"{expression_text(resolved)}: {function!r} reads other rows, so its result would depend "
            "on how the input was cut into chunks; use group_by(...).aggregate(...)",
            step=step,
        )
    try:
        return typing.typed(resolved)
    except TypeFault as error:
        text = expression_text(resolved)
        raise WrongType(f"cannot compute {text}: {error}", step=step) from None


def _missing(name: str, shape: Shape, expression: nw.Expr, step: str) -> PlanError:
    """Returns the error for a column that does not exist. For a system column, it says why the rows lack it."""
    reader = f"bl.{name.removeprefix(RESERVED_PREFIX)}()"
    if name == EVENT_TIME:
        return PlanError(
            f"{reader}: its rows have no event time; dead letters have none, and others from with_watermark(...) on",
            step=step,
        )
    if name in WINDOW_COLUMNS:
        return PlanError(f"{reader}: its rows are in no window yet; call window_into(...) before", step=step)
    if name == PANE_RETRACTED and PANE_INDEX in shape.system:
        return PlanError(
            f"{reader}: its rows are never taken back; give the grouping accumulation=bl.RETRACTING",
            step=step,
        )
    if name in ASKED_COLUMNS and PANE_INDEX in shape.system:
        return PlanError(
            f"{reader}: a lookup in a side does not keep it; ask for it with with_columns({reader}) directly after the "
            "grouping",
            step=step,
        )
    if name in PANE_COLUMNS:
        return PlanError(
            f"{reader}: its rows are in no pane; only the output of a grouping has panes", step=step
        )
    note = getattr(name, "note", "")
    if name not in COMPUTED and expression_text(expression).startswith(f"{name} as "):
        note = f"; for the text itself write bl.lit({name!r}), and for the name of a step .named(...)"
    return unknown_column(name, shape.user, step, note=note)


def outputs(shape: Shape, given: Iterable[nw.Expr], *, step: str) -> list[pl.Schema]:
    """Returns the names and types that each expression produces. Raises `PlanError` for a type error or a
    repeated name.
    """
    frame = nw.from_native(shape.empty())
    # One by one, so that the columns of a wildcard, or an error, can be attributed to their expression.
    schemas = []
    for expression in given:
        try:
            schemas.append(frame.select(expression).to_native().collect_schema())
        except Exception as error:
            field = isinstance(error, pl.exceptions.StructFieldNotFoundError)
            why = f"there is no field {reason(error)!r}" if field else reason(error)
            text = expression_text(expression)
            raise WrongType(f"cannot compute {text}: {why}", step=step) from error
    for name, count in Counter(name for schema in schemas for name in schema).items():
        require_column_name(name, step)
        if count > 1:
            raise DuplicateName(f"gives column {name!r} {count} times; rename with .alias(...)", step=step)
    return schemas


def row_value(shape: Shape, given: nw.Expr, *, step: str) -> tuple[nw.Expr, list[pl.DataType]]:
    """Converts a user's expression for one value of each row. Also returns the types of its columns, ideally one."""
    checked = expressions(shape, [given], {}, step=step, plain=False)
    return checked[0], [dtype for schema in outputs(shape, checked, step=step) for dtype in schema.dtypes()]


def predicates(shape: Shape, given: Iterable[Any], *, step: str) -> tuple[nw.Expr, ...]:
    """Returns the expressions of a filter. Raises `PlanError` unless they are row-wise and Boolean."""
    checked = expressions(shape, given, {}, step=step, plain=False)
    for predicate in checked:
        for dtype in outputs(shape, [predicate], step=step)[0].dtypes():
            if dtype != pl.Boolean:
                text = expression_text(predicate)
                raise WrongType(f"a filter must be Boolean, but {text} is {type_name(dtype)}", step=step)
    return checked


def run_empty(shape: Shape, step: Step) -> pl.Schema:
    """Returns the user's columns after the step, found by applying it to an empty frame."""
    try:
        result = step.apply(shape.empty()).collect()
    except StepError:
        raise
    except Exception as error:
        types = ", ".join(f"{name} {type_name(dtype)}" for name, dtype in shape.user.items())
        raise PlanError(
            f"{step.kind} fails for columns of these types, which are {types}: {reason(error)}; convert a column by "
            "cast(...) before, or change the arguments of the expression",
            step=step.name,
        ) from error
    return pl.Schema({name: dtype for name, dtype in result.schema.items() if name not in SYSTEM_COLUMNS})


def batches_schema(shape: Shape, step: MapBatches) -> pl.Schema:
    """Returns the columns that a function of frames returns, found by calling it with an empty frame."""
    try:
        result = step.table(pl.DataFrame(schema=shape.user))
    except Exception as error:
        raise PlanError(
            f"map_batches finds its schema by calling the function with an empty frame, and that failed: "
            f"{type(error).__name__}: {reason(error)}; give schema= to spare the call",
            step=step.name,
        ) from error
    untyped = [name for name, dtype in result.schema.items() if dtype == pl.Null]
    if untyped:
        raise PlanError(
            f"the type of {listed(untyped)} is unknown for an empty frame; give schema=", step=step.name
        )
    for name in result.columns:
        require_column_name(name, step.name)
    return result.schema
