"""Windows reduced to their end and the cells of a trigger, to test how a grouping uses triggers."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import polars as pl
from hypothesis import strategies as st

from windowing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import WINDOW_END
from windowing.triggers.base import ALL, ROOT, Env, TriggerContext

END = 10
"""The default end of windows."""


def moment(watermark: int = 0, now: int = 0, merging: bool = False, **percentiles: int) -> TriggerContext:
    return TriggerContext({WATERMARK: watermark, PROCESSING_TIME: now, **percentiles}, merging)


@attrs.define
class Frame:
    """Windows of one trigger, a row each; all methods process all windows at once."""

    trigger: Trigger
    rows: pl.DataFrame

    @classmethod
    def of(cls, trigger: Trigger, *ends: int) -> Frame:
        """Returns new windows with these ends."""
        cells = {name: cell.literal() for name, cell in trigger.cells().items()}
        return cls(trigger, pl.DataFrame({WINDOW_END: list(ends) or [END]}).with_columns(**cells))

    @property
    def env(self) -> Env:
        return {name: pl.col(name) for name in self.trigger.cells()}

    def add(self, counts: int | list[int], at: TriggerContext) -> Frame:
        """Adds this many elements to each window."""
        each = counts if isinstance(counts, list) else [counts] * len(self.rows)
        rows = self.rows.with_columns(pl.Series("count", each))
        env = self.trigger.on_elements(self.env, ROOT, pl.col("count") > 0, pl.col("count"), at)
        self.rows = rows.with_columns(**{name: env[name] for name in self.env}).drop("count")
        return self

    def ready(self, at: TriggerContext) -> list[bool]:
        return self._values(self.trigger.ready(self.env, ROOT, at))

    def fire(self, at: TriggerContext) -> list[bool]:
        """Emits the windows that are ready and returns which these are. Windows with a finished trigger are closed."""
        ready = pl.Series(self.ready(at)) & ~pl.Series(self.finished())
        env = self.trigger.on_fire(self.env, ROOT, pl.lit(ready), at)
        self.rows = self.rows.with_columns(**{name: env[name] for name in self.env})
        return ready.to_list()

    def merge(self, at: TriggerContext, end: int = END) -> Frame:
        """Merges all windows into one with this end."""
        folds = {name: getattr(pl.col(name), cell.fold)() for name, cell in self.trigger.cells().items()}
        bits = [name for name, cell in self.trigger.cells().items() if cell.fold == "any"]
        rows = self.rows.select(
            pl.lit(end).alias(WINDOW_END), **folds, **{name + ALL: pl.col(name).all() for name in bits}
        )
        env = self.env | {name + ALL: pl.col(name + ALL) for name in bits}
        env = self.trigger.on_merge(env, ROOT, pl.lit(True), at)
        self.rows = rows.with_columns(**{name: env[name] for name in self.env}).drop(
            name + ALL for name in bits
        )
        return self

    def finished(self) -> list[bool]:
        return self._values(self.trigger.finished(self.env, ROOT))

    def deadline(self, at: TriggerContext, clock: str) -> list[int | None]:
        return self._values(self.trigger.deadline(self.env, ROOT, at, clock))

    def due(self, before: TriggerContext, now: TriggerContext) -> bool:
        """True if the only window requested, at `before`, an evaluation at the time `now`."""
        return self._asked(self.trigger.clocks(), before, now)

    def wakes(self, before: TriggerContext, now: TriggerContext) -> bool:
        """Like `due`, for the clocks other than the watermark."""
        return self._asked(self.trigger.clocks() - {WATERMARK}, before, now)

    def _asked(self, clocks: Iterable[str], before: TriggerContext, now: TriggerContext) -> bool:
        deadlines = {clock: self.deadline(before, clock)[0] for clock in clocks}
        return any(at is not None and at <= now.time(clock) for clock, at in deadlines.items())

    def _values(self, expression: pl.Expr) -> list:
        return self.rows.with_columns(expression.alias("value"))["value"].to_list()


leaves = st.sampled_from(
    [
        AfterCount(1),
        AfterCount(3),
        AfterWatermark(),
        AfterWatermark(percentile=66),
        AfterProcessingTime("0s"),
        AfterProcessingTime("2us", align_to="5us"),
        AfterSynchronizedProcessingTime(),
        Always(),
        DefaultTrigger(),
        Never(),
    ]
)


def _composites(children: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    many = st.lists(children, min_size=1, max_size=3)
    optional = st.none() | children
    return st.one_of(
        many.map(lambda triggers: AfterAny(*triggers)),
        many.map(lambda triggers: AfterAll(*triggers)),
        many.map(lambda triggers: AfterEach(*triggers)),
        st.builds(OrFinally, children, children),
        st.builds(Repeatedly, children),
        st.builds(AfterWatermark, early=optional, late=optional),
    )


triggers = st.recursive(leaves, _composites, max_leaves=5)
"""Anything in anything."""
