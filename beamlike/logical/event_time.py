"""The event time of rows: the column that contains it, and the checks of steps that need it."""

from __future__ import annotations

from typing import Any

import polars as pl

from beamlike.errors import PlanError, unknown_column
from beamlike.logical.dead_letters import has_dead_letters
from beamlike.logical.node import Node
from beamlike.logical.origins import EventTime
from beamlike.rows.event_time import check_event_time_type
from beamlike.steps.infer import Shape
from stages.strategies.base import WatermarkStrategy
from windowing.columns import EVENT_TIME, WINDOW_START


def event_time(
    schema: pl.Schema, column: Any, unit: str | None, strategy: WatermarkStrategy, step: str
) -> EventTime | None:
    """Returns the column with the event time; None if the strategy assigns it. Raises `PlanError` for other columns."""
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
            f"give timestamp=, the column with the event time that {type(strategy).__name__} goes by",
            step=step,
        )
    return event_time_column(schema, column, unit, step)


def event_time_column(schema: pl.Schema, column: Any, unit: str | None, step: str) -> EventTime:
    """Returns the event time in a column, which must exist and have a type that can be read as a time."""
    if column not in schema:
        note = "; timestamp= names the column with the event time"
        raise unknown_column(column, schema, step, note=note)
    check_event_time_type(schema[column], unit, column=column, step=step)
    return EventTime(column, schema[column], unit)


def require_no_unit(unit: str | None, step: str) -> None:
    """Raises `PlanError` for a unit without a column."""
    if unit is not None:
        raise PlanError(f"timestamp_unit={unit!r} is that of a timestamp=, which is not given", step=step)


def require_event_time(node: Node, step: str) -> None:
    """Raises `PlanError` if rows have no event time, such as dead letters: windows and groupings need one."""
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


def require_no_windows(shape: Shape, step: str) -> None:
    """Raises `PlanError` if rows are in windows: windows follow from event times, so times are set first."""
    if WINDOW_START in shape.system:
        raise PlanError(
            "its rows are in windows already, by the event time that they have; set the time before window_into(...) "
            "and before any grouping",
            step=step,
        )
