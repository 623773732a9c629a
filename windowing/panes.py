"""Panes: the state of a window's panes so far, and the number and timing of its next pane."""

from __future__ import annotations

from enum import Enum
from typing import Final

import polars as pl

from windowing.columns import (
    PANE_FIRST,
    PANE_INDEX,
    PANE_LAST,
    PANE_NONSPECULATIVE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    WINDOW_END,
)

EARLY, ON_TIME, LATE = "early", "on_time", "late"

ALWAYS, IF_NON_EMPTY = "always", "if_non_empty"
"""The choices for a pane without new elements, at the end of a window or as its last."""

NEXT_INDEX = "__next_index"
NEXT_NONSPECULATIVE = "__next_nonspeculative"
LAST_TIMING = "__last_timing"

PANE_STATE: Final[dict[str, tuple[pl.DataType, object]]] = {
    NEXT_INDEX: (pl.Int64(), 0),
    NEXT_NONSPECULATIVE: (pl.Int64(), 0),
    LAST_TIMING: (pl.String(), None),
}
"""Columns of a window, with defaults: index of the next pane, of the next that is not early, timing of the last one."""


class Accumulation(Enum):
    """The use of a window's content after it has been emitted.

    DISCARDING removes it: panes are parts. ACCUMULATING keeps it: each pane contains all elements so far. RETRACTING
    keeps it, and retracts each pane that a new one replaces: the old pane is emitted once more, marked as retracted,
    before the new one. `window_into` accepts a member or its text, such as "accumulating".

    Example, with the `plays` of `bl.Collection`:
        >>> early = bl.AfterWatermark(early=bl.AfterCount(2))
        >>> for choice in bl.DISCARDING, bl.ACCUMULATING, bl.RETRACTING:
        ...     days = plays.window_into(bl.FixedWindows("1d"), trigger=early, accumulation=choice)
        ...     print(choice.value, days.aggregate(n=bl.count()).collect()["n"].to_list())
        discarding [2, 1]
        accumulating [2, 3]
        retracting [2, 2, 3]
    """

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"


def timing(input_watermark: int, promised: pl.Expr) -> pl.Expr:
    """EARLY* ON_TIME? LATE*: the timing of a window's next pane.

    `input_watermark` is the current one of the stage. `promised` is the least of what it was before the step and of the
    window's own hold. A pane is late when that has passed the window, or after a pane that was not early. So neither
    other keys nor their shards count.
    """
    only_early = pl.col(LAST_TIMING).is_null() | (pl.col(LAST_TIMING) == EARLY)
    passed = pl.col(WINDOW_END) - 1 < promised
    early = pl.col(WINDOW_END) > input_watermark
    return (
        pl.when(passed | ~only_early).then(pl.lit(LATE))
        .when(early).then(pl.lit(EARLY))
        .otherwise(pl.lit(ON_TIME))
    )  # fmt: skip


def describe(last: pl.Expr) -> dict[str, pl.Expr]:
    """The pane columns of a row that emits, once PANE_TIMING is set; `last`: the pane closes the window."""
    early = pl.col(PANE_TIMING) == EARLY
    return {
        PANE_TIMING: pl.col(PANE_TIMING),
        PANE_INDEX: pl.col(NEXT_INDEX),
        PANE_NONSPECULATIVE_INDEX: pl.when(early).then(-1).otherwise(pl.col(NEXT_NONSPECULATIVE)),
        PANE_FIRST: pl.col(NEXT_INDEX) == 0,
        PANE_LAST: last,
        PANE_RETRACTED: pl.lit(False),
    }


def number_next(emitted: pl.Expr) -> dict[str, pl.Expr]:
    """The pane state after a step in which the rows under `emitted` emitted a pane of PANE_TIMING."""
    counted = emitted & (pl.col(PANE_TIMING) != EARLY)
    return {
        NEXT_INDEX: pl.col(NEXT_INDEX) + emitted.cast(pl.Int64),
        NEXT_NONSPECULATIVE: pl.col(NEXT_NONSPECULATIVE) + counted.cast(pl.Int64),
        LAST_TIMING: pl.when(emitted).then(pl.col(PANE_TIMING)).otherwise(pl.col(LAST_TIMING)),
    }
