"""The base class of triggers, which decide when a window emits, and two composites that the base class can create.

A trigger object has no state. Its state are *trigger cells*, columns of the state of a window, and an *environment* has
an expression for each cell. `on_elements`, `on_fire` and `on_merge` return a new environment; `ready`, `finished` and
`deadline` are expressions over one. So a composite combines the expressions of its children, and one `with_columns`
evaluates any trigger for all windows at once. The state machines are those of Beam's runners.

    cell names of AfterWatermark(early=AfterCount(2))    __trigger.past    __trigger.0.count    __trigger.0.done
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final, Literal, cast

import attrs
import polars as pl

from windowing.clocks import WATERMARK, Times
from windowing.columns import WINDOW_END
from windowing.identity import Declared

Env = Mapping[str, pl.Expr]
ROOT: Final = "__trigger"
"""The prefix of the names of trigger cells, the position `at` of the outermost trigger."""

ALL: Final = "|all"
"""A suffix in the environment of `on_merge`: `cell` is true if it was in any part, `cell|all` if in all parts."""

NO_DEADLINE: Final = pl.lit(None, pl.Int64)

EVERYWHERE: Final = pl.lit(True)
"""The mask that selects all windows. Composites pass it to children and apply their own mask once, to the result."""


@attrs.frozen
class Cell:
    """A trigger cell: a column of trigger state with its type, its value in a new window, and its merge function.

    A cell with the merge function "any" is a finished bit: `Trigger.clear` does not reset it, and the environment of
    `on_merge` also has its `cell|all`.
    """

    dtype: pl.DataType
    default: object
    fold: Literal["any", "sum", "min"]

    def literal(self) -> pl.Expr:
        return pl.lit(self.default, self.dtype)


@attrs.frozen
class TriggerContext(Times):
    """The inputs of a trigger apart from its cells: the times of the clocks, and a flag for windows that merge."""

    merging: bool = False

    def window_is_over(self) -> pl.Expr:
        """Returns an expression that is true for windows whose end the watermark has passed."""
        return pl.col(WINDOW_END) <= self.watermark

    def any_over(self, ends: pl.Series) -> bool:
        """True if the watermark has passed one of these ends (us) of windows. Takes a tenth of the time of a mask."""
        first = cast(int | None, ends.min())
        return first is not None and first <= self.watermark

    def is_over(self, ends: pl.Series) -> pl.Series:
        """Returns a mask of the windows with these ends (us), as `window_is_over`."""
        return ends <= self.watermark


@attrs.frozen(repr=False)
class Trigger(Declared):
    """The base class of triggers: rules that decide when a window emits a pane.

    In all methods, `env` has an expression for each trigger cell. `at` is the position of this trigger in the whole
    trigger, and the prefix of the names of its cells. `mask` selects the windows that the method applies to.

    Laws: A ready trigger stays ready when more elements arrive. If a trigger becomes ready because clocks advance, and
    firing then changes a cell or emits a pane, one of these clocks has reached the trigger's `deadline`.
    """

    def children(self) -> tuple[Trigger, ...]:
        """Returns the triggers that this trigger consists of."""
        return ()

    def own_cells(self) -> dict[str, Cell]:
        """Returns the trigger cells of this trigger by name, without those of its children."""
        return {}

    def cells(self, at: str = ROOT) -> dict[str, Cell]:
        """Returns the trigger cells of this trigger and its children by name."""
        cells = {f"{at}.{name}": cell for name, cell in self.own_cells().items()}
        for index, child in enumerate(self.children()):
            cells |= child.cells(f"{at}.{index}")
        return cells

    def reset(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """Resets the cells of this trigger and its children in the windows that `mask` selects."""
        return _emptied(env, self.cells(at), mask)

    def clear(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """Like `reset`, but does not change finished bits."""
        kept = {name: cell for name, cell in self.cells(at).items() if cell.fold != "any"}
        return _emptied(env, kept, mask)

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        """Returns the environment after `count` elements arrived in each window that `mask` selects."""
        for index, child in enumerate(self.children()):
            env = child.on_elements(env, f"{at}.{index}", mask, count, context)
        return env

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        """Sets the finished bit of this trigger, if it has one, in the windows that `mask` selects."""
        return env

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        """Returns an expression that is true for windows that must emit now."""
        raise NotImplementedError

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        """Returns the environment after the windows that `mask` selects, which must be ready, have emitted."""
        return env

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        """Returns the environment after windows have merged. `env` has cells already merged by their merge
        functions.
        """
        for index, child in enumerate(self.children()):
            env = child.on_merge(env, f"{at}.{index}", mask, context)
        return env

    def finished(self, env: Env, at: str) -> pl.Expr:
        """Returns an expression that is true if the trigger will not emit again. The outermost one then closes the
        window.
        """
        return pl.lit(False)

    def clocks(self) -> frozenset[str]:
        """Returns the clocks that this trigger and its children depend on."""
        return frozenset().union(*(child.clocks() for child in self.children()))

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        """Returns an expression for the next time (us) on a clock at which the trigger may be ready; null for never."""
        due = [
            child.deadline(env, f"{at}.{index}", context, clock)
            for index, child in enumerate(self.children())
            if clock in child.clocks()
        ]
        return pl.min_horizontal(*due) if due else NO_DEADLINE

    def may_finish(self) -> bool:
        """True if the trigger can finish, so that later elements of the window would be dropped."""
        return False

    @property
    def waits_for_end(self) -> bool:
        """True if the trigger never emits before the end of the window, and does not depend on elements before it."""
        return False

    def continuation(self) -> Trigger:
        """Returns the trigger of a grouping that reads the panes which this trigger emits."""
        return self

    def or_finally(self, until: Trigger) -> OrFinally:
        """Returns a trigger that emits as this one until `until` is ready, then emits for the last time."""
        return OrFinally(self, until)


def _emptied(env: Env, cells: Mapping[str, Cell], mask: pl.Expr) -> Env:
    return {**env, **{name: where(mask, cell.literal(), env[name]) for name, cell in cells.items()}}


def where(mask: pl.Expr, new: pl.Expr, old: pl.Expr) -> pl.Expr:
    """Returns an expression for the new value in windows that `mask` selects, and the old value in all others."""
    return pl.when(mask).then(new).otherwise(old)


def end_of_window(context: TriggerContext, clock: str = WATERMARK) -> pl.Expr:
    """Returns an expression for the deadline at the end of the window; null if the clock has passed the end."""
    return pl.when(pl.col(WINDOW_END) > context.time(clock)).then(pl.col(WINDOW_END))


def check_trigger(owner: str, name: str, value: object) -> None:
    """Raises `TypeError` unless `value` is a trigger, with a hint for common mistakes."""
    if isinstance(value, Trigger):
        return
    hint = ""
    if isinstance(value, int) and not isinstance(value, bool):
        hint = f"; AfterCount({value})?"
    elif isinstance(value, type) and issubclass(value, Trigger):
        raise TypeError(
            f"{owner}: {name} must be a trigger, not the class {value.__name__}; {value.__name__}()?"
        )
    raise TypeError(
        f"{owner}: {name} must be a trigger, not {value!r}{hint or '; write one such as bl.AfterWatermark()'}"
    )


def is_trigger(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates an attribute that must be a trigger."""
    check_trigger(type(owner).__name__, attribute.name, value)


@attrs.frozen(repr=False)
class Finishing(Trigger):
    """The base class of triggers that finish when they fire: they have a finished bit, the cell `done`.

    When the trigger fires, or its window merges with one in which it has fired, its other cells are reset.
    """

    def own_cells(self) -> dict[str, Cell]:
        return {"done": Cell(pl.Boolean(), False, "any")}

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        done = f"{at}.done"
        return {**env, done: where(mask, pl.lit(finished), env[done])}

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        return self.mark(self.clear(env, at, mask), at, mask, True)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        # The trigger is finished if it was in any part, by the merge function of the bit. Otherwise the merged cells
        # stay.
        return self.clear(env, at, mask & env[f"{at}.done"])

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.done"]

    def may_finish(self) -> bool:
        return True


@attrs.frozen(repr=False)
class Repeatedly(Trigger):
    """The trigger that restarts another one whenever it has finished, so that a window is not closed early.

    Args:
        trigger: The trigger to repeat.

    Example, with the `plays` of `bl.Collection`:
        >>> days = plays.window_into(bl.FixedWindows("1d"), trigger=bl.Repeatedly(bl.AfterCount(1)))
        >>> days.aggregate(n=bl.count()).collect()["n"].to_list()
        [1, 1, 1, 0]
    """

    trigger: Trigger = attrs.field(validator=is_trigger)

    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        return self.trigger.ready(env, f"{at}.0", context)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        env = self.trigger.on_fire(env, f"{at}.0", mask, context)
        return self.trigger.reset(env, f"{at}.0", mask & self.trigger.finished(env, f"{at}.0"))

    def continuation(self) -> Trigger:
        paced = self.trigger.continuation()
        return paced if isinstance(paced, Repeatedly) else Repeatedly(paced)


@attrs.frozen(repr=False)
class OrFinally(Finishing):
    """The trigger that emits as `actual` does until `until` is ready, then emits for the last time, and finishes.

    It also finishes when `actual` finishes: for several panes before, write `Repeatedly(...).or_finally(...)`. The
    method `or_finally(until)` of a trigger creates it.

    Example:
        >>> bl.Repeatedly(bl.AfterCount(100)).or_finally(bl.AfterProcessingTime("1h"))
        Repeatedly(AfterCount(100)).or_finally(AfterProcessingTime("1h"))
    """

    actual: Trigger = attrs.field(validator=is_trigger)
    until: Trigger = attrs.field(validator=is_trigger)

    def __repr__(self) -> str:
        return f"{self.actual!r}.or_finally({self.until!r})"

    def children(self) -> tuple[Trigger, ...]:
        return (self.actual, self.until)

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        actual, until = each_ready(self, env, at, context)
        return (actual | until) & ~env[f"{at}.done"]

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        last = self.until.ready(env, f"{at}.1", context)
        actual = self.actual.on_fire(env, f"{at}.0", EVERYWHERE, context)
        until = self.until.on_fire(env, f"{at}.1", EVERYWHERE, context)
        cleared = self.actual.clear(env, f"{at}.0", EVERYWHERE)
        finished = where(last, self.until.finished(until, f"{at}.1"), self.actual.finished(actual, f"{at}.0"))
        # When `actual` emits, the cells of `until` are not reset, since it counts all elements of the window.
        after = {
            **either(self.actual.cells(f"{at}.0"), last, cleared, actual),
            **either(self.until.cells(f"{at}.1"), last, until, env),
            f"{at}.done": finished,
        }
        return all_where(mask, after, env)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        env = Trigger.on_merge(self, env, at, mask, context)
        return finish(env, at, mask, reduce(or_, each_finished(self, env, at)))

    def may_finish(self) -> bool:
        return self.actual.may_finish() or self.until.may_finish()

    def continuation(self) -> Trigger:
        return Repeatedly(OrFinally(self.actual.continuation(), self.until.continuation()))


def each_ready(trigger: Trigger, env: Env, at: str, context: TriggerContext) -> list[pl.Expr]:
    """Returns the expressions `ready` of the children of a trigger."""
    return [child.ready(env, f"{at}.{index}", context) for index, child in enumerate(trigger.children())]


def each_finished(trigger: Trigger, env: Env, at: str) -> list[pl.Expr]:
    """Returns the expressions `finished` of the children of a trigger."""
    return [child.finished(env, f"{at}.{index}") for index, child in enumerate(trigger.children())]


def either(cells: Iterable[str], condition: pl.Expr, new: Env, old: Env) -> dict[str, pl.Expr]:
    """Returns expressions for these cells: the value in `new` if the condition is true, otherwise that in `old`."""
    return {name: where(condition, new[name], old[name]) for name in cells}


def all_where(mask: pl.Expr, after: Env, env: Env) -> Env:
    """Returns the environment `env` with the cells of `after` replaced in the windows that `mask` selects."""
    return {**env, **either(after, mask, after, env)}


def finish(env: Env, at: str, mask: pl.Expr, finished: pl.Expr) -> Env:
    """Returns the environment with the finished bit set to `finished` in the windows that `mask` selects."""
    done = f"{at}.done"
    return {**env, done: where(mask, finished, env[done])}
