"""Triggers of processing time: the first element sets a target time, after which they emit."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl

from windowing.clocks import PROCESSING_TIME
from windowing.identity import BARE
from windowing.time import Duration, Microseconds, format_duration, microseconds
from windowing.triggers.base import NO_DEADLINE, Cell, Env, Finishing, Trigger, TriggerContext, where


def _microseconds_if_any(duration: Duration | None) -> int | None:
    return None if duration is None else microseconds(duration)


@attrs.frozen(repr=False)
class _AtTarget(Finishing):
    """The base class of triggers that emit once, when processing time has passed a target.

    The first element after the last pane sets the target.
    """

    def own_cells(self) -> dict[str, Cell]:
        return {"target": Cell(pl.Int64(), None, "min"), **super().own_cells()}

    def target(self, now: int) -> int:
        """Returns the target, a processing time (us), if the first element arrives at the processing time `now`
        (us).
        """
        raise NotImplementedError

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        target = env[f"{at}.target"]
        new = pl.lit(self.target(context.processing_time), pl.Int64)
        return {**env, f"{at}.target": where(mask & target.is_null(), new, target)}

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return (env[f"{at}.target"] < context.processing_time).fill_null(False) & ~env[f"{at}.done"]

    def clocks(self) -> frozenset[str]:
        return frozenset({PROCESSING_TIME})

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        if clock != PROCESSING_TIME:
            return NO_DEADLINE
        target = env[f"{at}.target"]
        return pl.when((target >= context.processing_time) & ~env[f"{at}.done"]).then(target + 1)

    def continuation(self) -> Trigger:
        return AfterSynchronizedProcessingTime()


@attrs.frozen(repr=False)
class AfterSynchronizedProcessingTime(_AtTarget):
    """The trigger that emits once, when processing time has advanced since the first element after the last pane.

    A grouping that reads the panes of a grouping with `AfterProcessingTime` gets it by default, so users seldom write
    it. All shards have the same processing time.

    Example, with the `plays` of `bl.Collection`:
        >>> paced = bl.Repeatedly(bl.AfterProcessingTime("1m"))
        >>> counts = plays.window_into(bl.FixedWindows("1d"), trigger=paced).aggregate(n=bl.count())
        >>> counts.windowing.trigger
        Repeatedly(AfterSynchronizedProcessingTime())
    """

    def target(self, now: int) -> int:
        return now


def _not_negative(owner: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if value < 0:
        raise ValueError(f"AfterProcessingTime: delay must not be negative, not {format_duration(value)}")


def _aligned(owner: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(
            f"AfterProcessingTime: align_to must be longer than 0s, not {format_duration(value)}"
        )


def _has_alignment(owner: AfterProcessingTime, attribute: attrs.Attribute[Any], value: int) -> None:
    if value and owner.align_to is None:
        raise ValueError(
            f"AfterProcessingTime: offset={format_duration(value)} moves what align_to aligns to; give align_to"
        )


def _quoted(us: int) -> str:
    return f'"{format_duration(us)}"'


@attrs.frozen(repr=False)
class AfterProcessingTime(_AtTarget):
    """The trigger that emits once, a `delay` of processing time after the first element since the last pane.

    Args:
        delay: A duration, such as "30s" or a timedelta; by default 0.
        align_to: A duration. The pane then also waits for the next multiple of it, counted from 1970-01-01 UTC.
        offset: A duration by which the multiples of `align_to` are moved.

    Example:
        >>> stream = bl.TestStream({"at": int}).add_elements([{"at": 1}]).advance_processing_time("61s")
        >>> stream = stream.add_elements([{"at": 2}]).advance_watermark_to_infinity()
        >>> rows = bl.Pipeline("p").read("rows", stream, timestamp="at", timestamp_unit="s")
        >>> paced = bl.AfterWatermark(early=bl.AfterProcessingTime("1m"))
        >>> counts = rows.window_into(bl.FixedWindows("1h"), trigger=paced).aggregate(n=bl.count())
        >>> counts.collect()[["n", "pane_timing"]].rows()
        [(1, 'early'), (1, 'on_time')]
    """

    delay: int = attrs.field(
        default=Microseconds(0),
        converter=microseconds,
        validator=_not_negative,
        repr=_quoted,
        metadata={BARE: True},
    )
    align_to: int | None = attrs.field(
        default=None,
        converter=_microseconds_if_any,
        validator=_aligned,
        repr=_quoted,
        kw_only=True,
    )
    offset: int = attrs.field(
        default=Microseconds(0), converter=microseconds, validator=_has_alignment, repr=_quoted, kw_only=True
    )

    def target(self, now: int) -> int:
        after = now + self.delay
        return after if self.align_to is None else after + (self.offset - after) % self.align_to
