"""Triggers that ask for nothing but the end of the window: the default, one that is always ready, one that never is."""

from __future__ import annotations

import attrs
import polars as pl

from windowing.triggers.base import NO_DEADLINE, WATERMARK, Env, Moment, Trigger, end_of_window


@attrs.frozen(repr=False)
class DefaultTrigger(Trigger):
    """Emits when the watermark passes the end of the window, and again for every bundle of late elements."""

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return moment.window_is_over()

    def clocks(self) -> frozenset[str]:
        return frozenset({WATERMARK})

    def deadline(self, env: Env, at: str, moment: Moment, clock: str) -> pl.Expr:
        return end_of_window(moment) if clock == WATERMARK else NO_DEADLINE

    @property
    def waits_for_end(self) -> bool:
        return True


@attrs.frozen(repr=False)
class Always(Trigger):
    """Emits for every bundle, and at the end of the window."""

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return pl.lit(True)

    def clocks(self) -> frozenset[str]:
        return frozenset({WATERMARK})

    def deadline(self, env: Env, at: str, moment: Moment, clock: str) -> pl.Expr:
        return end_of_window(moment) if clock == WATERMARK else NO_DEADLINE


@attrs.frozen(repr=False)
class Never(Trigger):
    """Never emits: what has come is in the last pane, when the window is collected."""

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return pl.lit(False)
