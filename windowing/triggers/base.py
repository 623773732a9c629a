"""The base of triggers, which say when a window emits.

A trigger has no state: it rewrites an `{cell: expression}` dict. A cell is a column of the state of a window.
`on_elements`, `on_fire` and `on_merge` return a new environment, `ready`, `finished` and `deadline` are expressions
over it, so a composite is the combination of its children's expressions, and one `with_columns` evaluates any trigger
over all windows at once. The state machines are those of Beam's runners. `OrFinally` and `Repeatedly` are here, as
every trigger can make them; others are in `basic`, `composites` and `processing_time`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

import attrs
import polars as pl

from windowing.clocks import WATERMARK, Times
from windowing.columns import WINDOW_END
from windowing.identity import Declared

Env = Mapping[str, pl.Expr]
ROOT: Final = "__trigger"
"""The prefix of the cells of a windowing's trigger."""

ALL: Final = "|all"
"""In the environment of `on_merge`, `cell` is true if it was in any part, `cell|all` if it was in all."""

BARE: Final = "bare"
"""Metadata of an attribute with a default that is shown without its name."""

NO_DEADLINE: Final = pl.lit(None, pl.Int64)

EVERYWHERE: Final = pl.lit(True)
"""The mask of children whose parent selects by a mask of its own, which would be repeated at each level below."""


@attrs.frozen
class Cell:
    """A column of trigger state: its type, its value in a new window, and the aggregation of merging windows.

    A cell of "any" is a finished bit: it survives `Trigger.clear`, and `on_merge` has its `cell|all`.
    """

    dtype: pl.DataType
    default: object
    fold: Literal["any", "sum", "min"]

    def literal(self) -> pl.Expr:
        return pl.lit(self.default, self.dtype)


@attrs.frozen
class TriggerContext(Times):
    """The clocks that a trigger may read besides its cells, and whether windows of a key merge."""

    merging: bool = False

    def window_is_over(self) -> pl.Expr:
        """True for windows whose end the watermark has passed."""
        return pl.col(WINDOW_END) <= self.watermark


@attrs.frozen(repr=False)
class Trigger(Declared):
    """The rule that says when a window emits a pane.

    `at` is the position of a trigger in the whole, the prefix of its cells.

    Laws: more elements never make a ready trigger unready. If, without further elements, it would be ready at later
    times of its clocks, and its firing would change a cell or owe a pane, then one of these clocks has reached its
    `deadline`.
    """

    def __repr__(self) -> str:
        """The trigger as a user writes it, without attributes at their default."""
        fields = [(field, getattr(self, field.name)) for field in attrs.fields(type(self)) if field.repr]
        given = [_argument(field, value) for field, value in fields if value != field.default]
        return f"{type(self).__name__}({', '.join(given)})"

    def children(self) -> tuple[Trigger, ...]:
        return ()

    def own_cells(self) -> dict[str, Cell]:
        return {}

    def cells(self, at: str = ROOT) -> dict[str, Cell]:
        """All columns of state that this trigger and its children need."""
        cells = {f"{at}.{name}": cell for name, cell in self.own_cells().items()}
        for index, child in enumerate(self.children()):
            cells |= child.cells(f"{at}.{index}")
        return cells

    def reset(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """Resets all cells at and below `at` where the mask holds."""
        return _emptied(env, self.cells(at), mask)

    def clear(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """Resets all cells but the finished bits, at and below `at`, where the mask holds."""
        kept = {name: cell for name, cell in self.cells(at).items() if cell.fold != "any"}
        return _emptied(env, kept, mask)

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, context: TriggerContext) -> Env:
        """The environment after `count` elements arrived in each window under the mask."""
        for index, child in enumerate(self.children()):
            env = child.on_elements(env, f"{at}.{index}", mask, count, context)
        return env

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        """Sets its own finished bit, if it has one, where the mask holds."""
        return env

    def ready(self, env: Env, at: str, context: TriggerContext) -> pl.Expr:
        """True for windows that must emit now."""
        raise NotImplementedError

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        """The environment after the windows under the mask, which were ready, have emitted."""
        return env

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        """The environment after windows have merged, where the mask holds; `env` has cells folded over the parts."""
        for index, child in enumerate(self.children()):
            env = child.on_merge(env, f"{at}.{index}", mask, context)
        return env

    def finished(self, env: Env, at: str) -> pl.Expr:
        """True if it never emits again; a window whose whole trigger is finished is closed."""
        return pl.lit(False)

    def clocks(self) -> frozenset[str]:
        """The clocks that this trigger and its children depend on."""
        return frozenset().union(*(child.clocks() for child in self.children()))

    def deadline(self, env: Env, at: str, context: TriggerContext, clock: str) -> pl.Expr:
        """The time of this clock, in microseconds, at which the window is due; null for never."""
        due = [
            child.deadline(env, f"{at}.{index}", context, clock)
            for index, child in enumerate(self.children())
            if clock in child.clocks()
        ]
        return pl.min_horizontal(*due) if due else NO_DEADLINE

    def may_finish(self) -> bool:
        """True if it can finish, so that elements which arrive later would be dropped."""
        return False

    @property
    def waits_for_end(self) -> bool:
        """True if it never emits before the end of the window, and no element before that matters to it."""
        return False

    def continuation(self) -> Trigger:
        """The trigger of a grouping whose input has been emitted by this trigger already."""
        return self

    def or_finally(self, until: Trigger) -> OrFinally:
        """Returns this trigger until `until` is ready, which then emits for the last time."""
        return OrFinally(self, until)


def _argument(field: attrs.Attribute[Any], value: Any) -> str:
    text = field.repr(value) if callable(field.repr) else repr(value)
    bare = field.default is attrs.NOTHING or BARE in field.metadata
    return text if bare else f"{field.name}={text}"


def _emptied(env: Env, cells: Mapping[str, Cell], mask: pl.Expr) -> Env:
    return {**env, **{name: where(mask, cell.literal(), env[name]) for name, cell in cells.items()}}


def where(mask: pl.Expr, new: pl.Expr, old: pl.Expr) -> pl.Expr:
    """The new value where the mask holds, else the old one."""
    return pl.when(mask).then(new).otherwise(old)


def end_of_window(context: TriggerContext, clock: str = WATERMARK) -> pl.Expr:
    """The deadline at the end of the window; null if that is over."""
    return pl.when(pl.col(WINDOW_END) > context.time(clock)).then(pl.col(WINDOW_END))


def check_trigger(owner: str, name: str, value: object) -> None:
    """Raises `TypeError` for anything but a trigger, with a hint at what may have been meant."""
    if isinstance(value, Trigger):
        return
    hint = ""
    if isinstance(value, int) and not isinstance(value, bool):
        hint = f"; AfterCount({value})?"
    elif isinstance(value, type) and issubclass(value, Trigger):
        raise TypeError(
            f"{owner}: {name} must be a trigger, not the class {value.__name__}; {value.__name__}()?"
        )
    raise TypeError(f"{owner}: {name} must be a trigger, not {value!r}{hint}")


def is_trigger(owner: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validates an attribute that must be a trigger."""
    check_trigger(type(owner).__name__, attribute.name, value)


@attrs.frozen(repr=False)
class Finishing(Trigger):
    """A trigger with a finished bit of its own, which firing sets.

    When it fires, or merges with one that had fired, it is cleared.
    """

    def own_cells(self) -> dict[str, Cell]:
        return {"done": Cell(pl.Boolean(), False, "any")}

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        done = f"{at}.done"
        return {**env, done: where(mask, pl.lit(finished), env[done])}

    def on_fire(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        return self.mark(self.clear(env, at, mask), at, mask, True)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, context: TriggerContext) -> Env:
        # Finished in any part is finished: the fold of the bit. Otherwise the folds of the other cells hold.
        return self.clear(env, at, mask & env[f"{at}.done"])

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.done"]

    def may_finish(self) -> bool:
        return True


@attrs.frozen(repr=False)
class Repeatedly(Trigger):
    """Restarts its trigger each time that it has finished, so a window is never closed before its time.

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
    """Emits as `actual` does until `until` is ready, emits then for the last time, and finishes.

    It finishes with `actual` as well: write `Repeatedly(...).or_finally(...)` for more than one pane before. The method
    `or_finally(until)` of a trigger makes it.

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
        # `until` is not cleared by what `actual` emits: it counts all elements.
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
    """The `ready` expression of each child."""
    return [child.ready(env, f"{at}.{index}", context) for index, child in enumerate(trigger.children())]


def each_finished(trigger: Trigger, env: Env, at: str) -> list[pl.Expr]:
    """The `finished` expression of each child."""
    return [child.finished(env, f"{at}.{index}") for index, child in enumerate(trigger.children())]


def either(cells: Iterable[str], condition: pl.Expr, new: Env, old: Env) -> dict[str, pl.Expr]:
    """Selects the new value of these cells where the condition holds, else the old one."""
    return {name: where(condition, new[name], old[name]) for name in cells}


def all_where(mask: pl.Expr, after: Env, env: Env) -> Env:
    """The environment with all changes of `after` where the mask holds."""
    return {**env, **either(after, mask, after, env)}


def finish(env: Env, at: str, mask: pl.Expr, finished: pl.Expr) -> Env:
    """The environment with the finished bit set to this where the mask holds."""
    done = f"{at}.done"
    return {**env, done: where(mask, finished, env[done])}
