"""The windowing of a collection after `window_into` and after a grouping, with its checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, WrongType, unknown_column
from beamlike.expressions.describe import aggregate_text, describe
from beamlike.logical.event_time import require_windows_alike
from beamlike.logical.node import Node
from beamlike.rows.dtypes import type_name
from stages.aggregates.base import Aggregate
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import PANE_COLUMNS, PANE_RETRACTED
from windowing.panes import Accumulation
from windowing.time import MAX_TIME, MIN_TIME, microseconds
from windowing.timestamp_combiners import TimestampCombiner
from windowing.triggers.base import ROOT, Trigger, TriggerContext
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows, Sessions, WindowFn

_MANY: Final = 2**62
"""A number of elements that no trigger's count exceeds."""


def rewindowed(before: Node, changes: Mapping[str, Any], step: str) -> Windowing:
    """Returns the windowing with all changes that are not None. The allowed lateness never becomes shorter."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise PlanError("give it windows such as bl.FixedWindows('2m'), or another choice", step=step)
    if "trigger" in given:
        # A permission to lose data is for one trigger only, so a new trigger needs its own.
        given.setdefault("allow_data_loss", False)
    if "windows" in given:
        _require_windows(before, given["windows"], step)
    windowing = _evolved(before.windowing, given, step)
    _require_chosen(before, windowing, step)
    return windowing


def continued(windowing: Windowing, step: str) -> Windowing:
    """Returns the windowing of a grouping's output. It has the continuation of the trigger, and chooses no row as
    timestamp.
    """
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
    """Returns the larger value. A negative one is returned unchanged, so that its own check reports it."""
    lateness = microseconds(given)
    return f"{lateness if lateness < 0 else max(before, lateness)}us"


def _require_windows(before: Node, windows: object, step: str) -> None:
    if not isinstance(windows, WindowFn):
        raise WrongType(f"expected windows such as bl.FixedWindows('2m'), got {windows!r}", step=step)
    for column in windows.columns:
        if column not in before.schema:
            note = f"; {describe(windows)} reads it"
            raise unknown_column(column, before.schema, step, note=note)
    if windows.merging and before.retracting and not isinstance(windows, Sessions):
        raise PlanError(
            f"its rows may retract earlier ones, and windows of {describe(windows)} that have merged for a row "
            "cannot part again when it is taken back; give bl.Sessions, or windows that do not merge",
            step=step,
        )


def _require_chosen(before: Node, windowing: Windowing, step: str) -> None:
    """Raises `UnknownColumn` or `WrongType` unless the column of `timestamp_of` exists and is Boolean."""
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
    """Returns the pane columns of a grouping's output. The column for retractions is among them only if it
    may be true.
    """
    retracts = windowing.accumulation is Accumulation.RETRACTING
    return tuple(column for column in PANE_COLUMNS if retracts or column != PANE_RETRACTED)


def require_groupable(before: Node, aggregates: Mapping[str, Aggregate], step: str) -> None:
    """Raises `PlanError` unless the rows of `before` can be grouped with these aggregates.

    The trigger must emit at some time, and the column of `timestamp_of` must be Boolean. If rows may retract or repeat
    earlier ones, each aggregate must be able to subtract, or must not count a row twice.
    """
    require_windows_alike(before, step)
    _require_end(before, step)
    _require_chosen(before, before.windowing, step)
    if before.retracting:
        _require_subtractable(aggregates, step)
        _require_differences(before.windowing, aggregates, step)
    require_no_repeats(before, aggregates, step)


def _require_subtractable(aggregates: Mapping[str, Aggregate], step: str) -> None:
    refused = {
        f"{name}={aggregate_text(aggregate)}"
        for name, aggregate in aggregates.items()
        if not aggregate.for_retractions().subtractable
    }
    if refused:
        exact = " (count_distinct can)" if any("approx_count_distinct" in one for one in refused) else ""
        raise PlanError(
            f"its rows may retract earlier ones (accumulation retracting), which {', '.join(sorted(refused))} cannot "
            f"subtract{exact}; give another accumulation before",
            step=step,
        )


def _require_differences(windowing: Windowing, aggregates: Mapping[str, Aggregate], step: str) -> None:
    """Raises `PlanError` for discarding panes if rows may retract rows of earlier panes, and an aggregate has no
    differences. Such a pane is the difference to the earlier ones, which only some aggregates can compute.
    """
    if windowing.accumulation is not Accumulation.DISCARDING or windowing.has_one_pane():
        return
    refused = [
        f"{name}={aggregate_text(aggregate)}"
        for name, aggregate in aggregates.items()
        if not aggregate.has_differences
    ]
    if refused:
        raise PlanError(
            f"its rows may retract rows of earlier panes, so a pane with only new elements (accumulation discarding) "
            f"is a difference, which only count and sum have, not {', '.join(refused)}; give "
            "window_into(accumulation=bl.RETRACTING) or bl.ACCUMULATING before",
            step=step,
        )


def require_no_repeats(before: Node, aggregates: Mapping[str, Aggregate], step: str) -> None:
    """Raises `PlanError` if a row may repeat earlier rows, and an aggregate would count repeated rows again."""
    if not before.repeats or before.windowing.allow_repeats:
        return
    refused = [
        f"{name}={aggregate_text(aggregate)}"
        for name, aggregate in aggregates.items()
        if not aggregate.idempotent
    ]
    if refused:
        raise PlanError(
            f"its rows are panes with all elements so far (accumulation accumulating), so {', '.join(refused)} "
            "would count elements several times; give the grouping before accumulation=bl.DISCARDING or "
            "bl.RETRACTING, select the latest per key and window with bl.last(...) before, or accept it with "
            "window_into(allow_repeats=True); max, min, first, last, arg_max, arg_min, any and all are not affected",
            step=step,
        )


def _require_end(before: Node, step: str) -> None:
    """Raises `UnboundedGrouping` for unbounded input in the global window, unless the trigger emits before the window's
    end.
    """
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
    """True if the trigger can become ready without the watermark: by elements and processing time alone.

    It is evaluated for a window that received very many elements at the earliest time, and is now at the latest time.
    """
    first, last = (
        TriggerContext({WATERMARK: MIN_TIME, PROCESSING_TIME: now}, merging=False) for now in (0, MAX_TIME)
    )
    cells = {name: cell.literal() for name, cell in trigger.cells().items()}
    env = trigger.on_elements(cells, ROOT, pl.lit(True), pl.lit(_MANY, pl.Int64), first)
    window = GlobalWindows().assign(pl.DataFrame({"": [0]}))
    return bool(window.select(trigger.ready(env, ROOT, last).alias("ready"))["ready"].item())
