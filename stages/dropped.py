"""The reasons for which arrivals are dropped, and the columns of dropped arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_COLUMNS

REASON: Final = "reason"
LATE: Final = "late"
"""The reason if the watermark was past its window, or its time, and the allowed lateness."""
CLOSED_WINDOW: Final = "closed"
"""The reason if the trigger of its window had finished."""
NO_WINDOW: Final = "no window"
"""The reason if it was in a gap between windows."""


def late_schema(schema: pl.Schema, columns: Sequence[str]) -> pl.Schema:
    """The columns of dropped arrivals: these ones, the reason, event time and window."""
    system = {column: pl.Int64() for column in (EVENT_TIME, *WINDOW_COLUMNS)}
    return pl.Schema({**{name: schema[name] for name in columns}, REASON: pl.String(), **system})


def with_reason(rows: pl.DataFrame, reason: str, schema: pl.Schema) -> pl.DataFrame:
    """Dropped arrivals with the columns of `late_schema`; the window is null for those in none."""
    nowhere = [pl.lit(None, pl.Int64).alias(name) for name in WINDOW_COLUMNS] if reason == NO_WINDOW else []
    return rows.with_columns(pl.lit(reason).alias(REASON), *nowhere).select(list(schema))
