"""The dropped elements of a grouping, each with the reason, as its side output returns them."""

from __future__ import annotations

import attrs
import polars as pl

from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW, UNMATCHED, with_reason
from stages.grouping.layout import COUNT, WindowLayout
from stages.grouping.merging import MERGED_COLUMNS, Combined
from stages.grouping.unmatched import NONE, Unmatched
from windowing.columns import WINDOW_COLUMNS
from windowing.overlap import merges_with
from windowing.windows import WindowFn


@attrs.frozen(eq=False)
class DividedInput:
    """The arrivals of a bundle, divided by the reasons to drop them.

    Attributes:
        late: The arrivals that were dropped as late.
        outside: The arrivals in no window.
        admitted: All others. Some are dropped when they are merged with the state, because their window is closed.
    """

    late: pl.DataFrame
    outside: pl.DataFrame
    admitted: pl.DataFrame


@attrs.frozen(eq=False)
class Met:
    """The closed windows that arrivals met, and the windows without the elements that arrivals retract."""

    closed: Combined
    unmatched: Unmatched = NONE


@attrs.frozen(eq=False)
class DroppedInput:
    """The numbers of arrivals that were dropped as late, and in no window; `rows` has them if the plan uses them."""

    late: int = 0
    outside: int = 0
    rows: DividedInput | None = None

    def counts(self, met: Met) -> dict[str, int]:
        """Returns the number of dropped arrivals by reason."""
        dropped = {LATE: self.late, CLOSED_WINDOW: int(met.closed.rows[COUNT].sum()), NO_WINDOW: self.outside}
        return dropped | ({UNMATCHED: met.unmatched.count} if met.unmatched.count else {})


@attrs.frozen
class DroppedRows:
    """The selection of dropped arrivals.

    Attributes:
        layout: The columns of the grouping.
        schema: The schema of dropped arrivals.
        merged_by: The window function, if it merges arrivals with each other before they are merged with the state.
    """

    layout: WindowLayout
    schema: pl.Schema
    merged_by: WindowFn | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self.layout.keys

    def rows(self, arrivals: DividedInput, met: Met) -> pl.DataFrame:
        """Returns the dropped arrivals with their reasons. `met` has the windows for which others were dropped."""
        of_closed = arrivals.admitted.clear()
        if len(met.closed.rows):
            of_closed = self._of_windows(arrivals.admitted, self._closed_windows(met.closed))
        reasons = (
            (arrivals.late, LATE),
            (of_closed, CLOSED_WINDOW),
            (met.unmatched.rows(arrivals.admitted, self.layout), UNMATCHED),
            (arrivals.outside, NO_WINDOW),
        )
        return pl.concat([with_reason(rows, reason, self.schema) for rows, reason in reasons])

    def _closed_windows(self, closed: Combined) -> pl.DataFrame:
        """Returns the windows of arrivals that belong to closed windows, with the bounds before the merge with the
        state.
        """
        merged = closed.rows.select(*self.keys, *WINDOW_COLUMNS).rename(
            dict(zip(WINDOW_COLUMNS, MERGED_COLUMNS, strict=True))
        )
        on = [*self.keys, *MERGED_COLUMNS]
        return closed.placed().join(merged, on=on, how="semi", nulls_equal=True).unique()

    def _of_windows(self, windowed: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
        if self.merged_by is None:
            return windowed.join(windows, on=[*self.keys, *WINDOW_COLUMNS], how="semi", nulls_equal=True)
        return windowed.filter(merges_with(windowed, windows, self.merged_by, self.keys))
