"""`show` and `plot`: the rows of a sample as a table or as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from beamlike.errors import PlanError, WrongType, missing_package, unknown_column
from beamlike.logical.event_time import require_event_time
from beamlike.logical.node import Node
from beamlike.logical.row_key import row_key
from beamlike.rows.dtypes import type_name
from beamlike.system.notebooks import notebook_display
from windowing.columns import (
    EVENT_TIME,
    PANE_RETRACTED,
    PANE_TIMING,
    RESERVED_PREFIX,
    WINDOW_COLUMNS,
    WINDOW_END,
    WINDOW_START,
)

if TYPE_CHECKING:
    from beamlike.observe.charts.figure import Picture
    from beamlike.observe.charts.rows_chart import Columns

_CHARACTERS: Final = 160  # the width of a table in a terminal


def show_rows(frame: pl.DataFrame, node: Node) -> None:
    """Shows all rows of a frame: as a table in a notebook, as text elsewhere. Times are without their zone, UTC.

    Panes have the bounds of their window, and not their event time, too.
    """
    if _has_panes(node) and (time := _system(node, EVENT_TIME)) is not None:
        frame = frame.drop(time)
    frame = frame.with_columns(pl.col(pl.Datetime).dt.replace_time_zone(None))
    show = notebook_display() or print
    with pl.Config(
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=_CHARACTERS,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
    ):
        show(frame)


def _has_panes(node: Node) -> bool:
    return PANE_TIMING in node.shape.system and {*WINDOW_COLUMNS} <= {*node.shape.system}


def columns_to_draw(node: Node, value: str | None, step: str) -> Columns:
    """Returns the columns with which `plot` draws the rows of a node.

    Raises:
        PlanError: The rows have no event time, or `value` is not a column of numbers.
    """
    try:
        from beamlike.observe.charts.rows_chart import Columns
    except ModuleNotFoundError as error:
        raise missing_package("plot() needs matplotlib", "report", error) from None
    require_event_time(node, step)
    time = _system(node, EVENT_TIME)
    if time is None:
        raise PlanError(
            "the column 'event_time' of these rows is not bl.event_time(), at which they are drawn; rename it",
            step=step,
        )
    start, end = _system(node, WINDOW_START), _system(node, WINDOW_END)
    keys = _keys(node)
    return Columns(
        keys=keys,
        value=_first_numbers(node, keys) if value is None else _numbers(node, value, step),
        time=time,
        window=(start, end) if _has_panes(node) and start is not None and end is not None else None,
        timing=_system(node, PANE_TIMING),
        retracted=_system(node, PANE_RETRACTED),
    )


def draw(frame: pl.DataFrame, columns: Columns, name: str) -> Picture:
    """Draws the rows of a collection; see `Collection.plot`."""
    from beamlike.observe.charts.rows_chart import draw_rows

    return draw_rows(frame, columns, name)


def _system(node: Node, column: str) -> str | None:
    """Returns the name of a system column in the rows of a sink; None if there is none, or a user's column hides it."""
    plain = column.removeprefix(RESERVED_PREFIX)
    return plain if column in node.shape.system and plain not in node.schema else None


def _keys(node: Node) -> tuple[str, ...]:
    """Returns the key columns of the results of a grouping or of a join; none for other rows."""
    try:
        groups = row_key(node, "plot", per_pane=True).groups
    except PlanError:
        return ()
    windows = {column.removeprefix(RESERVED_PREFIX) for column in WINDOW_COLUMNS}
    return tuple(name for name in groups if name in node.schema and name not in windows)


def _first_numbers(node: Node, keys: tuple[str, ...]) -> str | None:
    numbers = (name for name, dtype in node.schema.items() if dtype.is_numeric() and name not in keys)
    return next(numbers, None)


def _numbers(node: Node, value: str, step: str) -> str:
    if not isinstance(value, str):
        raise WrongType(f"plot takes the name of a column, not {value!r}", step=step)
    if value not in node.schema:
        raise unknown_column(value, node.schema, step)
    if not (dtype := node.schema[value]).is_numeric():
        raise PlanError(f"plot draws numbers, and {value!r} is {type_name(dtype)}", step=step)
    return value
