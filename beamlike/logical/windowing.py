"""What a windowing becomes at `window_into` and at a grouping, and what must hold of it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, WrongType, unknown_column
from beamlike.expressions.describe import aggregate_text, describe
from beamlike.logical.node import Node
from beamlike.rows.dtypes import type_name
from stages.aggregates.base import Aggregate
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import PANE_COLUMNS, PANE_RETRACTED
from windowing.panes import IF_NON_EMPTY, Accumulation
from windowing.time import MAX_TIME, MIN_TIME, microseconds
from windowing.timestamp_combiners import TimestampCombiner
from windowing.triggers.base import ROOT, Trigger, TriggerContext
from windowing.triggers.basic import AfterWatermark, DefaultTrigger
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows, WindowFn

_MANY: Final = 2**62
"""More elements than any trigger waits for."""


def rewindowed(before: Node, changes: Mapping[str, Any], step: str) -> Windowing:
    """The windowing with those changes that are given, not None; allowed lateness never shrinks."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise PlanError("give it windows such as bl.FixedWindows('2m'), or another choice", step=step)
    if "trigger" in given:
        # What was allowed for one trigger is not allowed for another.
        given.setdefault("allow_data_loss", False)
    if "windows" in given:
        _require_windows(before, given["windows"], step)
    windowing = _evolved(before.windowing, given, step)
    _require_chosen(before, windowing, step)
    return windowing


def continued(windowing: Windowing, step: str) -> Windowing:
    """The windowing of what a grouping gives: the trigger goes on, and no row is a chosen one any more."""
    changes: dict[str, Any] = {"trigger": windowing.trigger.continuation()}
    if windowing.timestamp_combiner.columns:
        changes["timestamp_combiner"] = TimestampCombiner.EARLIEST
    return _evolved(windowing, changes, step)


def _evolved(before: Windowing, changes: dict[str, Any], step: str) -> Windowing:
    try:
        if "allowed_lateness" in changes:
            lateness = _at_least(before.allowed_lateness, changes["allowed_lateness"])
            changes = {**changes, "allowed_lateness": lateness}
        return attrs.evolve(before, **changes)
    except TypeError as error:
        raise WrongType(str(error.args[0]), step=step) from error
    except ValueError as error:
        raise PlanError(str(error), step=step) from error


def _at_least(before: int, given: Any) -> str:
    """The larger of the two. A negative one is left as it is, for its own check."""
    lateness = microseconds(given)
    return f"{lateness if lateness < 0 else max(before, lateness)}us"


def _require_windows(before: Node, windows: object, step: str) -> None:
    if not isinstance(windows, WindowFn):
        raise WrongType(f"expected windows such as bl.FixedWindows('2m'), got {windows!r}", step=step)
    for column in windows.columns:
        if column not in before.schema:
            note = f"; {describe(windows)} reads it"
            raise unknown_column(column, before.schema, step, note=note)
    if windows.merging and before.retracting:
        raise PlanError(
            f"its rows may take back earlier ones, and windows of {describe(windows)} that have merged for a row "
            "cannot part again when it is taken back; give windows that do not merge",
            step=step,
        )


def _require_chosen(before: Node, windowing: Windowing, step: str) -> None:
    """What `timestamp_of` reads is there, and says yes or no."""
    for column in windowing.timestamp_combiner.columns:
        if column not in before.schema:
            note = f"; {describe(windowing.timestamp_combiner)} reads it"
            raise unknown_column(column, before.schema, step, note=note)
        if before.schema[column] != pl.Boolean:
            raise WrongType(
                f"{describe(windowing.timestamp_combiner)} needs a Boolean column, which marks the chosen elements, "
                f"but it is {type_name(before.schema[column])}",
                step=step,
            )


def pane_columns(windowing: Windowing) -> tuple[str, ...]:
    """The pane columns that a grouping's output shows: whether a pane is taken back only where one may be."""
    retracts = windowing.accumulation is Accumulation.RETRACTING
    return tuple(column for column in PANE_COLUMNS if retracts or column != PANE_RETRACTED)


def has_one_pane(windowing: Windowing) -> bool:
    """Whether no window emits twice, as far as one can see."""
    match windowing.trigger:
        case DefaultTrigger() | AfterWatermark(early=None, percentile=None):
            return windowing.allowed_lateness == 0 and windowing.closing == IF_NON_EMPTY
    return False


def require_groupable(before: Node, aggregates: Mapping[str, Aggregate], step: str) -> None:
    """The trigger emits, the chosen elements can be told, and what is taken back can be subtracted."""
    _require_end(before, step)
    _require_chosen(before, before.windowing, step)
    if before.retracting:
        _require_subtractable(aggregates, step)
    if before.repeats and not before.windowing.allow_repeats:
        _require_idempotent(aggregates, step)


def _require_subtractable(aggregates: Mapping[str, Aggregate], step: str) -> None:
    refused = [
        f"{name}={aggregate_text(aggregate)}"
        for name, aggregate in aggregates.items()
        if not aggregate.subtractable
    ]
    if refused:
        raise PlanError(
            f"its rows may take back earlier ones (accumulation retracting), which {', '.join(refused)} cannot "
            "subtract; possible are count, mean, sum and window_length, all, any, collect_set, count_distinct, median, "
            "mode, quantile, std and var, or another accumulation before",
            step=step,
        )


def _require_idempotent(aggregates: Mapping[str, Aggregate], step: str) -> None:
    refused = [
        f"{name}={aggregate_text(aggregate)}"
        for name, aggregate in aggregates.items()
        if not aggregate.idempotent
    ]
    if refused:
        raise PlanError(
            f"its rows are panes that have all that came so far (accumulation accumulating), so {', '.join(refused)} "
            "would count most of it several times; give the grouping before accumulation=bl.DISCARDING or "
            "bl.RETRACTING, take the latest per key and window with bl.last(...) before, or say "
            "window_into(allow_repeats=True) where that is meant; max, min, first, last, arg_max, arg_min, any and all "
            "need nothing of this",
            step=step,
        )


def _require_end(before: Node, step: str) -> None:
    """The global window ends with the input: a trigger must emit before where the input has no end."""
    trigger = before.windowing.trigger
    if before.bounded or not isinstance(before.windowing.windows, GlobalWindows) or emits_meanwhile(trigger):
        return
    raise UnboundedGrouping(
        f"the input has no end and it is in the global window, so {describe(trigger)} would never emit; "
        "call window_into(...) before, for example with bl.FixedWindows('2m') or "
        "trigger=bl.Repeatedly(bl.AfterCount(100))",
        step=step,
    )


def emits_meanwhile(trigger: Trigger) -> bool:
    """Whether elements and processing time make the trigger ready while the watermark stands still.

    It is asked for a window that got a great many elements in the beginning of time, at the end of time.
    """
    first, last = (
        TriggerContext({WATERMARK: MIN_TIME, PROCESSING_TIME: now}, merging=False) for now in (0, MAX_TIME)
    )
    cells = {name: cell.literal() for name, cell in trigger.cells().items()}
    env = trigger.on_elements(cells, ROOT, pl.lit(True), pl.lit(_MANY, pl.Int64), first)
    window = GlobalWindows().assign(pl.DataFrame({"": [0]}))
    return bool(window.select(trigger.ready(env, ROOT, last).alias("ready"))["ready"].item())
