"""The common part of operators with state per key and window: the checks of their input, and the node of
their output.
"""

from __future__ import annotations

from typing import get_args

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, UnknownName, nearest
from beamlike.expressions.describe import describe
from beamlike.io.base import SHOWN
from beamlike.logical.event_time import require_event_time, require_windows_alike
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import SchemaLike, as_schema
from beamlike.steps.infer import Shape
from stages.process.keyed import Keyed, Order
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import GlobalWindows


def keyed(before: Node, operator: Keyed, user: pl.Schema, step: str) -> Node:
    """Declares the rows, or changes, that an operator emits: these columns, in the windows of the input."""
    windowing = before.windowing
    windows = tuple(column for column in WINDOW_COLUMNS if column in before.shape.system)
    if windowing.timestamp_combiner.columns:
        # The combiner chooses among input rows, which the output does not contain.
        windowing = attrs.evolve(windowing, timestamp_combiner=TimestampCombiner.EARLIEST)
    changes = (PANE_RETRACTED,) if operator.gives_changes else ()
    return Node(
        step,
        Apply(operator),
        (before,),
        Shape(user, (EVENT_TIME, *windows, *changes)),
        windowing,
        base=step,
        merged=before.merged,
        bounded=before.bounded,
        repeats=before.repeats,
        retracting=operator.gives_changes,
    )


def require_placed(before: Node, order: object, step: str, *, retractions: bool = False) -> None:
    """Raises `PlanError` unless rows have an event time, windows that do not merge, and no retractions that the order
    does not allow.

    With `retractions`, any retraction is allowed; otherwise, only those in the order "time".
    """
    require_event_time(before, step)
    require_windows_alike(before, step)
    if order not in get_args(Order):
        hint = nearest(order, get_args(Order))
        raise UnknownName(f"order must be 'time' or 'arrival', not {order!r}{hint}", step=step)
    if before.windowing.windows.merging and not before.merged:
        raise PlanError(
            f"windows of {describe(before.windowing.windows)} merge, and state of two windows cannot become one; group "
            "without windows and let an EventTimer end a session, or aggregate the sessions before",
            step=step,
        )
    if before.retracting and not retractions and order == "arrival":
        raise PlanError(
            "its rows may retract earlier ones (accumulation retracting), which are processed before "
            "their retraction arrives; give order='time' if the step has it, process(..., retractions=True), where "
            "self.retracted marks retractions, or another accumulation before",
            step=step,
        )


def corrects(before: Node, *, retractions: bool = False) -> bool:
    """True if rows may be retracted after their turn in the order of time, so that results must be corrected."""
    return before.retracting and not retractions and before.windowing.allowed_lateness > 0


def require_bound(before: Node, what: str, remedy: str, step: str) -> None:
    """Raises `UnboundedGrouping` for unbounded input in the global window, since its state would never be removed. The
    message names the step as `what`, and suggests `remedy`.
    """
    if not before.bounded and isinstance(before.windowing.windows, GlobalWindows):
        raise UnboundedGrouping(
            f"the input has no end and it is in the global window, so {what} would keep the state of every key for "
            f"ever; give it {remedy}",
            step=step,
        )


def given_columns(schema: SchemaLike, step: str) -> pl.Schema:
    """Returns the columns that a user's function declares to return. Raises `PlanError` for none, or a
    reserved name.
    """
    user = as_schema(schema, step)
    if not user:
        raise PlanError("schema= has no columns; give at least one", step=step)
    require_not_shown(user, step)
    return user


def require_not_shown(names: object, step: str) -> None:
    """Raises `PlanError` for a column that has the name of an engine's column at sinks."""
    for name in names:  # type: ignore[attr-defined]
        if name in SHOWN:
            raise PlanError(
                f"a column must not be named {name!r}, as sinks get one of that name with every row; rename it",
                step=step,
            )
