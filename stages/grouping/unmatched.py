"""Unmatched retractions: retractions of elements that no window contains. They are dropped, so that no count of
elements is negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import polars as pl

from stages.changes import summed
from stages.frames import partition
from stages.grouping.layout import CLOSED, COUNT, REMAINING, WindowLayout
from stages.grouping.merging import Combined
from stages.operator import PENDING
from windowing.columns import PANE_RETRACTED, WINDOW_COLUMNS
from windowing.panes import NEXT_INDEX, Accumulation

_EXCESS: Final = "__excess"
_EMPTY: Final = "__empty"
_LACKS: Final = "__lacks"
_ROW: Final = "__row"
_VALUE: Final = "__value"
_COUNT: Final = pl.element().struct.field("count")


@attrs.frozen(eq=False)
class Unmatched:
    """The windows that received retractions of elements that they did not have.

    Attributes:
        windows: The keys and bounds of the windows, and in the column `__excess` the number of these retractions.
        lacking: The values, with the keys and bounds of their windows, that were retracted more often than they were
            there, for each accumulator column that counts values.
    """

    windows: pl.DataFrame
    lacking: Mapping[str, pl.DataFrame] = attrs.field(factory=dict)

    @property
    def count(self) -> int:
        """The number of surplus retractions, which are dropped."""
        return int(self.windows[_EXCESS].sum()) if len(self.windows) else 0

    def rows(self, admitted: pl.DataFrame, layout: WindowLayout) -> pl.DataFrame:
        """Returns the arrivals that are dropped: of each window, the retractions of values that are not there. If no
        aggregate stores values, these are the last of its retractions.
        """
        if not len(self.windows) or PANE_RETRACTED not in admitted.columns:
            return admitted.clear()
        window = [*layout.keys, *WINDOW_COLUMNS]
        of_windows = (
            summed(admitted)
            .filter(PANE_RETRACTED)
            .join(self.windows, on=window, how="inner", nulls_equal=True, maintain_order="left")
        )
        ordered = of_windows.with_columns(self._lacks(of_windows, layout)).sort(_LACKS, maintain_order=True)
        later = pl.int_range(pl.len()).reverse().over(window)
        return ordered.filter(later < pl.col(_EXCESS)).drop(_EXCESS, _LACKS)

    def _lacks(self, retractions: pl.DataFrame, layout: WindowLayout) -> pl.Series:
        """Returns a flag for each retraction: true if its window lacks the value."""
        flags = pl.Series(_LACKS, [False]).new_from_index(0, len(retractions))
        rows, window = layout.marked(retractions), [*layout.keys, *WINDOW_COLUMNS]
        for name, values in self.lacking.items():
            lifted = rows.select(
                pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW),
                *window,
                layout.lift(True)[name].alias(name),
            )
            value = [*window, _VALUE]
            lacks = (
                _values(lifted, name, [_ROW, *window]).drop("count").join(values, on=value, nulls_equal=True)
            )
            later = pl.int_range(pl.len()).reverse().over(value, order_by=_ROW)
            lacks = lacks.filter(later < -pl.col("count"))
            flags = flags.scatter(lacks[_ROW], True)
        return flags


NONE: Final = Unmatched(pl.DataFrame())


def without_unmatched(
    combined: Combined, incoming: pl.DataFrame, layout: WindowLayout
) -> tuple[Combined, Unmatched]:
    """Removes retractions without an element to retract from the windows `combined`. Returns the windows, and the
    dropped retractions. `incoming` are the arrivals that were merged into `combined`.

    A window without remaining elements becomes empty, even if it received more retractions than elements.
    """
    # Between discarding panes, a window has the difference to the pane before, which may be negative.
    if not layout.retractions or layout.windowing.accumulation is Accumulation.DISCARDING:
        return combined, NONE
    # A change of either sign is counted, so without retractions both numbers are equal.
    if not (incoming[REMAINING] < incoming[COUNT]).any():
        return combined, NONE
    # A closed window has dropped its elements, and drops their retractions for that reason.
    rows = combined.rows
    if not _lacks(rows.filter(~pl.col(CLOSED)), layout):
        return combined, NONE
    lacking = pl.max_horizontal(-pl.col(REMAINING), *map(_lacking, layout.counted))
    rows = rows.with_columns(pl.when(CLOSED).then(0).otherwise(lacking.clip(lower_bound=0)).alias(_EXCESS))
    window = [*layout.keys, *WINDOW_COLUMNS]
    excess = rows.filter(pl.col(_EXCESS) > 0)
    negative = {name: _values(excess, name, window).filter(pl.col("count") < 0) for name in layout.counted}
    found = Unmatched(excess.select(*window, _EXCESS), negative)
    empty = (pl.col(_EXCESS) > 0) & (pl.col(REMAINING) + pl.col(_EXCESS) <= 0)
    there = {name: pl.col(name).list.eval(pl.element().filter(_COUNT > 0)) for name in layout.counted}
    left = rows.with_columns(
        (pl.col(COUNT) - pl.col(_EXCESS)).clip(lower_bound=0).alias(COUNT),
        (pl.col(REMAINING) + pl.col(_EXCESS)).alias(REMAINING),
        empty.alias(_EMPTY),
        **there,
    )
    left = left.with_columns(**layout.emptied(pl.col(_EMPTY)))
    never = pl.col(_EMPTY) & (pl.col(COUNT) == 0) & (pl.col(PENDING) == 0) & (pl.col(NEXT_INDEX) == 0)
    _, left = partition(left, never)
    return Combined(left.drop(_EXCESS, _EMPTY), combined.placed), found


def _values(rows: pl.DataFrame, name: str, beside: Sequence[str]) -> pl.DataFrame:
    """Returns the values and counts in the lists of a column, with these columns."""
    items = rows.select(*beside, name).explode(name, keep_nulls=False, empty_as_null=False)
    return items.select(
        *beside, pl.col(name).struct.field("value").alias(_VALUE), pl.col(name).struct.field("count")
    )


def _lacks(rows: pl.DataFrame, layout: WindowLayout) -> bool:
    """True if a window has a negative number of elements, or a negative number of some value."""
    if (rows[REMAINING] < 0).any():
        return True
    counts = (rows[name].explode(keep_nulls=False, empty_as_null=False) for name in layout.counted)
    return any((values.struct.field("count") < 0).any() for values in counts if len(values))


def _lacking(name: str) -> pl.Expr:
    """Returns an expression for the number of surplus retractions in a column of counted values."""
    return pl.col(name).list.eval((-_COUNT).clip(lower_bound=0)).list.sum()
