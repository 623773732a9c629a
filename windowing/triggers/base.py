"""Triggers: when a window emits. A trigger keeps no state: it rewrites an environment `{cell: expression}`.

A cell is a column of the state of a window. `on_elements`, `on_fire` and `on_merge` return a new environment,
`ready`, `finished` and `deadline` are expressions over it, so a composite is the combination of its children's
expressions, and one `with_columns` evaluates any trigger over all windows at once. The machines are those of Beam's
runners. Those that are made of others are in `composites`, those that wait for a clock in `processing_time`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import polars as pl

from windowing.columns import WINDOW_END
from windowing.time import MIN_TIME

if TYPE_CHECKING:
    from windowing.triggers.composites import OrFinally

Env = Mapping[str, pl.Expr]
ROOT: Final = "__trigger"
"""Where the trigger of a windowing keeps its cells."""

ALL: Final = "|all"
"""In the environment of `on_merge`, `cell` is true if it was in any part, `cell|all` if it was in all."""

WATERMARK: Final = "watermark"
PROCESSING_TIME: Final = "processing_time"
BARE: Final = "bare"
"""Metadata of an attribute that has a default, but is written without its name."""

NO_DEADLINE: Final = pl.lit(None, pl.Int64)


@attrs.frozen
class Cell:
    """A column of trigger state: its type, its value in a new window, and how merging windows fold it.

    One that folds with "any" is a finished bit: it outlives `Trigger.clear`, and `on_merge` gets its `cell|all`.
    """

    dtype: pl.DataType
    default: object
    fold: Literal["any", "sum", "min"]

    def literal(self) -> pl.Expr:
        return pl.lit(self.default, self.dtype)


def percentile_clock(percentile: int) -> str:
    """The name of the clock that this share of the sources' event times has passed."""
    return f"percentile_{percentile}"


def clock_percentile(clock: str) -> int | None:
    """The share of such a clock by its name; None of another clock."""
    share = clock.removeprefix("percentile_")
    return int(share) if share != clock else None


@attrs.frozen
class Moment:
    """What a trigger may look at besides its cells: the clocks, in microseconds, and the kind of windows."""

    times: Mapping[str, int]
    merging: bool

    def time(self, clock: str) -> int:
        """Where the clock stands; one that has not been told stands at the beginning of time."""
        return self.times.get(clock, MIN_TIME)

    @property
    def watermark(self) -> int:
        return self.time(WATERMARK)

    @property
    def processing_time(self) -> int:
        return self.time(PROCESSING_TIME)

    def window_is_over(self) -> pl.Expr:
        return pl.col(WINDOW_END) <= self.watermark


@attrs.frozen(repr=False)
class Trigger:
    """When a window emits a pane. `at` names the place of a trigger in the whole, so that its cells are its own.

    Laws: more elements never make a ready trigger unready. If without further elements a look with later clocks
    would find it ready, and its firing would change a cell or owe a pane, then one of these clocks has come to
    its `deadline`.
    """

    def __repr__(self) -> str:
        """As a user writes it, without what is left to the default."""
        fields = [(field, getattr(self, field.name)) for field in attrs.fields(type(self)) if field.repr]
        given = [_argument(field, value) for field, value in fields if value != field.default]
        return f"{type(self).__name__}({', '.join(given)})"

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
        """As new, at and below `at`, where the mask holds."""
        return _emptied(env, self.cells(at), mask)

    def clear(self, env: Env, at: str, mask: pl.Expr) -> Env:
        """As new but for the finished bits, at and below `at`, where the mask holds."""
        kept = {name: cell for name, cell in self.cells(at).items() if cell.fold != "any"}
        return _emptied(env, kept, mask)

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
        return env

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        """After windows became one, where the mask holds; `env` has the cells folded over the parts."""
        for index, child in enumerate(self.children()):
            env = child.on_merge(env, f"{at}.{index}", mask, moment)
        return env

    def finished(self, env: Env, at: str) -> pl.Expr:
        """Whether it is done; a window whose whole trigger is finished is closed."""
        return pl.lit(False)

    def clocks(self) -> frozenset[str]:
        """The clocks that this trigger and those below it look at."""
        return frozenset().union(*(child.clocks() for child in self.children()))

    def deadline(self, env: Env, at: str, moment: Moment, clock: str) -> pl.Expr:
        """The time of this clock, in microseconds, at which the window needs a look; null for never."""
        due = [
            child.deadline(env, f"{at}.{index}", moment, clock)
            for index, child in enumerate(self.children())
            if clock in child.clocks()
        ]
        return pl.min_horizontal(*due) if due else NO_DEADLINE

    def may_finish(self) -> bool:
        """Whether it can finish, so that elements which come later would be dropped."""
        return False

    @property
    def waits_for_end(self) -> bool:
        """Whether it looks at a window when that is over, and nothing that comes before matters to it."""
        return False

    def continuation(self) -> Trigger:
        """The trigger of a grouping whose input this trigger has paced already."""
        return self

    def or_finally(self, until: Trigger) -> OrFinally:
        """This trigger until `until` is ready, which then emits for the last time."""
        from windowing.triggers.composites import OrFinally  # It is a trigger, too.

        return OrFinally(self, until)


def _argument(field: attrs.Attribute[Any], value: Any) -> str:
    text = field.repr(value) if callable(field.repr) else repr(value)
    bare = field.default is attrs.NOTHING or BARE in field.metadata
    return text if bare else f"{field.name}={text}"


def _emptied(env: Env, cells: Mapping[str, Cell], mask: pl.Expr) -> Env:
    return {**env, **{name: where(mask, cell.literal(), env[name]) for name, cell in cells.items()}}


def where(mask: pl.Expr, new: pl.Expr, old: pl.Expr) -> pl.Expr:
    """The new value where the mask holds."""
    return pl.when(mask).then(new).otherwise(old)


def end_of_window(moment: Moment, clock: str = WATERMARK) -> pl.Expr:
    """The deadline of what waits for the end of the window; where that is over, null."""
    return pl.when(pl.col(WINDOW_END) > moment.time(clock)).then(pl.col(WINDOW_END))


def check_trigger(owner: str, name: str, value: object) -> None:
    """Raises `TypeError` for what is no trigger, with a hint at what may have been meant."""
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
    """A validator of attributes."""
    check_trigger(type(owner).__name__, attribute.name, value)


@attrs.frozen(repr=False)
class Finishing(Trigger):
    """A trigger with a finished bit of its own, that firing sets.

    One that stands alone forgets what it has gathered when it fires, or when it merges with one that had fired.
    """

    def own_cells(self) -> dict[str, Cell]:
        return {"done": Cell(pl.Boolean(), False, "any")}

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        done = f"{at}.done"
        return {**env, done: where(mask, pl.lit(finished), env[done])}

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        return self.mark(self.clear(env, at, mask), at, mask, True)

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        # Finished in any part is finished: the fold of the bit. Otherwise the folds of the other cells hold.
        return self.clear(env, at, mask & env[f"{at}.done"])

    def finished(self, env: Env, at: str) -> pl.Expr:
        return env[f"{at}.done"]

    def may_finish(self) -> bool:
        return True


def _at_least_one(owner: object, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"AfterCount: count must be a whole number of at least 1, not {value!r}")


@attrs.frozen(repr=False)
class AfterCount(Finishing):
    """Emits once, when at least `count` elements have come since the last pane; more may, as bundles are whole."""

    count: int = attrs.field(validator=_at_least_one)

    def own_cells(self) -> dict[str, Cell]:
        return {"count": Cell(pl.Int64(), 0, "sum"), **super().own_cells()}

    def on_elements(self, env: Env, at: str, mask: pl.Expr, count: pl.Expr, moment: Moment) -> Env:
        seen = f"{at}.count"
        return {**env, seen: where(mask, env[seen] + count, env[seen])}

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
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
            f"AfterWatermark: percentile={value} stands alone, without early and late; give it as the early "
            f"trigger: AfterWatermark(early=AfterWatermark(percentile={value}))"
        )


@attrs.frozen(repr=False)
class AfterWatermark(Trigger):
    """Emits when the watermark passes the end of the window; before that as `early`, after it as `late` say.

    Both are repeated. Without `late` it finishes at the end of the window. With `percentile=66` it looks at the
    watermark of that share of the input instead, which passes the end of the window sooner.
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

    def _over(self, moment: Moment) -> pl.Expr:
        return pl.col(WINDOW_END) <= moment.time(self._clock)

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

    def mark(self, env: Env, at: str, mask: pl.Expr, finished: bool) -> Env:
        # With early or late, that the end has passed is the finished bit of the early trigger, not its own.
        past = f"{at}.past"
        return env if self.children() else {**env, past: where(mask, pl.lit(finished), env[past])}

    def ready(self, env: Env, at: str, moment: Moment) -> pl.Expr:
        past, early, late = self._places(at)
        before = self._over(moment)
        if self.early is not None:
            before = before | self.early.ready(env, early, moment)
        after = pl.lit(False) if self.late is None else self.late.ready(env, late, moment)
        return pl.when(env[past]).then(after).otherwise(before)

    def on_fire(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        past, early, late = self._places(at)
        was_past = env[past]
        passes = mask & ~was_past & self._over(moment)
        # Both are repeated, whether they finish or not: after each pane they are as new.
        if self.early is not None:
            env = self.early.reset(env, early, mask & ~was_past)
            env = self.early.mark(env, early, passes, True)
        if self.late is not None:
            env = self.late.reset(env, late, passes | (mask & was_past))
        return {**env, past: was_past | passes}

    def on_merge(self, env: Env, at: str, mask: pl.Expr, moment: Moment) -> Env:
        past, early, late = self._places(at)
        stays_past = env[past + ALL] & self._over(moment)
        env = super().on_merge(env, at, mask, moment)
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

    def deadline(self, env: Env, at: str, moment: Moment, clock: str) -> pl.Expr:
        past, early, late = self._places(at)
        # Even one that looks at a percentile may owe the pane at the end of the window.
        before = end_of_window(moment, clock) if clock in (WATERMARK, self._clock) else NO_DEADLINE
        if self.early is not None and clock in self.early.clocks():
            before = pl.min_horizontal(before, self.early.deadline(env, early, moment, clock))
        after = NO_DEADLINE if self.late is None else self.late.deadline(env, late, moment, clock)
        return pl.when(env[past]).then(after).otherwise(before)

    def may_finish(self) -> bool:
        return self.late is None

    @property
    def waits_for_end(self) -> bool:
        # What late counts of a session before its end is forgotten when it has passed.
        return self.early is None and self.percentile is None

    def continuation(self) -> Trigger:
        early, late = self.early and self.early.continuation(), self.late and self.late.continuation()
        return AfterWatermark(early, late, percentile=self.percentile)
