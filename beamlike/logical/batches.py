"""Declarations of `process_batches` (functions of frames with state and timers) and of running aggregates."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from beamlike.errors import DuplicateName, PlanError, WrongType, unknown_column
from beamlike.expressions.describe import aggregate_text, function_name
from beamlike.logical.aggregates import under_condition
from beamlike.logical.keyed import (
    corrects,
    given_columns,
    keyed,
    require_bound,
    require_not_shown,
    require_placed,
)
from beamlike.logical.node import Node
from beamlike.logical.windowing import require_no_repeats
from beamlike.rows.dtypes import SchemaLike, as_dtype, as_schema, require_column_name
from stages.aggregates.base import Aggregate
from stages.process.batches import (
    RETRACTED,
    SHOWN_WINDOW,
    TIME,
    TIMER,
    FunctionWithSides,
    KeyedBatches,
)
from stages.process.cumulative import Cumulative, Previous, cumulative
from stages.process.fields import FieldColumn, field_column
from stages.process.keyed import Order
from stages.process.layout import CellLayout
from stages.process.replayed import RunningOfChanges
from stages.process.running import Running
from stages.process.state_fields import Value
from stages.process.timer_fields import Timer

_OWN = (TIME, TIMER, "time", *SHOWN_WINDOW)
"""Names of the columns that the engine adds to the frames of a user's function."""


def batched(
    before: Node,
    keys: Sequence[str],
    function: FunctionWithSides,
    schema: SchemaLike,
    state: SchemaLike,
    timers: Mapping[str, Timer],
    step: str,
    *,
    order: Order,
    retractions: bool,
    keep_forever: bool,
    sides: Sequence[str] = (),
) -> Node:
    """Declares `process_batches`: a function of frames, called with the rows, state and due timers of many keys at
    once.

    Arguments are those of `Grouped.process_batches`, after the node and keys of the input. `sides` are the keywords of
    its side inputs.
    """
    require_placed(before, order, step, retractions=retractions)
    _require_no_corrections(before, retractions, step)
    if not callable(function):
        raise WrongType(f"expected a function of rows, state and due timers, got {function!r}", step=step)
    _require_called(function, sides, step)
    fields = as_schema(state, step)
    _require_timers(timers, step)
    _require_apart(before.schema, keys, fields, timers, step)
    if not timers and not keep_forever:
        require_bound(before, function_name(function), "a timer, windows before, or keep_forever=True", step)
    columns = [_column(name, dtype, before.schema, step) for name, dtype in fields.items()]
    lateness = before.windowing.allowed_lateness
    layout = CellLayout(tuple(keys), before.schema, tuple(columns), dict(timers), lateness)
    user = given_columns(schema, step)
    operator = KeyedBatches(
        tuple(keys),
        before.schema,
        before.windowing,
        layout,
        function,
        user,
        order=order,
        title=function_name(function),
        retracted=before.retracting and retractions,
        sums=before.retracting and not retractions,
    )
    return keyed(before, operator, user, step)


def run_up(
    before: Node,
    keys: Sequence[str],
    unnamed: Sequence[Any],
    aggregates: Mapping[str, Any],
    step: str,
    *,
    order: Order,
    keep_forever: bool,
) -> Node:
    """Declares the step `running(...)`: each row of `before`, with aggregates over the rows of its key and window so
    far.

    `aggregates` are keyed by the column of their result. `unnamed` has aggregates without a name, which are refused.
    With `keep_forever`, unbounded input in the global window is accepted. Raises `PlanError` if an aggregate has no
    running form, or does not fit the columns.
    """
    require_placed(before, order, step)
    if unnamed or not aggregates:
        raise PlanError("give each aggregate a name, and at least one: running(plays=bl.count())", step=step)
    if not keep_forever:
        require_bound(before, "running(...)", "windows before, or keep_forever=True", step)
    found = {name: _cumulative(before.schema, name, one, step) for name, one in aggregates.items()}
    require_no_repeats(
        before, {name: one for name, one in aggregates.items() if isinstance(one, Aggregate)}, step
    )
    require_not_shown(found, step)
    results = {name: aggregate.dtype(before.schema) for name, aggregate in found.items()}
    operator = (RunningOfChanges if corrects(before) else Running)(
        tuple(keys),
        before.schema,
        before.windowing,
        found,
        order=order,
        title="running aggregates",
        sums=before.retracting,
    )
    return keyed(before, operator, pl.Schema({**before.schema, **results}), step)


def _require_no_corrections(before: Node, retractions: bool, step: str) -> None:
    """Raises `PlanError` if rows may be retracted after the function was called with them."""
    if corrects(before, retractions=retractions):
        raise PlanError(
            "its rows may retract earlier ones (accumulation retracting), and with allowed lateness also rows that "
            "the function was already called with; give process_batches(..., retractions=True), where the column "
            f"{RETRACTED!r} marks retractions, no allowed lateness, or another accumulation before",
            step=step,
        )


def _cumulative(schema: pl.Schema, name: str, aggregate: Any, step: str) -> Cumulative:
    require_column_name(name, step)
    if name in schema:
        raise DuplicateName(f"the aggregate {name!r} has the name of a column; choose another", step=step)
    if not isinstance(aggregate, Aggregate | Previous):
        raise WrongType(f"{name} must be an aggregate such as bl.count(), not {aggregate!r}", step=step)
    for column in aggregate.columns:
        if column not in schema:
            raise unknown_column(column, schema, step)
    if isinstance(aggregate, Aggregate):
        aggregate = under_condition(schema, name, aggregate, step)
    text = aggregate_text(aggregate) if isinstance(aggregate, Aggregate) else str(aggregate)
    found = cumulative(aggregate, text)
    if found is None:
        raise PlanError(
            f"{name}: {text} has no running form; count, sum, mean, min, max, first, last and previous have one",
            step=step,
        )
    try:
        found.dtype(schema)
    except TypeError as error:
        raise WrongType(f"{name}: {error}", step=step) from error
    return found


def _column(name: str, dtype: pl.DataType, schema: pl.Schema, step: str) -> FieldColumn:
    try:
        return field_column(name, Value(dtype), as_dtype, schema)
    except TypeError as error:
        raise WrongType(f"state field {name!r}: {error}", step=step) from error


def _require_called(function: FunctionWithSides, sides: Sequence[str], step: str) -> None:
    """Raises `WrongType` unless the function accepts the three frames, and its side inputs by keyword."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtin functions have no signature to inspect
        return
    try:
        signature.bind("rows", "state", "due", **dict.fromkeys(sides))
    except TypeError as error:
        name, keywords = function_name(function), "".join(f", {side}=..." for side in sides)
        raise WrongType(
            f"{name} is called as {name}(rows, state, due{keywords}): {error}", step=step
        ) from None


def _require_timers(timers: object, step: str) -> None:
    if not isinstance(timers, Mapping):
        raise WrongType(
            f'timers= must be a dict such as {{"quiet": bl.EventTimer()}}, not {timers!r}', step=step
        )
    for name, timer in timers.items():
        require_column_name(name, step)
        if not isinstance(timer, Timer):
            raise WrongType(
                f"timer {name!r} must be bl.EventTimer() or bl.ProcessingTimer(), not {timer!r}", step=step
            )
        if timer.family or timer.holds:
            raise PlanError(
                f"timer {name!r}: a function of frames has no families of timers and none that hold the watermark; "
                "process(...) has both",
                step=step,
            )


def _require_apart(
    schema: pl.Schema, keys: Sequence[str], fields: pl.Schema, timers: Mapping[str, Timer], step: str
) -> None:
    """Raises `DuplicateName` if names of keys, state and timers collide, because they are columns of the same frame."""
    for name in (*fields, *timers):
        if name in keys or name in _OWN or (name in fields and name in timers):
            raise DuplicateName(
                f"{name!r} is the name of a state field or timer and of another column", step=step
            )
    for name in _OWN:
        if name in schema:
            raise DuplicateName(
                f"the function is given a column {name!r} of its own, and the rows have one; rename that before",
                step=step,
            )
