"""Triggers that wait for processing time to pass a target that the first element sets."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl

from windowing.clocks import PROCESSING_TIME
from windowing.time import Microseconds, format_duration, microseconds
from windowing.triggers.base import BARE, NO_DEADLINE, Cell, Env, Finishing, Trigger, TriggerContext, where


@attrs.frozen(repr=False)
class _AtTarget(Finishing):
    """Emits once, when processing time has passed the target that the first element since the last pane has set."""

    def own_cells(self) -> dict[str, Cell]:
        return {"target": Cell(pl.Int64(), None, "min"), **super().own_cells()}

    def target(self, now: int) -> int:
        """The processing time (us) that must be passed if the first element arrives at `now`."""
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
    """Emits once, when processing time has advanced after the first element since the last pane.

    It follows a grouping with `AfterProcessingTime`, so it is seldom written by hand. All shards of this engine have
    the same processing time.

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
    """Emits once, when `delay` of processing time has passed since the first element after the last pane.

    Args:
        delay: A duration, such as "30s" or a timedelta; by default 0.
        align_to: A duration: the pane then waits for the next multiple of it, counted from `offset` after midnight UTC.
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
        converter=attrs.converters.optional(microseconds),
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
