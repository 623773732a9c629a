"""The side output of a grouping: the elements that it dropped, each with the reason."""

from __future__ import annotations

import attrs
import polars as pl

from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW, with_reason
from stages.grouping.merging import MERGED_COLUMNS, Combined
from windowing.columns import WINDOW_COLUMNS
from windowing.overlap import meets
from windowing.windows import WindowFn


@attrs.frozen
class Dropped:
    """Arrivals that were too late, those in no window, and the admitted ones, of which some may be dropped later."""

    late: pl.DataFrame
    outside: pl.DataFrame
    admitted: pl.DataFrame


@attrs.frozen
class LeftOut:
    """The numbers of arrivals that were too late and in no window; `rows` are set if they are wanted."""

    late: int = 0
    nowhere: int = 0
    rows: Dropped | None = None


@attrs.frozen
class Late:
    """Finds the dropped arrivals.

    `merged_by` merged arrivals with each other before they met the state, if anything did.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    merged_by: WindowFn | None

    def rows(self, arrivals: Dropped, closed: Combined) -> pl.DataFrame:
        """The arrivals that were too late, those in no window, and the admitted ones that met a closed window."""
        met = arrivals.admitted.clear()
        if len(closed.rows):
            met = self._of_windows(arrivals.admitted, self._closed_windows(closed))
        reasons = ((arrivals.late, LATE), (met, CLOSED_WINDOW), (arrivals.outside, NO_WINDOW))
        return pl.concat([with_reason(rows, reason, self.schema) for rows, reason in reasons])

    def _closed_windows(self, closed: Combined) -> pl.DataFrame:
        """The windows of arrivals, as they were before they met the state, that became part of closed ones."""
        merged = closed.rows.select(*self.keys, *WINDOW_COLUMNS).rename(
            dict(zip(WINDOW_COLUMNS, MERGED_COLUMNS, strict=True))
        )
        on = [*self.keys, *MERGED_COLUMNS]
        return closed.placed.collect().join(merged, on=on, how="semi", nulls_equal=True).unique()

    def _of_windows(self, windowed: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
        if self.merged_by is None:
            return windowed.join(windows, on=[*self.keys, *WINDOW_COLUMNS], how="semi", nulls_equal=True)
        return windowed.filter(meets(windowed, windows, self.merged_by, self.keys))
