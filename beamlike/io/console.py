"""A sink that prints a table for each batch on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import polars as pl

from beamlike.io.base import Part
from beamlike.rows.values import csv_columns, time_text
from beamlike.system.datasets import Dataset
from beamlike.system.fields import whole_number
from beamlike.system.printable import printable

_DIGITS: Final = 6  # of a float, significant


@attrs.frozen
class Console:
    """A sink that prints a table of each batch with rows on the terminal.

    Args:
        rows: The greatest number of rows to print.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.select("user").write("users", bl.Console(rows=5))
        <Collection 'plays.select': user String>
        >>> run = p.run()  # doctest: +ELLIPSIS
        users, batch 0, 2026-01-31 UTC
        ...
    """

    rows: int = attrs.field(default=20, validator=whole_number(1))

    def datasets(self) -> list[Dataset]:
        return []

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        if frame.is_empty():
            return
        from rich.console import Console as Terminal
        from rich.table import Table

        shown = frame.head(self.rows)
        left = frame.height - shown.height
        day = _common_day(shown)
        title = f"{part.sink or part.query}, batch {part.batch}" + (f", {day} UTC" if day else "")
        table = Table(caption=f"and {left} more" if left else None, caption_justify="left")
        for name, dtype in shown.schema.items():
            right = dtype.is_numeric() or dtype.is_temporal()
            table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in shown.select(_cells(shown, day)).iter_rows():
            table.add_row(*("" if cell is None else printable(cell) for cell in row))
        terminal = Terminal(markup=False, highlight=False)
        terminal.print(title, style="bold")
        terminal.print(table)


def _times(schema: Mapping[str, pl.DataType]) -> dict[str, pl.Datetime]:
    return {name: dtype for name, dtype in schema.items() if isinstance(dtype, pl.Datetime)}


def _common_day(frame: pl.DataFrame) -> str | None:
    """Returns the day, such as `2026-01-01`, if all times of the frame are on the same day. The table then shows it
    once.
    """
    times = _times(frame.schema).items()
    days = {day for name, dtype in times for day in _texts(frame, name, dtype, "%Y-%m-%d")}
    return days.pop() if len(days) == 1 else None


def _texts(frame: pl.DataFrame, name: str, dtype: pl.Datetime, form: str) -> list[str]:
    return frame.select(time_text(pl.col(name), dtype, form)).to_series().drop_nulls().unique().to_list()


def _cells(frame: pl.DataFrame, day: str | None) -> list[pl.Expr]:
    """Returns every column as short text; nulls stay null."""
    plain = csv_columns(frame.schema)
    return [
        _cell(frame, name, dtype, day, text).alias(name)
        for (name, dtype), text in zip(frame.schema.items(), plain, strict=True)
    ]


def _cell(frame: pl.DataFrame, name: str, dtype: pl.DataType, day: str | None, text: pl.Expr) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        whole = _texts(frame, name, dtype, "%.6f") == [".000000"]
        form = ("" if day else "%Y-%m-%d ") + ("%H:%M:%S" if whole else "%H:%M:%S%.3f")
        return time_text(pl.col(name), dtype, form)
    if dtype.is_float():
        return pl.col(name).round_sig_figs(_DIGITS).cast(pl.String)
    return text.cast(pl.String)
