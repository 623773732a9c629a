"""The operator of `process_batches`: a user's function of frames, called once for all keys with rows or due timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from stages.clock import StepClock
from stages.errors import ResultError
from stages.operator import Refused
from stages.process.frames import fitting, two_frames
from stages.process.keyed import CELL, Result, touched
from stages.process.stateful import SidesOfCells, Stateful, Unavailable, WithoutSides
from stages.state_tables import State
from windowing.clocks import PROCESSING_TIME, WATERMARK
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.identity import function_of
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME

MOST_CALLS: Final = 1_000
"""The maximum number of calls of the function in a step. Further calls are for timers that the previous call set."""

TIME: Final = "event_time"
TIMER: Final = "timer"
RETRACTED: Final = "pane_retracted"
"""The column of rows that is true for a retraction, if the function receives retractions."""
SHOWN_WINDOW: Final = ("window_start", "window_end")
_UTC: Final = pl.Datetime("us", "UTC")

Function = Callable[[pl.DataFrame, pl.DataFrame, pl.DataFrame], tuple[pl.DataFrame, pl.DataFrame]]
"""A user's function: maps frames of rows, state and due timers to a frame of emitted rows and one of new state."""

FunctionWithSides = Callable[..., tuple[pl.DataFrame, pl.DataFrame]]
"""A `Function` that also receives the values of side inputs, as keyword arguments."""


@attrs.frozen(eq=False)
class Batch:
    """The arguments of one call of the function: rows, cells and due timers, all with the column CELL (a number), and
    the values of the side inputs by keyword.
    """

    rows: pl.DataFrame
    cells: pl.DataFrame
    due: pl.DataFrame
    sides: Mapping[str, Any]

    @property
    def unavailable(self) -> Exception | None:
        """The error of a side input whose value could not be made."""
        return next((one.error for one in self.sides.values() if isinstance(one, Unavailable)), None)


@attrs.define(eq=False)
class _Outcome:
    """The collected results of all calls of a step."""

    panes: list[pl.DataFrame] = attrs.field(factory=list)
    refused: list[Refused] = attrs.field(factory=list)
    fired: int = 0
    refused_rows: int = 0


@attrs.frozen(slots=False, eq=False)
class KeyedBatches(Stateful):
    """The operator that calls `function` with frames. `output` is the schema of the rows that it emits."""

    function: FunctionWithSides
    output: pl.Schema
    kind: ClassVar[str] = "process_batches"

    @property
    def does(self) -> object:
        return function_of(self.function)

    @property
    def windowed(self) -> bool:
        """True if there are windows, so that frames have columns with their bounds."""
        return self.windowing.windows.span is not None or self.windowing.windows.gaps

    @property
    def _by_processing_time(self) -> list[str]:
        return [name for name, domain in self.timers.items() if domain == "processing"]

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        return self.process_with(state, rows, clock, WithoutSides())

    def process_with(self, state: State, rows: pl.DataFrame, clock: StepClock, sides: SidesOfCells) -> Result:
        """Calls the function for rows and due timers, and again while a call has set timers that are already due."""
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        cells, idle = touched(loaded.rows, loaded.incoming, self.layout.due(clock.now.times), self.id)
        outcome = _Outcome()
        to_store = [idle]
        parts = sides.by_content(cells) if len(cells) else ()
        for part, seen in parts:
            after = self._calls(self._batch(part, rows, clock, seen), clock, outcome)
            expired = self.layout.expiry <= clock.watermark
            to_store.append(self.layout.kept(after.filter(~expired).drop(CELL), clock.now.times))
        state.write_back(self.cells, pl.concat(to_store))
        panes = pl.concat(outcome.panes) if outcome.panes else self._nothing
        return Result(panes, tuple(outcome.refused), outcome.fired, outcome.refused_rows)

    def _batch(
        self, cells: pl.DataFrame, rows: pl.DataFrame, clock: StepClock, sides: Mapping[str, Any]
    ) -> Batch:
        """Returns the arguments of the first call of a step for these cells."""
        numbered = cells.with_row_index(CELL)
        played = self.by_cell(cells, rows)
        if sides:  # there may be other cells, which read other content
            played = played.filter(pl.col(CELL).is_not_null())
        due = self._due(numbered, clock, frozenset())
        if clock.at_end:
            # Processing-time timers fire once at the end of input. For a cell with rows this is after the call
            # with these rows, which may set the timer.
            with_rows = pl.col(CELL).is_in(played[CELL].unique().implode())
            due = due.filter(~(pl.col(TIMER).is_in(self._by_processing_time) & with_rows))
        return Batch(played, numbered, due, sides)

    def _calls(self, batch: Batch, clock: StepClock, outcome: _Outcome) -> pl.DataFrame:
        """Makes all calls of a step, and returns the cells after the last one.

        A processing-time timer that a call sets does not fire in the same step. Only at the end of input it does, once.
        """
        processing = self._by_processing_time
        once = frozenset[str]() if clock.at_end else frozenset(processing)
        done = batch.due.select(CELL, TIMER).clear()
        calls = 0
        while True:
            outcome.fired += len(batch.due)
            done = pl.concat([done, batch.due.filter(pl.col(TIMER).is_in(processing)).select(CELL, TIMER)])
            cells = self._call(self._fired(batch), clock, outcome)
            due = self._due(cells, clock, once).join(
                done, on=[CELL, TIMER], how="anti", maintain_order="left"
            )
            if due.is_empty():
                return cells
            calls += 1
            if calls >= MOST_CALLS:
                raise ResultError(
                    f"timers {sorted(set(due[TIMER]))} were set again for times that have come, {MOST_CALLS:,} times "
                    "over; EventTimer(at_end='drop') is for timers that set themselves again"
                )
            batch = Batch(batch.rows.clear(), cells, due, batch.sides)

    def _due(self, cells: pl.DataFrame, clock: StepClock, without: frozenset[str]) -> pl.DataFrame:
        """Returns the due timers that are not in `without`: cell, name, time, and the default event time of emitted
        rows.
        """
        frames = [pl.DataFrame(schema={CELL: pl.UInt32(), TIMER: pl.String(), "time": _UTC, TIME: _UTC})]
        for name, timer in self.layout.timers.items():
            if name in without or (clock.at_end and timer.drops):
                continue
            column = self.layout.timer_columns(name)[-2]
            event = timer.domain == "event"
            is_due = pl.lit(clock.at_end) | (
                pl.col(column) <= clock.now.times[WATERMARK if event else PROCESSING_TIME]
            )
            stamp = pl.col(column) if event else pl.lit(clock.input_before, pl.Int64)
            if not event and clock.input_before <= MIN_TIME:
                stamp = pl.col(column)
            found = cells.filter(pl.col(column).is_not_null() & is_due)
            times = {"time": pl.col(column).cast(_UTC), TIME: stamp.cast(_UTC)}
            frames.append(found.select(CELL, pl.lit(name).alias(TIMER), **times))
        return pl.concat(frames).sort(CELL, "time", maintain_order=True)

    def _fired(self, batch: Batch) -> Batch:
        """Removes the due timers from the cells, since they are no longer pending."""
        fired = batch.due.group_by(CELL).agg(pl.col(TIMER))
        cells = batch.cells.join(fired, on=CELL, how="left", maintain_order="left")
        cleared = [
            pl.when(~pl.col(TIMER).list.contains(name).fill_null(False)).then(pl.col(column)).alias(column)
            for name in self.layout.timers
            for column in self.layout.timer_columns(name)
        ]
        return attrs.evolve(batch, cells=cells.with_columns(cleared).drop(TIMER))

    def _call(self, batch: Batch, clock: StepClock, outcome: _Outcome) -> pl.DataFrame:
        """Calls the function and returns the new cells.

        If the function raises, it is called again for each half of the cells, and so on. If it raises for a single
        cell, the rows and timers of this cell become dead letters; without a side input, those of all cells.
        """
        try:
            panes, cells = self._called(batch, clock)
        except MemoryError:
            raise
        except Exception as error:
            if len(batch.cells) == 1 or error is batch.unavailable:
                outcome.refused += self._refused(batch, error)
                outcome.refused_rows += len(batch.rows)
                return batch.cells.select(CELL, *self.id, *self.layout.content)
            middle = batch.cells[CELL][len(batch.cells) // 2]
            parts = (pl.col(CELL) < middle, pl.col(CELL) >= middle)
            halves = [
                attrs.evolve(
                    batch,
                    rows=batch.rows.filter(part),
                    cells=batch.cells.filter(part),
                    due=batch.due.filter(part),
                )
                for part in parts
            ]
            return pl.concat([self._call(half, clock, outcome) for half in halves])
        outcome.panes.append(panes)
        return cells

    def _called(self, batch: Batch, clock: StepClock) -> tuple[pl.DataFrame, pl.DataFrame]:
        ids = batch.cells.select(CELL, *self._shown_id())
        state = batch.cells.select(*self._shown_id(), *self._shown_state())
        flag = [pl.col(PANE_RETRACTED).alias(RETRACTED)] if self.retracted else []
        time = pl.col(EVENT_TIME).cast(_UTC).alias(TIME)
        rows = batch.rows.select(*self.schema, *flag, time, *self._shown_window())
        due = batch.due.join(ids, on=CELL, maintain_order="left").select(*self._names(), TIMER, "time", TIME)
        if batch.unavailable is not None:
            raise batch.unavailable
        emitted, after = two_frames(self.function(rows, state, due, **batch.sides))
        return self._emitted(emitted, batch, clock), self._left(after, state, batch)

    def _emitted(self, frame: pl.DataFrame, batch: Batch, clock: StepClock) -> pl.DataFrame:
        """Checks the rows that the function emitted, and converts their event times and windows to system columns."""
        windows = SHOWN_WINDOW if self.windowed else ()
        frame = fitting(
            frame, {**self.output, TIME: _UTC, **dict.fromkeys(windows, _UTC)}, "the emitted frame"
        )
        least = pl.concat([batch.rows[EVENT_TIME], batch.due[TIME].cast(pl.Int64)]).min()
        times = frame[TIME].cast(pl.Int64)
        if len(frame) and (times.null_count() or least is None or times.min() < least):  # type: ignore[operator]
            raise ResultError(
                f"the {TIME!r} of an emitted row must not be null, nor before the first of the rows and timers that "
                "the function was called with: it could be late"
            )
        whole = [pl.lit(MIN_TIME, pl.Int64), pl.lit(GLOBAL_WINDOW_END, pl.Int64)]
        bounds = [pl.col(name).cast(pl.Int64) for name in windows] or whole
        bounds = [bound.alias(column) for bound, column in zip(bounds, WINDOW_COLUMNS, strict=True)]
        return frame.select(*self.output, pl.col(TIME).cast(pl.Int64).alias(EVENT_TIME), *bounds)

    def _left(self, after: pl.DataFrame, state: pl.DataFrame, batch: Batch) -> pl.DataFrame:
        """Checks the state that the function returned, and converts it to cells. A cell without a row is empty."""
        after = fitting(after, dict(state.schema), "the state")
        if after.select(self._names()).is_duplicated().any():
            raise ResultError("the state has several rows of one key; give one for each")
        ids = batch.cells.select(CELL, *self.id, *(e.alias(f"__shown.{n}") for n, e in self._ids().items()))
        on = [f"__shown.{name}" for name in self._names()]
        both: dict[str, Any] = {"left_on": on, "right_on": self._names(), "nulls_equal": True}
        merged = ids.join(after, how="left", maintain_order="left", **both)
        if len(after.join(ids, left_on=self._names(), right_on=on, how="anti", nulls_equal=True)):
            raise ResultError("the state has a key that the function was not called with")
        fields = [pl.col(field.name).alias(field.column) for field in self.layout.fields]
        timers = []
        for name, timer in self.layout.timers.items():
            time = pl.col(name).cast(pl.Int64)
            # An event-time timer fires at the latest when its window is collected.
            latest = self.layout.latest if timer.domain == "event" else time
            columns = (
                pl.when(time.is_not_null()).then(pl.min_horizontal(time, latest)),
                pl.lit(None, pl.Int64),
            )
            timers += [
                new.alias(old) for new, old in zip(columns, self.layout.timer_columns(name), strict=True)
            ]
        return merged.select(CELL, *self.id, *fields, *timers)

    def _refused(self, batch: Batch, error: Exception) -> Iterator[Refused]:
        """Yields the dead letters for a batch that failed: all its rows and due timers, with the error."""
        if len(batch.rows):
            yield Refused(batch.rows.select(list(self.schema)), (error,) * len(batch.rows))
        if len(batch.due):
            due = batch.due.join(batch.cells.select(CELL, *self.keys), on=CELL)
            yield Refused(due.select(*self.keys, TIMER, "time"), (error,) * len(due))

    def _ids(self) -> dict[str, pl.Expr]:
        """Returns expressions for the columns that identify a cell for the user: the key, and the window bounds if
        any.
        """
        windows = zip(SHOWN_WINDOW, WINDOW_COLUMNS, strict=True) if self.windowed else ()
        return {
            **{key: pl.col(key) for key in self.keys},
            **{name: pl.col(c).cast(_UTC) for name, c in windows},
        }

    def _names(self) -> list[str]:
        return list(self._ids())

    def _shown_id(self) -> list[pl.Expr]:
        return [expression.alias(name) for name, expression in self._ids().items()]

    def _shown_window(self) -> list[pl.Expr]:
        return [expression.alias(name) for name, expression in self._ids().items() if name in SHOWN_WINDOW]

    def _shown_state(self) -> list[pl.Expr]:
        fields = [pl.col(field.column).alias(field.name) for field in self.layout.fields]
        timers = [
            pl.col(self.layout.timer_columns(name)[0]).cast(_UTC).alias(name) for name in self.layout.timers
        ]
        return [*fields, *timers]

    @property
    def _nothing(self) -> pl.DataFrame:
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return pl.DataFrame(schema={**self.output, **times})
