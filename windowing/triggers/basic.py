"""Triggers with a single condition: the end of the window, a number of elements, always, and never."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl

from windowing.clocks import WATERMARK, percentile_clock
from windowing.columns import WINDOW_END
from windowing.triggers.base import (
    ALL,
    NO_DEADLINE,
    Cell,
    Env,
    Finishing,
    Trigger,
    TriggerContext,
    end_of_window,
    is_trigger,
    where,
)


@attrs.frozen(repr=False)
class DefaultTrigger(Trigger):
    """The trigger that emits when the watermark passes the end of the window, and for each bundle of late elements.

    Example, with the `plays` of `bl.Collection`:
        >>> minutes = plays.window_into(bl.FixedWindows("1m"), trigger=bl.DefaultTrigger())
        >>> minutes.aggregate(n=bl.count()).collect()[["n", "pane_timing"]].rows()
        [(2, 'on_time'), (1, 'on_time')]
    """

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return context.window_is_over()

    def clocks(self) -> frozenset[str]:
        return frozenset({WATERMARK})

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        return end_of_window(context) if clock == WATERMARK else NO_DEADLINE

    @property
    def waits_for_end(self) -> bool:
        return True


@attrs.frozen(repr=False)
class Always(Trigger):
    """The trigger that emits for each bundle, and at the end of the window.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Always(), on_time="if_non_empty")
        >>> days.aggregate(n=bl.count()).collect()[["n", "pane_timing"]].rows()
        [(1, 'early'), (1, 'early'), (1, 'early')]
    """

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return pl.lit(True)

    def clocks(self) -> frozenset[str]:
        return frozenset({WATERMARK})

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        return end_of_window(context) if clock == WATERMARK else NO_DEADLINE


@attrs.frozen(repr=False)
class Never(Trigger):
    """The trigger that never emits: all elements are in the last pane, when the window is collected.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Never())
        >>> days.aggregate(n=bl.count()).collect()["n"].to_list()
        [3]
    """

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return pl.lit(False)


def _at_least_one(owner: object, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"AfterCount: count must be a whole number of at least 1, not {value!r}")


@attrs.frozen(repr=False)
class AfterCount(Finishing):
    """The trigger that emits once, when at least `count` elements have arrived since the last pane.

    A pane may have more elements, since bundles are not divided. The trigger finishes with its pane. So that later
    elements are not dropped, use it in `Repeatedly` or `AfterWatermark`.

    Args:
        count: A whole number of at least 1.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(2)))
        >>> days.aggregate(n=bl.count()).collect()[["n", "pane_timing"]].rows()
        [(2, 'early'), (1, 'on_time')]
    """

    count: int = attrs.field(validator=_at_least_one)

    def own_cells(self) -> dict[str, Cell]:
        return {"count": Cell(pl.Int64(), 0, "sum"), **super().own_cells()}

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        seen = f"{at}.count"
        return {**env, seen: where(mask, env[seen] + count, env[seen])}

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return (env[f"{at}.count"] >= self.count) & ~env[f"{at}.done"]

    def continuation(self) -> Trigger:
        return AfterCount(1)


def _optional_trigger(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        is_trigger(owner, attribute, value)


def _percentile(owner: AfterWatermark, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 99:
        raise ValueError(f"AfterWatermark: percentile must be a whole number from 1 to 99, not {value!r}")
    if owner.early is not None or owner.late is not None:
        raise ValueError(
            f"AfterWatermark: percentile={value} cannot have early or late; give it as the early "
            f"trigger: AfterWatermark(early=AfterWatermark(percentile={value}))"
        )


@attrs.frozen(repr=False)
class AfterWatermark(Trigger):
    """The trigger that emits when the watermark passes the end of the window, and optionally before and after it.

    Args:
        early: A trigger for panes before the end of the window, which is repeated; by default there are none.
        late: A trigger for panes after the end of the window, which is repeated. Without one, the trigger finishes at
            the end of the window.
        percentile: A whole number from 1 to 99 to use this percentile watermark instead, which passes the end of the
            window sooner. It must be among the `percentiles` of the watermark strategy of each source.

    Example, with the `plays` of `bl.Collection`:
        >>> trigger = bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1))
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=trigger)
        >>> days.aggregate(n=bl.count()).collect()[["n", "pane_timing"]].rows()
        [(2, 'early'), (1, 'on_time')]
    """

    early: Trigger | None = attrs.field(default=None, validator=_optional_trigger)
    late: Trigger | None = attrs.field(default=None, validator=_optional_trigger)
    percentile: int | None = attrs.field(default=None, validator=_percentile, kw_only=True)

    def children(self) -> tuple[Trigger, ...]:
        return tuple(child for child in (self.early, self.late) if child is not None)

    def own_cells(self) -> dict[str, Cell]:
        return {"past": Cell(pl.Boolean(), False, "any")}

    @property
    def _clock(self) -> str:
        return WATERMARK if self.percentile is None else percentile_clock(self.percentile)

    def _over(self, context: TriggerContext) -> pl.Expr:
        return pl.col(WINDOW_END) <= context.time(self._clock)

    def _places(self, at: str) -> tuple[str, str, str]:
        late = 0 if self.early is None else 1
        return f"{at}.past", f"{at}.0", f"{at}.{late}"

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        past, early, late = self._places(at)
        # When sessions merge, the result may be in its early phase again. So if windows merge, both children count
        # all elements.
        anyway = pl.lit(context.merging)
        was_past = env[past]
        if self.early is not None:
            env = self.early.on_elements(env, early, mask & (anyway | ~was_past), count, context)
        if self.late is not None:
            env = self.late.on_elements(env, late, mask & (anyway | was_past), count, context)
        return env

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        # With children, the cell `past` is no finished bit of this trigger: it only divides early from late.
        past = f"{at}.past"
        return env if self.children() else {**env, past: where(mask, pl.lit(finished), env[past])}

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        past, early, late = self._places(at)
        before = self._over(context)
        if self.early is not None:
            before = before | self.early.ready(env, early, context)
        after = pl.lit(False) if self.late is None else self.late.ready(env, late, context)
        return pl.when(env[past]).then(after).otherwise(before)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        past, early, late = self._places(at)
        was_past = env[past]
        passes = mask & ~was_past & self._over(context)
        # Early and late triggers are repeated, so they are reset after each pane, whether they finish or not.
        if self.early is not None:
            env = self.early.reset(env, early, mask & ~was_past)
            env = self.early.mark(env, early, passes, True)
        if self.late is not None:
            env = self.late.reset(env, late, passes | (mask & was_past))
        return {**env, past: was_past | passes}

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        past, early, late = self._places(at)
        stays_past = env[past + ALL] & self._over(context)
        env = super().on_merge(env, at, mask, context)
        if self.early is not None:
            env = self.early.reset(env, early, mask & stays_past)
            env = self.early.mark(env, early, mask & stays_past, True)
            env = self.early.mark(env, early, mask & ~stays_past, False)
        if self.late is not None:
            env = self.late.reset(env, late, mask & ~stays_past)
        return {**env, past: where(mask, stays_past, env[past])}

    def clocks(self) -> frozenset[str]:
        return super().clocks() | {WATERMARK, self._clock}

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.past"] if self.late is None else pl.lit(False)

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        past, early, late = self._places(at)
        # With a percentile, a pane may still be due at the end of the window by the watermark itself.
        before = end_of_window(context, clock) if clock in (WATERMARK, self._clock) else NO_DEADLINE
        if self.early is not None and clock in self.early.clocks():
            before = pl.min_horizontal(before, self.early.deadline(env, early, context, clock))
        after = NO_DEADLINE if self.late is None else self.late.deadline(env, late, context, clock)
        return pl.when(env[past]).then(after).otherwise(before)

    def may_finish(self) -> bool:
        return self.late is None

    @property
    def waits_for_end(self) -> bool:
        # A late trigger does not matter: its counts of elements before the window's end are reset at the end.
        return self.early is None and self.percentile is None

    def continuation(self) -> Trigger:
        early, late = self.early and self.early.continuation(), self.late and self.late.continuation()
        return AfterWatermark(early, late, percentile=self.percentile)
