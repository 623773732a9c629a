"""Panes: the columns with a pane's index and timing, and the state of a window from which they are computed."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

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

OVER, CLOSING, DRAINED = "over", "closing", "drained"
CAUSES: Final = (OVER, EARLY, LATE, DRAINED, CLOSING)
"""The causes of a pane: the window is over, an early trigger, late elements, a drain, or the window is closed."""

ALWAYS, IF_NON_EMPTY = "always", "if_non_empty"
"""The values of the options `on_time` and `closing`: whether a pane without new elements is emitted."""

AccumulationName = Literal["discarding", "accumulating", "retracting"]
WhenEmpty = Literal["always", "if_non_empty"]

NEXT_INDEX = "__next_index"
NEXT_NONSPECULATIVE = "__next_nonspeculative"
LAST_TIMING = "__last_timing"

PANE_STATE: Final[dict[str, tuple[pl.DataType, object]]] = {
    NEXT_INDEX: (pl.Int64(), 0),
    NEXT_NONSPECULATIVE: (pl.Int64(), 0),
    LAST_TIMING: (pl.String(), None),
}
"""The columns of a window with their types and defaults: index of the next pane, index of the next pane that is not
early, and timing of the last pane.
"""


class Accumulation(Enum):
    """The relation of a pane to earlier panes of its window.

    With DISCARDING, a pane has only new elements. With ACCUMULATING, it has all elements so far. With RETRACTING, it
    has all elements so far, and the earlier pane that it replaces is emitted again before it, marked as retracted.
    `window_into` accepts a member or its text, such as "accumulating".

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
    """Returns an expression for the timing of a window's next pane. The panes of a window are EARLY* ON_TIME? LATE*.

    `input_watermark` is the current input watermark of the stage (us). `promised` is the least of the input watermark
    before the step and the window's own hold. A pane is late if `promised` has passed the window's last instant, or if
    an earlier pane was not early. So the timing does not depend on other keys or on the number of shards.
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
    """Returns expressions for the pane columns of emitting windows, which have PANE_TIMING. `last` is true for a last
    pane.
    """
    early = pl.col(PANE_TIMING) == EARLY
    return {
        PANE_TIMING: pl.col(PANE_TIMING),
        PANE_INDEX: pl.col(NEXT_INDEX),
        PANE_NONSPECULATIVE_INDEX: pl.when(early).then(-1).otherwise(pl.col(NEXT_NONSPECULATIVE)),
        PANE_FIRST: pl.col(NEXT_INDEX) == 0,
        PANE_LAST: last,
        PANE_RETRACTED: pl.lit(False),
    }


def closed_by_drain(input_before: int) -> pl.Expr:
    """Returns an expression that is true for panes with PANE_TIMING which a step emits only if it drains the run.

    `input_before` is the input watermark before the step (us). An early pane is emitted for elements, drain or not.
    """
    return (pl.col(WINDOW_END) > input_before) & (pl.col(PANE_TIMING) != EARLY)


def cause(input_before: int, *, drained: bool, closing: bool) -> pl.Expr:
    """Returns an expression for the cause of a pane with PANE_TIMING.

    Args:
        input_before: The input watermark before the step (us).
        drained: True if a drain ends the run with this step.
        closing: True if the windows are collected, which emits their pending elements.
    """
    timing = pl.col(PANE_TIMING)
    return (
        pl.when(pl.lit(drained) & closed_by_drain(input_before)).then(pl.lit(DRAINED))
        .when(timing == EARLY).then(pl.lit(EARLY))
        .when(timing == ON_TIME).then(pl.lit(OVER))
        .otherwise(pl.lit(CLOSING if closing else LATE))
    )  # fmt: skip


def number_next(emitted: pl.Expr) -> dict[str, pl.Expr]:
    """Returns expressions for the pane state after the rows for which `emitted` is true emitted a pane with
    PANE_TIMING.
    """
    counted = emitted & (pl.col(PANE_TIMING) != EARLY)
    return {
        NEXT_INDEX: pl.col(NEXT_INDEX) + emitted.cast(pl.Int64),
        NEXT_NONSPECULATIVE: pl.col(NEXT_NONSPECULATIVE) + counted.cast(pl.Int64),
        LAST_TIMING: pl.when(emitted).then(pl.col(PANE_TIMING)).otherwise(pl.col(LAST_TIMING)),
    }
