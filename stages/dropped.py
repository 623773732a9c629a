"""The reasons for which arrivals are dropped, and the columns of dropped arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from windowing.columns import EVENT_TIME, WINDOW_COLUMNS

REASON: Final = "reason"
LATE: Final = "late"
"""The reason for an arrival whose window, or time, was further behind the watermark than the allowed lateness."""
CLOSED_WINDOW: Final = "closed"
"""The reason for an arrival whose window had a trigger that was finished."""
NO_WINDOW: Final = "no window"
"""The reason for an arrival in a gap between windows."""
UNMATCHED: Final = "unmatched"
"""The reason for an arrival that retracts an element that is not there."""


def late_schema(schema: pl.Schema, columns: Sequence[str]) -> pl.Schema:
    """Returns the schema of dropped arrivals: `columns` of `schema`, the reason, the event time and the window."""
    system = {column: pl.Int64() for column in (EVENT_TIME, *WINDOW_COLUMNS)}
    return pl.Schema({**{name: schema[name] for name in columns}, REASON: pl.String(), **system})


def with_reason(rows: pl.DataFrame, reason: str, schema: pl.Schema) -> pl.DataFrame:
    """Adds the reason to dropped arrivals, and selects the columns of `late_schema`. Without a window, it is null."""
    nowhere = [pl.lit(None, pl.Int64).alias(name) for name in WINDOW_COLUMNS] if reason == NO_WINDOW else []
    return rows.with_columns(pl.lit(reason).alias(REASON), *nowhere).select(list(schema))
