"""Arrivals that a user's aggregate cannot process: they are refused before anything else is done with them."""

from __future__ import annotations

import polars as pl

from stages.grouping.layout import Layout
from stages.operator import Refused


def refuse(arrivals: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, Refused | None]:
    """(arrivals with the accumulators of users' own aggregates, the arrivals for which one could not be made).

    Each row is processed once, even if it is late or in several windows.
    """
    if not layout.combines:
        return arrivals, None
    errors: dict[int, Exception] = {}

    def failed(row: int, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise error  # which is no fault of the row
        # Only the first is ever raised, and what a traceback holds is large.
        errors.setdefault(row, error.with_traceback(None) if errors else error)

    lifted = arrivals.with_columns(
        combine.accumulators(arrivals, failed).alias(name) for name, combine in layout.combines.items()
    )
    if not errors:
        return lifted, None
    usable = ~pl.int_range(pl.len()).is_in(list(errors))
    return lifted.filter(usable), Refused(arrivals[list(errors)], tuple(errors.values()))
