"""The windowed grouping: a pure function over columns, `(rows, arrivals, clock) -> (rows, panes)`.

The unit of work is all rows of a shard in a bundle. The steps follow the Beam model's grouping engine; triggers
are evaluated once per bundle, which the model allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.aggregates.base import ARRIVAL, Aggregate
from stages.clock import StepClock
from stages.declared import Declaration, choices_of
from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW, late_schema
from stages.grouping.combiner_lifting import (
    count_in,
    elements_in,
    is_lifted,
    lift,
    lift_if_smaller,
    lift_slices,
    lifts_early,
    place,
)
from stages.grouping.described import facts_of
from stages.grouping.dropped import Dropped, Late, LeftOut
from stages.grouping.firing import collect, deadline, fire, in_order, let_go, ready, shown
from stages.grouping.layout import CLOSED, COUNT, EMITTED, NEW_HOLD, Layout
from stages.grouping.merging import Combined, combine_merging, combine_windows, reduce_arrivals, split
from stages.grouping.rejected import refuse
from stages.operator import HOLD, MAIN, PENDING, Admitted, Advanced, Input, OneTable, Spread, Table, Text
from stages.parted import parted, replaced, together
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collected_at
from windowing.overlap import in_company, meets
from windowing.timestamp_combiners import TimestampCombiner
from windowing.triggers.base import ROOT, TriggerContext
from windowing.windowing import Windowing

MANY: Final = 2
"""The windows of a key per arrival from which on it pays to find those without neighbours."""

FEW: Final = 1_000
"""State with fewer rows than this is processed as a whole: finding the touched rows would cost more."""


@attrs.frozen(slots=False)
class Grouping(OneTable):
    """Aggregates per key and window. `schema` contains the types of the arrivals' columns, keys included.

    `merge_windows=False` keeps the windows of arrivals, as after an earlier grouping that has merged them.
    `retractions`: arrivals may retract earlier ones, and a window without elements left emits nothing. `late_columns`:
    the columns of dropped arrivals that are returned; None for none. `letter_columns`: further columns that dead
    letters contain, besides all columns that the grouping reads.
    """

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema
    merge_windows: bool = True
    retractions: bool = False
    late_columns: tuple[str, ...] | None = None
    letter_columns: tuple[str, ...] = ()
    layout: Layout = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        aggregates = self.aggregates
        if self.merging:
            aggregates = {name: aggregate.where_windows_merge() for name, aggregate in aggregates.items()}
        if self.retractions:
            aggregates = {name: aggregate.where_taken_back() for name, aggregate in aggregates.items()}
        layout = Layout(self.keys, self.windowing, aggregates, self.schema, self.retractions)
        object.__setattr__(self, "layout", layout)

    @property
    def merging(self) -> bool:
        """True if windows of a key merge here."""
        return self.windowing.windows.merging and self.merge_windows

    @property
    def declared(self) -> Declaration:
        choices = {"merging": self.merging, **choices_of(self.windowing)}
        types = {name: part.dtype for name, part in self.layout.parts.items()}
        return Declaration("grouping", choices, self.aggregates, accumulators=types)

    def facts(self, text: Text) -> dict[str, str]:
        return facts_of(self.keys, self.windowing, self.aggregates, text, merged=not self.merge_windows)

    @property
    def panes(self) -> Windowing:
        return self.windowing

    @property
    def assigns_windows(self) -> bool:
        return True

    def needed(self, role: str) -> frozenset[str]:
        # Columns that are only shown of late and refused rows are left out.
        return frozenset(attrs.evolve(self, late_columns=None, letter_columns=()).inputs[role].schema)

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads: those of keys, aggregates and windowing, and those shown of late rows."""
        needed = [column for aggregate in self.aggregates.values() for column in aggregate.columns]
        # Where windows were assigned before, what they were made from may be gone.
        needed += [column for column in self.windowing.columns if column in self.schema]
        needed += [*(self.late_columns or ()), *self.letter_columns]
        return tuple(dict.fromkeys([*self.keys, *needed]))

    @property
    def late_schema(self) -> pl.Schema:
        """The columns of dropped arrivals, the reason, event time and window."""
        return late_schema(self.schema, self.late_columns or ())

    @cached_property
    def _none_late(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.late_schema)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        columns = {name: self.schema[name] for name in self.columns}
        return {MAIN: Input(self.keys, pl.Schema({**columns, **times}))}

    @property
    def ordered(self) -> bool:
        return any(aggregate.ordered for aggregate in self.aggregates.values())

    @property
    def python(self) -> bool:
        return self.windowing.windows.python or any(each.python for each in self.aggregates.values())

    @cached_property
    def table(self) -> Table:
        ordered = any(aggregate.ordered for aggregate in self.layout.aggregates.values())
        return Table(
            "window",
            "has elements that wait for a pane",
            self.keys,
            WINDOW_COLUMNS,
            self.layout.state,
            self.layout.incoming,
            missing=self.layout.missing(),
            spread=self._spread(),
            waits_until={WATERMARK: pl.col(WINDOW_END)} if self.waits else None,
            holds_as_a_whole=self.holds_as_a_whole,
            merges=self.merging,
            in_turn=self.merging and ordered,
            visited_by_key=not self.waits,
        )

    def _spread(self) -> Spread | None:
        """Spread by the end of windows if these are the same for all keys."""
        windows = self.windowing.windows
        if windows.span is None:
            return None
        return Spread(
            WINDOW_END, windows.period or windows.span, windows.span + self.windowing.allowed_lateness
        )

    @property
    def waits(self) -> bool:
        """True if arrivals may wait until their window is over: nothing depends on them before.

        False with LATEST, whose hold moves with every element.
        """
        exact = not self.merging or self.windowing.windows.merges_by_overlap
        return (
            self.windowing.trigger.waits_for_end
            and self.windowing.timestamp_combiner is not TimestampCombiner.LATEST
            and exact
        )

    @property
    def holds_as_a_whole(self) -> bool:
        """True if the hold of a window depends on all of its elements: arrivals that wait may hold elsewhere.

        The watermark cannot pass that hold before the window is over, and so processed; a percentile watermark can.
        """
        return self.merging or not self.windowing.timestamp_combiner.depends_on_window

    def as_rows(self, incoming: pl.DataFrame, now: Times) -> pl.DataFrame:
        return self._absorb(incoming, self._context(now))

    def matches(self, incoming: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        if self.merging:
            return meets(incoming, rows, self.windowing.windows, self.keys)
        window = [*self.keys, *WINDOW_COLUMNS]
        numbered = incoming.select(window).with_row_index("__row")
        hit = numbered.join(rows, on=window, how="semi", nulls_equal=True)["__row"]
        return numbered["__row"].is_in(hit.implode())

    def admit(self, arrivals: Mapping[str, pl.DataFrame], clock: StepClock, arrived: int) -> Admitted:
        """Assigns windows to arrivals; those whose window has been collected are too late.

        They may have been pre-aggregated before (`lift`). `arrived` is the number of elements in all steps before.
        """
        elements, refused = refuse(arrivals[MAIN], self.layout)
        if self.lifts_early:
            elements = lift_slices(elements, self.layout)
        placed, outside = place(elements, self.windowing.windows)
        in_time = collected_at(self.windowing.allowed_lateness) > clock.input_before
        admitted, behind = parted(placed, in_time)
        incoming = reduce_arrivals(
            self._lifted(admitted, clock.input_before, arrived), self.layout, self.merging
        )
        wanted = self.late_columns is not None
        rows = Dropped(behind, outside, admitted) if wanted else None
        late, nowhere = count_in(behind), count_in(outside)
        return Admitted(
            incoming,
            elements_in(elements),
            int(incoming[COUNT].sum()) + late + nowhere,
            refused,
            LeftOut(late, nowhere, rows),
        )

    def _lifted(self, admitted: pl.DataFrame, watermark: int, arrived: int) -> pl.DataFrame:
        """Adds accumulators, a count, and the hold that each row places; a late row holds nothing.

        Lateness is judged by the input watermark, which all shards share. A hold that follows from the window is left
        out: as a constant it takes no room.
        """
        combiner, windows = self.windowing.timestamp_combiner, self.windowing.windows
        if is_lifted(admitted):
            hold, lifted = pl.col(NEW_HOLD), {name: pl.col(name) for name in (*self.layout.parts, COUNT)}
        else:
            hold = combiner.element_hold(windows.ends_before(admitted) if combiner.adjusted else None)
            lifted = self.layout.lift(retractions=PANE_RETRACTED in admitted.columns)
            admitted = self.layout.marked(admitted)
            if self.layout.numbered:
                admitted = admitted.with_columns((arrived + pl.int_range(pl.len())).alias(ARRIVAL))
        holds = pl.lit(False) if combiner.depends_on_window else hold >= watermark
        holding = pl.when(holds).then(hold).alias(NEW_HOLD)
        return admitted.select(*self.keys, *WINDOW_COLUMNS, holding, **lifted)

    @property
    def lifts_early(self) -> bool:
        """True if arrivals may be pre-aggregated before they are sent to shards, as no single late ones are wanted."""
        return self.late_columns is None and lifts_early(self.layout, self.merging)

    def shrunk(self, rows: pl.DataFrame) -> pl.DataFrame:
        return lift_if_smaller(rows, self.layout) if self.lifts_early else rows

    def together(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Concatenates the arrivals; if some were pre-aggregated in their tasks, the others are as well."""
        if any(map(is_lifted, frames)):
            frames = [lift(frame, self.layout) for frame in frames]
        return super().together(frames)

    def advance(
        self,
        state: pl.DataFrame,
        admitted: Admitted,
        clock: StepClock,
        unmerged: pl.DataFrame | None,
    ) -> Advanced:
        """Processes elements with the watermarks before this step, then moves the clock: one decision per window each.

        Elements arrive at the processing time of this step. Rows of the keys in `unmerged` may overlap although nothing
        has arrived for them.
        """
        touched, untouched, closed, panes = self._elements(state, admitted.incoming, clock, unmerged)
        rows = together(touched, untouched)
        if clock.moves and len(rows):
            rows, due = self._move(rows, clock)
            panes = together(panes, due)
        rows = let_go(rows, self.layout, self._context(clock.now))
        left_out: LeftOut = admitted.aside or LeftOut()
        dropped = {
            LATE: left_out.late,
            CLOSED_WINDOW: int(closed.rows[COUNT].sum()),
            NO_WINDOW: left_out.nowhere,
        }
        emitted, late = int(panes[EMITTED].sum()), self._late(left_out.rows, closed)
        return Advanced(rows, shown(panes, self.layout), emitted, dropped, late)

    def _elements(
        self,
        state: pl.DataFrame,
        incoming: pl.DataFrame,
        clock: StepClock,
        unmerged: pl.DataFrame | None,
    ) -> tuple[pl.DataFrame, pl.DataFrame, Combined, pl.DataFrame]:
        """(windows that got elements, the others, closed windows that did, panes)."""
        if incoming.is_empty() and unmerged is None:
            nothing = Combined(incoming, pl.LazyFrame())
            return state.clear(), state, nothing, self.layout.no_panes
        context = self._context(clock.at_arrival())
        touched, untouched = self._touched(state, incoming, unmerged)
        both = touched.with_columns(pl.lit(0, pl.Int64).alias(COUNT), pl.lit(None, pl.Int64).alias(NEW_HOLD))
        if self.merging:
            combined = combine_merging(both, incoming, self.layout, context)
        else:
            combined = combine_windows(both, incoming, self.layout)
        got, others = parted(combined.rows, combined.rows[COUNT] > 0)
        closed = Combined(parted(got, got[CLOSED])[0], combined.placed)
        rows, panes = self._look(self._absorb(got, context), clock, context)
        if len(others):
            untouched = together(untouched, others.select(list(self.layout.state)))
        return rows, untouched, closed, in_order(panes, self.keys)

    def _touched(
        self, state: pl.DataFrame, incoming: pl.DataFrame, unmerged: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(state rows that may merge or get elements, those that stay as they are)."""
        match = list(self.keys) if self.merging else [*self.keys, *WINDOW_COLUMNS]
        reached = incoming.select(match)
        if unmerged is not None:
            reached = pl.concat([reached, unmerged.select(match)])
        if len(state) <= FEW and not (self.merging or self.python):
            return state, state.clear()  # what gets nothing stays as it is
        touched, untouched = split(state, reached, match)
        windows = self.windowing.windows
        # To look which are alone pays where keys have many windows, of which few are touched.
        if not self.merging or not windows.merges_by_overlap or len(touched) <= MANY * len(incoming):
            return touched, untouched
        touched, alone = parted(touched, in_company(touched, incoming, windows, self.keys))
        return touched, together(untouched, alone)

    def _absorb(self, combined: pl.DataFrame, context: TriggerContext) -> pl.DataFrame:
        """Updates pending elements, holds and trigger cells of windows that got elements; closed ones stay closed."""
        trigger, combiner = self.windowing.trigger, self.windowing.timestamp_combiner
        got = ~pl.col(CLOSED)
        new = pl.col(WINDOW_END) - 1 if combiner.depends_on_window else pl.col(NEW_HOLD)
        placed = pl.when(got & ~context.window_is_over()).then(new)
        env = {name: pl.col(name) for name in trigger.cells()}
        cells = trigger.on_elements(env, ROOT, got, pl.col(COUNT), context)
        absorbed = {
            **{name: cells[name] for name in env},
            **self.layout.emptied(pl.col(CLOSED)),
            PENDING: pl.col(PENDING) + pl.when(got).then(COUNT).otherwise(0),
            HOLD: combiner.both(pl.col(HOLD), placed),
        }
        return combined.select(replaced(self.layout.state, absorbed))

    def _move(self, rows: pl.DataFrame, clock: StepClock) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Removes windows whose time is over, with a last pane, and fires others that are due if they are ready."""
        then, now = self._context(clock.previous), self._context(clock.now)
        over, rows = parted(rows, collected_at(self.windowing.allowed_lateness) <= now.watermark)
        last = collect(parted(over, ~over[CLOSED])[0], self.layout, clock.input_before, now)
        come = pl.any_horizontal(now.window_is_over() & ~then.window_is_over(), *self._come(then, now))
        looked, others = parted(rows, come)
        looked, due = self._look(looked, clock, now)
        return together(others, looked), in_order(together(last, due), self.keys)

    def _come(self, then: TriggerContext, now: TriggerContext) -> list[pl.Expr]:
        """True for windows that are due on a clock other than the watermark."""
        trigger = self.windowing.trigger
        env = {name: pl.col(name) for name in trigger.cells()}
        return [
            (trigger.deadline(env, ROOT, then, clock) <= now.time(clock)).fill_null(False)
            for clock in self.clocks
            if clock != WATERMARK
        ]

    def _look(
        self, rows: pl.DataFrame, clock: StepClock, context: TriggerContext
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Fires the windows that are ready: (all windows afterwards, panes)."""
        firing, others = parted(rows, ready(self.layout, context))
        if firing.is_empty():
            return rows, self.layout.no_panes
        fired, panes = fire(firing, self.layout, clock.input_before, context)
        return together(others, fired), panes

    def _late(self, left_out: Dropped | None, closed: Combined) -> pl.DataFrame:
        """The arrivals that were dropped, if they are wanted."""
        if left_out is None:
            return self._none_late
        windows = self.windowing.windows
        in_parts = self.merging and windows.merges_in_parts
        late = Late(self.keys, self.late_schema, windows if in_parts else None)
        return late.rows(left_out, closed)

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and the clocks of its trigger."""
        return (WATERMARK, *sorted(self.windowing.trigger.clocks() - {WATERMARK}))

    def deadlines(self, times: Times) -> dict[str, pl.Expr]:
        context = self._context(times)
        return {clock: deadline(self.layout, context, clock) for clock in self.clocks}

    def _context(self, times: Times) -> TriggerContext:
        return TriggerContext(times.times, self.merging)
