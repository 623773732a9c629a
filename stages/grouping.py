"""The windowed grouping: a pure function over columns, `(rows, arrivals, clock) -> (rows, panes)`.

The unit of work is all rows of a shard in a bundle. The steps follow the Beam model's grouping engine; triggers
are looked at once per bundle, which the model allows.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import polars as pl
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END, WINDOW_START
from windowing.combiners import TimestampCombiner
from windowing.strategy import Windowing
from windowing.triggers import ROOT, Moment

from stages.aggregates import Aggregate
from stages.firing import collect, expires_at, fire, ready
from stages.merging import combine_sessions, combine_windows, reduce_arrivals
from stages.rows import CLOSED, COUNT, HOLD, NEW_HOLD, PENDING, Layout
from stages.watermarks import Clock, Watermarks


@attrs.frozen
class Advanced:
    """What a step gives: the rows that live on, the panes, and how many arrivals met a closed window."""

    rows: pl.DataFrame
    panes: pl.DataFrame
    closed: int


@attrs.frozen(slots=False)
class Grouping:
    """Aggregates per key and window. `schema` has the types of the arrivals' columns, keys included.

    `merge_windows=False` takes windows as they come, as after an earlier grouping that has merged them.
    """

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema
    merge_windows: bool = True
    layout: Layout = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(self.keys, self.windowing, self.aggregates, self.schema))

    @property
    def merging(self) -> bool:
        """Whether windows of a key that overlap become one here."""
        return self.windowing.windows.merging and self.merge_windows

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads: keys, then what aggregates need."""
        needed = [column for aggregate in self.aggregates.values() for column in aggregate.columns]
        return tuple(dict.fromkeys([*self.keys, *needed]))

    def no_arrivals(self) -> pl.DataFrame:
        """The arrivals of a bundle in which only the clock moves."""
        return pl.DataFrame(
            schema={**{name: self.schema[name] for name in self.columns}, EVENT_TIME: pl.Int64()}
        )

    def admit(self, arrivals: pl.DataFrame, before: Watermarks) -> tuple[pl.DataFrame, int]:
        """Arrivals -> (a row per (key, window) of those that are not too late, how many (element, window)s are)."""
        windowed = arrivals if WINDOW_START in arrivals.columns else self.windowing.windows.assign(arrivals)
        admitted = windowed.filter(expires_at(self.layout) > before.input)
        late = len(windowed) - len(admitted)
        hold = self._element_hold()
        lifted = admitted.select(
            *self.keys,
            *WINDOW_COLUMNS,
            pl.when(hold >= before.output).then(hold).alias(NEW_HOLD),
            **self.layout.lift(),
        )
        return reduce_arrivals(lifted, self.layout, self.merging), late

    def _element_hold(self) -> pl.Expr:
        windowing = self.windowing
        return windowing.timestamp_combiner.element_hold(windowing.windows.period)

    def advance(
        self, state: pl.DataFrame, incoming: pl.DataFrame, before: Watermarks, clock: Clock
    ) -> Advanced:
        """Elements with the watermarks before this step, then the clock: one decision per window each."""
        touched, untouched, closed, early = self._elements(state, incoming, before, clock)
        rows = pl.concat([touched, untouched])
        moment = Moment(max(before.input, clock.watermark), clock.processing_time, self.merging)
        gone = rows.filter(expires_at(self.layout) <= moment.watermark)
        rows = rows.filter(expires_at(self.layout) > moment.watermark)
        last = collect(gone.filter(~pl.col(CLOSED)), self.layout, before, moment)
        rows, due = self._look(rows, before, moment)
        panes = pl.concat([early, _in_order(pl.concat([last, due]), self.keys)])
        return Advanced(rows, panes, closed)

    def _elements(
        self, state: pl.DataFrame, incoming: pl.DataFrame, before: Watermarks, clock: Clock
    ) -> tuple[pl.DataFrame, pl.DataFrame, int, pl.DataFrame]:
        """(windows that got elements, the others, elements for closed windows, panes)."""
        if incoming.is_empty():
            return state.clear(), state, 0, pl.DataFrame(schema=self.layout.panes)
        moment = Moment(before.input, clock.processing_time, self.merging)
        match = list(self.keys) if self.merging else [*self.keys, *WINDOW_COLUMNS]
        touched, untouched = _split(state, incoming, match)
        both = touched.with_columns(pl.lit(0, pl.Int64).alias(COUNT), pl.lit(None, pl.Int64).alias(NEW_HOLD))
        if self.merging:
            combined = combine_sessions(both, incoming, self.layout, moment)
        else:
            combined = combine_windows(pl.concat([both, incoming]), self.layout)
        closed = int(combined.filter(pl.col(CLOSED))[COUNT].sum())
        rows, panes = self._look(self._absorb(combined, before, moment), before, moment)
        return rows, untouched, closed, _in_order(panes, self.keys)

    def _absorb(self, combined: pl.DataFrame, before: Watermarks, moment: Moment) -> pl.DataFrame:
        """Pending elements, holds and trigger cells of windows that got elements; closed ones stay as they are."""
        trigger, combiner = self.windowing.trigger, self.windowing.timestamp_combiner
        got = (pl.col(COUNT) > 0) & ~pl.col(CLOSED)
        end_of_window = combiner is TimestampCombiner.END_OF_WINDOW
        new = pl.col(WINDOW_END) - 1 if end_of_window else pl.col(NEW_HOLD)
        placed = pl.when(got & (pl.col(WINDOW_END) > before.input)).then(new)
        horizontal = pl.min_horizontal if combiner is TimestampCombiner.EARLIEST else pl.max_horizontal
        env = {name: pl.col(name) for name in trigger.cells()}
        cells = trigger.on_elements(env, ROOT, got, pl.col(COUNT), moment)
        return combined.with_columns(
            **{name: cells[name] for name in env},
            **self.layout.emptied(pl.col(CLOSED)),
            **{
                PENDING: pl.col(PENDING) + pl.when(got).then(COUNT).otherwise(0),
                HOLD: horizontal(HOLD, placed),
            },
        ).select(list(self.layout.state))

    def _look(
        self, rows: pl.DataFrame, before: Watermarks, moment: Moment
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Windows that are ready fire: (all windows after it, panes)."""
        marked = rows.with_columns(ready(self.layout, moment).alias("__ready"))
        firing = marked.filter(pl.col("__ready")).drop("__ready")
        if firing.is_empty():
            return rows, pl.DataFrame(schema=self.layout.panes)
        fired, panes = fire(firing, self.layout, before, moment)
        return pl.concat([marked.filter(~pl.col("__ready")).drop("__ready"), fired]), panes

    def deadline(self, moment: Moment) -> pl.Expr:
        """The watermark at which a window is due: it is collected, or its trigger becomes ready."""
        trigger = self.windowing.trigger
        env = {name: pl.col(name) for name in trigger.cells()}
        due = pl.when(~pl.col(CLOSED)).then(trigger.deadline(env, ROOT, moment))
        return pl.min_horizontal(expires_at(self.layout), due)


def _split(state: pl.DataFrame, incoming: pl.DataFrame, on: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """State rows that the arrivals may touch, and the others."""
    if state.is_empty() or not on:
        return state, state.clear()
    hit = state.with_row_index("__row").join(
        incoming.select(on).unique(), on=on, how="semi", nulls_equal=True
    )["__row"]
    mask = pl.int_range(len(state), eager=True, dtype=pl.UInt32).is_in(hit.implode())
    return state.filter(mask), state.filter(~mask)


def _in_order(panes: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Sorted by end, start and key, so that a replayed bundle gives the same bytes."""
    return panes.sort(WINDOW_END, WINDOW_START, *keys, nulls_last=True) if len(panes) > 1 else panes
