"""Triggers: when a window emits. A trigger keeps no state: it rewrites an environment `{cell: expression}`.

A cell is a column of the state of a window. `on_elements`, `on_fire` and `on_merge` return a new environment,
`ready`, `finished` and `deadline` are expressions over it, so a composite is the combination of its children's
expressions, and one `with_columns` evaluates any trigger over all windows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import polars as pl

from windowing.columns import WINDOW_END

Env = Mapping[str, pl.Expr]
ROOT = "__trigger"
"""Where the trigger of a windowing keeps its cells."""

ALL = "|all"
"""In the environment of `on_merge`, `cell` is true if it was in any part, `cell|all` if it was in all."""


@attrs.frozen
class Cell:
    """A column of trigger state: its type, its value in a new window, and how merging windows fold it."""

    dtype: pl.DataType
    default: object
    fold: Literal["any", "sum", "min"]

    def literal(self) -> pl.Expr:
        return pl.lit(self.default, self.dtype)


@attrs.frozen
class Moment:
    """What a trigger may look at besides its cells: the clocks, in microseconds, and the kind of windows."""

    watermark: int
    processing_time: int
    merging: bool

    def window_is_over(self) -> pl.Expr:
        return pl.col(WINDOW_END) <= self.watermark


@attrs.frozen
class Trigger:
    """When a window emits a pane. `at` names the place of a trigger in the whole, so that its cells are its own.

    Laws: more elements never make a ready trigger unready; `deadline` is never after the watermark at which the
    trigger becomes ready without further elements.
    """

    def children(self) -> tuple[Trigger, ...]:
        return ()

    def own_cells(self) -> dict[str, Cell]:
        return {}

    def cells(self, at: str = ROOT) -> dict[str, Cell]:
        """All columns of state that this trigger and those below it need."""
        cells = {f"{at}.{name}": cell for name, cell in self.own_cells().items()}
        for index, child in enumerate(self.children()):
            cells |= child.cells(f"{at}.{index}")
        return cells

    def reset(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """As new, below `at`, where the mask holds."""
        cells = self.cells(at).items()
        return {
            **env,
            **{name: pl.when(mask).then(cell.literal()).otherwise(env[name]) for name, cell in cells},
        }

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        """After `count` elements came to each window under the mask."""
        for index, child in enumerate(self.children()):
            env = child.on_elements(env, f"{at}.{index}", mask, count, moment)
        return env

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        """With its own finished bit, if it has one, set so where the mask holds."""
        return env

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        """Whether the window should emit now."""
        raise NotImplementedError

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        """After the windows under the mask, which were ready, have emitted."""
        raise NotImplementedError

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        """After windows became one, where the mask holds; `env` has the cells folded over the parts."""
        for index, child in enumerate(self.children()):
            env = child.on_merge(env, f"{at}.{index}", mask, moment)
        return env

    def finished(self, env: Env, at: str) -> pl.Expr:
        """Whether it will never be ready again; a window whose whole trigger is finished is closed."""
        return pl.lit(False)

    def deadline(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        """The watermark, in microseconds, at which it becomes ready without elements; null for never."""
        return pl.lit(None, pl.Int64)

    def may_finish(self) -> bool:
        """Whether it can finish, so that elements which come later would be dropped."""
        return False

    def continuation(self) -> Trigger:
        """The trigger of a grouping whose input this trigger has paced already."""
        return self


@attrs.frozen
class DefaultTrigger(Trigger):
    """Emits when the watermark passes the end of the window, and again for every bundle of late elements."""

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return moment.window_is_over()

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        return env

    def deadline(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return pl.when(~moment.window_is_over()).then(pl.col(WINDOW_END))


def _optional_trigger(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, Trigger):
        hint = f"; AfterCount({value})?" if isinstance(value, int) else ""
        raise TypeError(f"{type(owner).__name__}: {attribute.name} must be a trigger, not {value!r}{hint}")


def _trigger(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        raise TypeError(f"{type(owner).__name__}: {attribute.name} must be a trigger, not None")
    _optional_trigger(owner, attribute, value)


@attrs.frozen
class AfterWatermark(Trigger):
    """Emits when the watermark passes the end of the window; before that as `early`, after it as `late` say.

    Both are repeated. Without `late` it finishes at the end of the window.
    """

    early: Trigger | None = attrs.field(default=None, validator=_optional_trigger)
    late: Trigger | None = attrs.field(default=None, validator=_optional_trigger)

    def children(self) -> tuple[Trigger, ...]:
        return tuple(child for child in (self.early, self.late) if child is not None)

    def own_cells(self) -> dict[str, Cell]:
        return {"past": Cell(pl.Boolean(), False, "any")}

    def _places(self, at: str) -> tuple[str, str, str]:
        late = 0 if self.early is None else 1
        return f"{at}.past", f"{at}.0", f"{at}.{late}"

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        past, early, late = self._places(at)
        # A merge may take a session back to its early phase, so there both count all elements.
        anyway = pl.lit(moment.merging)
        was_past = env[past]
        if self.early is not None:
            env = self.early.on_elements(env, early, mask & (anyway | ~was_past), count, moment)
        if self.late is not None:
            env = self.late.on_elements(env, late, mask & (anyway | was_past), count, moment)
        return env

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        past, early, late = self._places(at)
        before = moment.window_is_over()
        if self.early is not None:
            before = before | self.early.ready(env, early, moment)
        after = pl.lit(False) if self.late is None else self.late.ready(env, late, moment)
        return pl.when(env[past]).then(after).otherwise(before)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        past, early, late = self._places(at)
        over = moment.window_is_over()
        was_past = env[past]
        passes = mask & ~was_past & over
        if self.early is not None:
            env = self.early.on_fire(env, early, mask & ~was_past & ~over, moment)
            env = self.early.reset(env, early, mask & ~was_past)
            env = self.early.mark(env, early, passes, True)
        if self.late is not None:
            env = self.late.on_fire(env, late, mask & was_past, moment)
            env = self.late.reset(env, late, passes | (mask & was_past))
        return {**env, past: was_past | passes}

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        past, early, late = self._places(at)
        stays_past = env[past + ALL] & moment.window_is_over()
        env = super().on_merge(env, at, mask, moment)
        if self.early is not None:
            env = self.early.reset(env, early, mask & stays_past)
            env = self.early.mark(env, early, mask & stays_past, True)
            env = self.early.mark(env, early, mask & ~stays_past, False)
        if self.late is not None:
            env = self.late.reset(env, late, mask & ~stays_past)
        return {**env, past: pl.when(mask).then(stays_past).otherwise(env[past])}

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.past"] if self.late is None else pl.lit(False)

    def deadline(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        past, early, late = self._places(at)
        before: pl.Expr = pl.when(~moment.window_is_over()).then(pl.col(WINDOW_END))
        if self.early is not None:
            before = pl.min_horizontal(before, self.early.deadline(env, early, moment))
        after = pl.lit(None, pl.Int64) if self.late is None else self.late.deadline(env, late, moment)
        return pl.when(env[past]).then(after).otherwise(before)

    def may_finish(self) -> bool:
        return self.late is None

    def continuation(self) -> Trigger:
        return AfterWatermark(
            early=self.early and self.early.continuation(), late=self.late and self.late.continuation()
        )


def _at_least_one(owner: object, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"AfterCount: count must be a whole number of at least 1, not {value!r}")


@attrs.frozen
class AfterCount(Trigger):
    """Emits once, when at least `count` elements have come since the last pane; more may, as bundles are whole."""

    count: int = attrs.field(validator=_at_least_one)

    def own_cells(self) -> dict[str, Cell]:
        return {"count": Cell(pl.Int64(), 0, "sum"), "done": Cell(pl.Boolean(), False, "any")}

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        seen = f"{at}.count"
        return {**env, seen: pl.when(mask).then(env[seen] + count).otherwise(env[seen])}

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        done = f"{at}.done"
        return {**env, done: pl.when(mask).then(finished).otherwise(env[done])}

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return (env[f"{at}.count"] >= self.count) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        return {**self._cleared(env, at, mask), f"{at}.done": env[f"{at}.done"] | mask}

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        # Finished in any part is finished: the fold of the cell. Otherwise the counts have been added up.
        return self._cleared(env, at, mask & env[f"{at}.done"])

    def _cleared(self, env: Env, at: str, mask: pl.Expr) -> Env:
        seen = f"{at}.count"
        return {**env, seen: pl.when(mask).then(0).otherwise(env[seen])}

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.done"]

    def may_finish(self) -> bool:
        return True

    def continuation(self) -> Trigger:
        return AfterCount(1)


@attrs.frozen
class Repeatedly(Trigger):
    """Begins its trigger anew each time that it has finished, so a window is never closed before its time."""

    trigger: Trigger = attrs.field(validator=_trigger)

    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return self.trigger.ready(env, f"{at}.0", moment)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        env = self.trigger.on_fire(env, f"{at}.0", mask, moment)
        return self.trigger.reset(env, f"{at}.0", mask & self.trigger.finished(env, f"{at}.0"))

    def deadline(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        return self.trigger.deadline(env, f"{at}.0", moment)

    def continuation(self) -> Trigger:
        return Repeatedly(self.trigger.continuation())
