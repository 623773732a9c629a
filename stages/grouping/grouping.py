"""The windowed grouping: a pure function over columns, `(rows, arrivals, clock) -> (rows, panes)`.

It processes all rows of a shard in a bundle at once. The phases of a step are those of the grouping in the Beam model;
triggers are evaluated once for each bundle, which the model allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import polars as pl

from stages.aggregates.base import Aggregate
from stages.aggregates.combine_fn import pickled_of
from stages.clock import StepClock
from stages.declared import Declaration, Text, choices_of
from stages.dropped import late_schema
from stages.frames import concat_nonempty, has_nested, partition, repeated, split
from stages.grouping.accepting import AcceptedInput, divide_collected, with_accumulators
from stages.grouping.described import facts_of, kept_for_changes
from stages.grouping.dropped import DividedInput, DroppedInput, DroppedRows, Met
from stages.grouping.firing import collect, deadline, delay_holds, due_by_clock, fire, in_order, ready, shown
from stages.grouping.layout import CLOSED, COUNT, EMITTED, NEW_HOLD, WindowLayout
from stages.grouping.merging import Combined, WindowMerger, absorb, split_alone
from stages.grouping.pre_aggregation import (
    count_elements,
    count_placed,
    has_accumulators,
    may_pre_aggregate,
    place,
    pre_aggregate,
    pre_aggregate_if_smaller,
    pre_aggregate_slices,
)
from stages.grouping.rejected import refuse
from stages.grouping.unmatched import without_unmatched
from stages.operator import MAIN, Input, Operator, StepOutput
from stages.state_tables import BucketFacts, KeyedTable, Loaded, Spread, State, StateTable, Table, WindowTable
from windowing.clocks import WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END
from windowing.overlap import merges_with
from windowing.timestamp_combiners import TimestampCombiner
from windowing.triggers.base import TriggerContext
from windowing.windowing import Windowing

FEW: Final = 1_000
"""The number of state rows up to which all are processed, since a search for the rows of arrivals would cost more."""

_NO_ELEMENTS: Final = (pl.Series(COUNT, [0]), pl.Series(NEW_HOLD, [None], pl.Int64))
"""The columns of arrivals in a row of state."""

_AT_END: Final = {WATERMARK: pl.col(WINDOW_END)}
"""The deadlines of windows that emit at their end, and are collected then."""


@attrs.frozen(slots=False)
class Grouping(Operator, StateTable[WindowTable | KeyedTable]):
    """The operator that aggregates elements by key and window. It is also its only state table, of windows.

    Attributes:
        aggregates: The aggregates by result column.
        schema: The types of the columns of arrivals, keys included.
        merge_windows: False if arrivals keep their windows, because an earlier grouping has merged them.
        retractions: True if arrivals may retract earlier ones. A window without remaining elements emits no pane.
        late_columns: The columns of dropped arrivals to return; None if dropped arrivals are not returned.
        letter_columns: Columns that dead letters contain in addition to the columns that the grouping reads.
        asked: Pane columns that a step or a promise asks for.
    """

    keys: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, Aggregate]
    schema: pl.Schema
    merge_windows: bool = True
    retractions: bool = False
    late_columns: tuple[str, ...] | None = None
    letter_columns: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    layout: WindowLayout = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        aggregates = self.aggregates
        if self.merging:
            aggregates = {name: aggregate.for_merging_windows() for name, aggregate in aggregates.items()}
        if self.retractions:
            aggregates = {name: aggregate.for_retractions() for name, aggregate in aggregates.items()}
        chosen = self.schema, self.retractions, self.asked
        layout = WindowLayout(self.keys, self.windowing, aggregates, *chosen)
        object.__setattr__(self, "layout", layout)

    @property
    def merging(self) -> bool:
        """True if this grouping merges windows of a key."""
        return self.windowing.windows.merging and self.merge_windows

    @cached_property
    def _merger(self) -> WindowMerger:
        return WindowMerger(self.layout, self.merging)

    @property
    def declared(self) -> Declaration:
        choices = {"merging": self.merging, **choices_of(self.windowing)}
        types = {name: part.dtype for name, part in self.layout.parts.items()}
        return Declaration("grouping", choices, self.aggregates, accumulators=types)

    def facts(self, text: Text) -> dict[str, str]:
        facts = facts_of(self.keys, self.windowing, self.aggregates, text, merged=not self.merge_windows)
        return facts | kept_for_changes(self.layout)

    @property
    def panes(self) -> Windowing:
        return self.windowing

    @property
    def gives_changes(self) -> bool:
        return self.windowing.may_retract()

    def accepts_changes(self, role: str) -> bool:
        # The flag is one more column of arrivals, which its schema leaves out.
        return self.retractions

    @property
    def assigns_windows(self) -> bool:
        return True

    def needed(self, role: str) -> frozenset[str]:
        # Without the columns that are used only to return dropped rows and dead letters.
        return frozenset(attrs.evolve(self, late_columns=None, letter_columns=()).inputs[role].schema)

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that the grouping reads: for keys, aggregates, windows, dropped rows and dead letters."""
        needed = [column for aggregate in self.aggregates.values() for column in aggregate.columns]
        # If windows were assigned in an earlier step, the columns that they depend on may be missing.
        needed += [column for column in self.windowing.columns if column in self.schema]
        needed += [*(self.late_columns or ()), *self.letter_columns]
        return tuple(dict.fromkeys([*self.keys, *needed]))

    @property
    def late_schema(self) -> pl.Schema:
        """The schema of dropped arrivals, with the reason, event time and window."""
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

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (self,)

    @cached_property
    def table(self) -> WindowTable | KeyedTable:
        facts: BucketFacts = {
            "row": "window",
            "waits": "has elements that wait for a pane",
            "keys": self.keys,
            "bounds": WINDOW_COLUMNS,
            "schema": self.layout.state,
            "incoming": self.layout.incoming,
            "missing": self.layout.missing(),
            "pickled": pickled_of(self.aggregates),
        }
        if not self.waits:
            return KeyedTable(**facts, spread=self._spread())
        return WindowTable(
            **facts,
            spread=self._spread(),
            # Retractions that match nothing are found among the elements, and `late()` returns them as they arrived.
            waits_until=None if self.retractions and self.late_columns else {WATERMARK: pl.col(WINDOW_END)},
            holds_as_a_whole=self.holds_as_a_whole,
            merges=self.merging,
            in_turn=self.merging and any(each.ordered for each in self.layout.aggregates.values()),
        )

    def _spread(self) -> Spread | None:
        """Returns the placement of windows in buckets, by their end; None if each key has its own windows."""
        windows = self.windowing.windows
        if windows.span is None:
            return None
        span, lateness = windows.span, self.windowing.allowed_lateness
        return Spread(WINDOW_END, windows.period or span, span + lateness)

    @property
    def waits(self) -> bool:
        """True if arrivals may wait in the log until their window is over. LATEST needs each arrival for the hold."""
        exact = not self.merging or self.windowing.windows.merges_by_overlap
        return (
            self.windowing.trigger.waits_for_end
            and self.windowing.timestamp_combiner is not TimestampCombiner.LATEST
            and exact
        )

    @property
    def holds_as_a_whole(self) -> bool:
        """True if the hold of a window depends on all of its elements, so that a waiting arrival's own hold may differ.

        The watermark cannot pass the hold before the window is over, when it is processed; a percentile watermark can.
        """
        return self.merging or not self.windowing.timestamp_combiner.depends_on_window

    def as_rows(self, incoming: pl.DataFrame, now: Times) -> pl.DataFrame:
        return absorb(incoming, self.layout, self._context(now))

    def matches(self, incoming: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
        if self.merging:
            return merges_with(incoming, rows, self.windowing.windows, self.keys)
        window = [*self.keys, *WINDOW_COLUMNS]
        numbered = incoming.select(window).with_row_index("__row")
        hit = numbered.join(rows, on=window, how="semi", nulls_equal=True)["__row"]
        return numbered["__row"].is_in(hit.implode())

    def step(self, state: State, arrivals: Mapping[str, pl.DataFrame], clock: StepClock) -> StepOutput:
        accepted = self._accept(arrivals[MAIN], clock, state.arrived)
        loaded = state.load(self, accepted.incoming)
        accepted = attrs.evolve(accepted, incoming=loaded.incoming)
        rows, given = self._advance(loaded.rows, accepted, clock, loaded.overlapping)
        state.write_back(self, rows)
        return given

    def flushed(self, loaded: Loaded, clock: StepClock) -> pl.DataFrame:
        return self._advance(loaded.rows, AcceptedInput(loaded.incoming), clock, loaded.overlapping)[0]

    def _accept(self, arrivals: pl.DataFrame, clock: StepClock, arrived: int) -> AcceptedInput:
        """Assigns windows to arrivals, pre-aggregated or not, and drops those whose window has been collected.

        `arrived` is the number of elements in all previous steps.
        """
        elements, refused = refuse(arrivals, self.layout)
        if self.may_pre_aggregate:
            elements = pre_aggregate_slices(elements, self.layout)
        placed, outside = place(elements, self.windowing.windows)
        behind, accepted = divide_collected(placed, clock.input_before, self.windowing.allowed_lateness)
        lifted = with_accumulators(accepted, self.layout, clock.input_before, arrived)
        incoming = self._merger.reduce(lifted)
        wanted = self.late_columns is not None
        rows = DividedInput(behind, outside, accepted) if wanted else None
        late, outside_count = count_placed(behind), count_placed(outside)
        return AcceptedInput(
            incoming,
            count_elements(elements),
            int(incoming[COUNT].sum()) + late + outside_count,
            refused,
            DroppedInput(late, outside_count, rows),
        )

    @property
    def may_pre_aggregate(self) -> bool:
        """True if arrivals may be pre-aggregated before the shuffle. False if `late()` returns dropped elements."""
        return self.late_columns is None and may_pre_aggregate(self.layout, self.merging)

    def pre_aggregated(self, rows: pl.DataFrame) -> pl.DataFrame:
        return pre_aggregate_if_smaller(rows, self.layout) if self.may_pre_aggregate else rows

    def concat_arrivals(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        # If some tasks have pre-aggregated their rows, the rows of the others must have the same form.
        if any(map(has_accumulators, frames)):
            frames = [pre_aggregate(frame, self.layout) for frame in frames]
        return super().concat_arrivals(frames)

    def _advance(
        self, state: pl.DataFrame, accepted: AcceptedInput, clock: StepClock, overlapping: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, StepOutput]:
        """Processes elements with the watermarks before this step, then advances the clocks. Returns (rows, output).

        A window may fire once in each of these two phases. Elements arrive at the processing time of this step. State
        rows of the keys `overlapping` may overlap, even if these keys have no arrival.
        """
        touched, untouched, met, panes = self._elements(state, accepted.incoming, clock, overlapping)
        rows = concat_nonempty(touched, untouched)
        if clock.moves and len(rows):
            rows, due = self._advance_clocks(rows, clock)
            panes = concat_nonempty(panes, due)
        rows = delay_holds(rows, self.layout, self._context(clock.now))
        at_arrival, refused = accepted.dropped, () if accepted.refused is None else (accepted.refused,)
        given = StepOutput(
            shown(panes, self.layout),
            accepted.elements,
            accepted.placed,
            int(panes[EMITTED].sum()),
            at_arrival.counts(met),
            self._dropped(at_arrival.rows, met),
            refused,
        )
        return rows, given

    def _elements(
        self,
        state: pl.DataFrame,
        incoming: pl.DataFrame,
        clock: StepClock,
        overlapping: pl.DataFrame | None,
    ) -> tuple[pl.DataFrame, pl.DataFrame, Met, pl.DataFrame]:
        """Merges elements, and fires: (windows with new elements, other windows, windows with dropped ones, panes)."""
        if incoming.is_empty() and overlapping is None:
            nothing = Met(Combined(incoming, pl.DataFrame))
            return state.clear(), state, nothing, self.layout.no_panes
        context = self._context(clock.at_arrival())
        touched, untouched = self._touched(state, incoming, overlapping)
        both = touched.hstack([repeated(column, len(touched)) for column in _NO_ELEMENTS])
        combined = self._merger.combine(both, incoming, context)
        combined, unmatched = without_unmatched(combined, incoming, self.layout)
        got, others = partition(combined.rows, combined.rows[COUNT] > 0)
        closed = Combined(partition(got, got[CLOSED])[0], combined.placed)
        rows, panes = self._fire_ready(absorb(got, self.layout, context), clock, context)
        if len(others):
            untouched = concat_nonempty(untouched, others[:, list(self.layout.state)])
        return rows, untouched, Met(closed, unmatched), in_order(panes, self.keys)

    def _touched(
        self, state: pl.DataFrame, incoming: pl.DataFrame, overlapping: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Divides state into (windows that may merge or get elements, windows that do not change)."""
        if len(state) <= FEW and not (self.python or (self.merging and has_nested(state))):
            return state, state.clear()  # processing does not change rows without elements
        match = list(self.keys) if self.merging else [*self.keys, *WINDOW_COLUMNS]
        reached = incoming.select(match)
        if overlapping is not None:
            reached = pl.concat([reached, overlapping.select(match)])
        touched, untouched = split(state, reached, match)
        if not self.merging:
            return touched, untouched
        touched, alone = split_alone(touched, incoming, self.windowing.windows, self.keys)
        return touched, concat_nonempty(untouched, alone)

    def _advance_clocks(self, rows: pl.DataFrame, clock: StepClock) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Advances the clocks: collects windows, and fires others that are ready. Returns (windows left, panes)."""
        then, now = self._context(clock.previous), self._context(clock.now)
        panes = self.layout.no_panes
        if len(self.clocks) == 1 and not now.any_over(rows[WINDOW_END]):
            return rows, panes
        over, rows = divide_collected(rows, now.watermark, self.windowing.allowed_lateness)
        if len(over):
            panes = collect(partition(over, ~over[CLOSED])[0], self.layout, clock, now)
        ends = rows[WINDOW_END]
        due_now = now.is_over(ends) & ~then.is_over(ends)
        if len(self.clocks) > 1:
            due_by_others = due_by_clock(self.layout, self.clocks, then, now)
            due_now |= rows.select(pl.any_horizontal(due_by_others)).to_series()
        checked, others = partition(rows, due_now)
        if len(checked):
            checked, due = self._fire_ready(checked, clock, now)
            panes = concat_nonempty(panes, due)
        return concat_nonempty(others, checked), in_order(panes, self.keys)

    def _fire_ready(
        self, rows: pl.DataFrame, clock: StepClock, context: TriggerContext
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Fires the windows that are ready. Returns (all windows, panes)."""
        if self.windowing.trigger.waits_for_end and not context.any_over(rows[WINDOW_END]):
            return rows, self.layout.no_panes
        firing, others = partition(rows, ready(self.layout, context))
        if firing.is_empty():
            return rows, self.layout.no_panes
        fired, panes = fire(firing, self.layout, clock, context)
        return concat_nonempty(others, fired), panes

    def _dropped(self, arrivals: DividedInput | None, met: Met) -> pl.DataFrame:
        """Returns the dropped arrivals with their reasons, or an empty frame if they are not returned."""
        if arrivals is None:
            return self._none_late
        windows = self.windowing.windows
        parts = windows if self.merging and windows.merges_in_parts else None
        return DroppedRows(self.layout, self.late_schema, parts).rows(arrivals, met)

    @cached_property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and the clocks of the trigger."""
        return (WATERMARK, *sorted(self.windowing.trigger.clocks() - {WATERMARK}))

    def deadlines(self, times: Times) -> dict[str, pl.Expr]:
        if (
            self.clocks == (WATERMARK,)
            and self.windowing.trigger.waits_for_end
            and not self.windowing.allowed_lateness
        ):
            return _AT_END
        context = self._context(times)
        return {clock: deadline(self.layout, context, clock) for clock in self.clocks}

    def _context(self, times: Times) -> TriggerContext:
        return TriggerContext(times.times, self.merging)
