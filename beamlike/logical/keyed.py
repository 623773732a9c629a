"""What is declared of all operators over keys and windows: what must hold of their input, and what comes of them."""

from __future__ import annotations

from typing import get_args

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, UnknownName, nearest
from beamlike.expressions.describe import describe
from beamlike.io.base import SHOWN
from beamlike.logical.event_time import require_event_time
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import SchemaLike, as_schema
from beamlike.steps.infer import Shape
from stages.process.keyed import Keyed, Order
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.timestamp_combiners import TimestampCombiner
from windowing.windows import GlobalWindows


def keyed(before: Node, operator: Keyed, user: pl.Schema, step: str) -> Node:
    """What an operator gives, with these columns, in the windows that its rows are in."""
    windowing = before.windowing
    windows = tuple(column for column in WINDOW_COLUMNS if column in before.shape.system)
    if windowing.timestamp_combiner.columns:
        # The rows that it chooses are gone.
        windowing = attrs.evolve(windowing, timestamp_combiner=TimestampCombiner.EARLIEST)
    return Node(
        step,
        Apply(operator),
        (before,),
        Shape(user, (EVENT_TIME, *windows)),
        windowing,
        base=step,
        merged=before.merged,
        bounded=before.bounded,
        repeats=before.repeats,
    )


def require_placed(before: Node, order: object, step: str, *, retractions: bool = False) -> None:
    """Rows have an event time and windows of their own, and are not taken back unless that is meant."""
    require_event_time(before, step)
    if order not in get_args(Order):
        hint = nearest(order, get_args(Order))
        raise UnknownName(f"order must be 'time' or 'arrival', not {order!r}{hint}", step=step)
    if before.windowing.windows.merging and not before.merged:
        raise PlanError(
            f"windows of {describe(before.windowing.windows)} merge, and state of two windows cannot become one; group "
            "without windows and let an EventTimer end a session, or aggregate the sessions before",
            step=step,
        )
    if before.retracting and not retractions:
        raise PlanError(
            "its rows may take back earlier ones (accumulation retracting); with process(..., retractions=True) "
            "self.retracted says which, or give another accumulation before",
            step=step,
        )


def require_bound(before: Node, what: str, remedy: str, step: str) -> None:
    """State of an input without end goes some time."""
    if not before.bounded and isinstance(before.windowing.windows, GlobalWindows):
        raise UnboundedGrouping(
            f"the input has no end and it is in the global window, so {what} would keep the state of every key for "
            f"ever; give it {remedy}",
            step=step,
        )


def given_columns(schema: SchemaLike, step: str) -> pl.Schema:
    """The columns that a function is to give."""
    user = as_schema(schema, step)
    if not user:
        raise PlanError("schema= has no columns; give at least one", step=step)
    require_not_shown(user, step)
    return user


def require_not_shown(names: object, step: str) -> None:
    """No column has the name under which sinks get one of the engine's."""
    for name in names:  # type: ignore[attr-defined]
        if name in SHOWN:
            raise PlanError(
                f"a column must not be named {name!r}, as sinks get one of that name with every row; rename it",
                step=step,
            )
