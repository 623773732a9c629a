"""The column with the event time of rows, and the checks of steps that need an event time."""

from __future__ import annotations

from typing import Any

import polars as pl

from beamlike.errors import PlanError, WrongType, unknown_column
from beamlike.expressions.describe import describe
from beamlike.logical.dead_letters import has_dead_letters
from beamlike.logical.node import Node
from beamlike.logical.origins import EventTime
from beamlike.rows.event_time import check_event_time_type
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME


def event_time(
    schema: pl.Schema, column: Any, unit: str | None, strategy: WatermarkStrategy, step: str
) -> EventTime | None:
    """Returns the column with the event time; None if the strategy itself assigns event times. Raises `PlanError` for a
    column that is missing or cannot be an event time.
    """
    if strategy.assigns_event_time:
        if column is not None:
            kind = type(strategy).__name__
            raise PlanError(
                f"{kind} makes the event time of an element the processing time at which it arrives; "
                f"leave out timestamp={column!r}",
                step=step,
            )
        require_no_unit(unit, step)
        return None
    if column is None:
        raise PlanError(
            f"give timestamp=, the column with the event time that {type(strategy).__name__} reads",
            step=step,
        )
    return event_time_column(schema, column, unit, step)


def event_time_column(schema: pl.Schema, column: Any, unit: str | None, step: str) -> EventTime:
    """Returns the event-time column. Raises `PlanError` unless it exists and has a type that can be read as a time."""
    if not isinstance(column, str):
        raise WrongType(
            f"timestamp= is the name of a column, not {describe(column)}; compute it before, as in "
            "with_columns(time=...).with_watermark(..., timestamp='time')",
            step=step,
        )
    if column not in schema:
        note = "; timestamp= names the column with the event time"
        raise unknown_column(column, schema, step, note=note)
    check_event_time_type(schema[column], unit, column=column, step=step)
    return EventTime(column, schema[column], unit)


def require_no_unit(unit: str | None, step: str) -> None:
    """Raises `PlanError` if a unit is given, which needs a timestamp column."""
    if unit is not None:
        raise PlanError(f"timestamp_unit={unit!r} is that of a timestamp=, which is not given", step=step)


def require_event_time(node: Node, step: str) -> None:
    """Raises `PlanError` if rows have no event time, which windows and groupings need. Dead letters have none."""
    if EVENT_TIME in node.shape.system:
        return
    if has_dead_letters(node):
        reason = "dead letters have no event time, so they can be neither windowed nor grouped"
    else:
        reason = (
            "its rows have no event time yet; call with_watermark(bl.BoundedOutOfOrderness('5s'), timestamp='at') "
            "before, or give both in read(...)"
        )
    raise PlanError(reason, step=step)


def require_windows_alike(node: Node, step: str) -> None:
    """Raises `PlanError` if the rows are a union of collections with different windows, because a step that needs
    windows cannot follow.
    """
    if node.unlike:
        raise PlanError(
            f"its rows are in unlike windows ({node.unlike}), so they never meet in one; call window_into(...) with "
            "the windows before",
            step=step,
        )
