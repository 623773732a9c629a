"""Dead letters of a grouping: arrivals for which a user's `CombineFn` raises, found before any other processing."""

from __future__ import annotations

import polars as pl

from stages.grouping.layout import WindowLayout
from stages.operator import Refused


def refuse(arrivals: pl.DataFrame, layout: WindowLayout) -> tuple[pl.DataFrame, Refused | None]:
    """Adds the accumulators of users' `CombineFn`s to arrivals, and removes arrivals for which one of them raises.

    Each row is processed once, even if it is late or in several windows.
    """
    if not layout.combines:
        return arrivals, None
    errors: dict[int, Exception] = {}

    def failed(row: int, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise error  # not the fault of the row
        # Only the first error can be raised later, and tracebacks keep large objects alive.
        errors.setdefault(row, error.with_traceback(None) if errors else error)

    lifted = arrivals.with_columns(
        combine.accumulators(arrivals, failed).alias(name) for name, combine in layout.combines.items()
    )
    if not errors:
        return lifted, None
    usable = ~pl.int_range(pl.len()).is_in(list(errors))
    return lifted.filter(usable), Refused(arrivals[list(errors)], tuple(errors.values()))
