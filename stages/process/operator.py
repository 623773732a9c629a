"""The operator of keyed state and timers: what comes is put in order, played key by key, and what is left is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

import attrs
import polars as pl

from stages.operator import HOLD, MAIN, PENDING, Given, Input, Kept, Operator, Refused, State
from stages.process.layout import Layout
from stages.process.play import Check, Clocks, Played, Player, Script
from stages.process.tables import NUMBER, Cells, Waiting
from stages.progress.watermarks import Times, Watermarks
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import spread
from windowing.python_rows import BEYOND, python_has
from windowing.time import MIN_TIME
from windowing.triggers.base import PROCESSING_TIME, WATERMARK
from windowing.windowing import Windowing

LATE: Final = "late"
NO_WINDOW: Final = "no window"
REASON: Final = "reason"

Order = Literal["time", "arrival"]

AsColumns = Callable[[Sequence[Any]], tuple[pl.DataFrame, Mapping[int, str]]]
"""Results as rows of the declared columns, null where they do not fit; and which do not, by number, and why."""

_CELL: Final = "__cell"
_TURN: Final = "__turn"


@attrs.frozen(slots=False, eq=False)
class KeyedProcess(Operator):
    """Plays rows and timers of each key and window.

    `order="time"`: rows wait for the watermark and are played in order of time; by "arrival" they are played at once.
    `results` makes columns of what the methods give. `late`: somebody wants to see what is dropped. `retracted`: rows
    that take back others come, too.
    """

    layout: Layout
    windowing: Windowing
    order: Order
    results: AsColumns
    late: bool = False
    retracted: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows are grouped."""
        return self.layout.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that it reads: all of them, as a method gets them."""
        return tuple(self.layout.schema)

    @property
    def ordered(self) -> bool:
        """Rows of one time are played in the order in which they come."""
        return True

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, and processing time if a timer waits for it."""
        waits = any(timer.domain == "processing" for timer in self.layout.timers.values())
        return (WATERMARK, PROCESSING_TIME) if waits else (WATERMARK,)

    @cached_property
    def inputs(self) -> dict[str, Input]:
        """The rows, with or without their windows."""
        times = dict.fromkeys((EVENT_TIME, *WINDOW_COLUMNS), pl.Int64())
        return {MAIN: Input(self.keys, pl.Schema({**self._row, **times}))}

    @cached_property
    def cells(self) -> Cells:
        """The state of each key and window."""
        return Cells(self.layout)

    @cached_property
    def waiting(self) -> Waiting:
        """The rows that wait."""
        return Waiting(self.keys, self._row)

    @property
    def tables(self) -> tuple[Kept, ...]:
        """Cells, and in order of time the rows that wait."""
        return (self.cells, self.waiting) if self.order == "time" else (self.cells,)

    @property
    def _row(self) -> pl.Schema:
        taken_back = {PANE_RETRACTED: pl.Boolean()} if self.retracted else {}
        return pl.Schema({**self.layout.schema, **taken_back})

    def step(
        self,
        state: State,
        arrivals: Mapping[str, pl.DataFrame],
        before: Watermarks,
        then: Times,
        now: Times,
    ) -> Given:
        """Rows that need not wait, then those whose turn has come, and timers; then processing time."""
        usable, beyond = _usable(arrivals[MAIN])
        placed, nowhere = self._placed(usable)
        in_time, late = self._judged(placed, before.input)
        numbered = in_time.with_columns(
            (state.arrived + pl.int_range(pl.len(), dtype=pl.Int64)).alias(NUMBER),
            pl.lit(1, pl.Int64).alias(PENDING),
            pl.when(pl.col(EVENT_TIME) >= before.input).then(EVENT_TIME).alias(HOLD),
        ).select(list(self.waiting.schema))
        at_once, in_turn = self._in_order(state, numbered, before, now)
        clocks = Clocks(before.input, now.time(WATERMARK), now.time(PROCESSING_TIME))
        rows = pl.concat(
            [at_once.with_columns(pl.lit(0).alias(_TURN)), in_turn.with_columns(pl.lit(1).alias(_TURN))]
        )
        panes, refused, fired = self._play(state, rows, clocks)
        dropped = {LATE: len(late), NO_WINDOW: len(nowhere)}
        return Given(
            panes,
            len(usable),
            len(placed) + len(nowhere),
            len(rows),
            {reason: count for reason, count in dropped.items() if count},
            self._shown(late, nowhere) if self.late else pl.DataFrame(),
            (*beyond, *refused),
            fired,
        )

    def _placed(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(a row per (row, window), the rows in no window)."""
        windows = self.windowing.windows
        if isinstance(rows.schema.get(WINDOW_START), pl.List):
            return spread(windows, rows), rows.filter(pl.col(WINDOW_START).is_null())  # type: ignore[arg-type]
        if WINDOW_START in rows.columns:
            return rows, rows.clear()
        numbered = windows.assign(rows.with_row_index("__row"))
        if not windows.gaps:
            return numbered.drop("__row"), rows.clear()
        inside = pl.int_range(len(rows), dtype=pl.UInt32, eager=True).is_in(numbered["__row"].implode())
        return numbered.drop("__row"), rows.filter(~inside)

    def _judged(self, rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(rows that may be played, those that are too late)."""
        in_time = self.layout.expiry > watermark
        if self.order == "time":
            lateness = self.windowing.allowed_lateness
            in_time &= pl.col(EVENT_TIME) >= max(watermark, MIN_TIME + lateness) - lateness
        return rows.filter(in_time), rows.filter(~in_time)

    def _in_order(
        self, state: State, rows: pl.DataFrame, before: Watermarks, now: Times
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(rows that are played at once, those whose turn in the order of time has come); the others are kept."""
        if self.order == "arrival":
            return rows, rows.clear()
        behind = pl.col(EVENT_TIME) < before.input
        visit = state.visit(self.waiting, rows.filter(~behind))
        pool = pl.concat([visit.rows, visit.incoming])
        come = pl.col(EVENT_TIME) < now.time(WATERMARK)
        state.leave(self.waiting, pool.filter(~come))
        return rows.filter(behind), pool.filter(come)

    def _play(
        self, state: State, rows: pl.DataFrame, clocks: Clocks
    ) -> tuple[pl.DataFrame, tuple[Refused, ...], int]:
        """(what is emitted, what could not be played, how many timers fired)."""
        layout = self.layout
        visit = state.visit(self.cells, rows.select(layout.id).unique(maintain_order=True))
        active, idle = self._active(visit.rows, visit.incoming, clocks)
        reached = visit.incoming.join(
            active, on=layout.id, how="anti", nulls_equal=True, maintain_order="left"
        )
        cells = pl.concat([active.select(layout.id), reached])
        if cells.is_empty():
            state.leave(self.cells, idle)
            return self._panes(Played(), cells), (), 0
        script = self._script(pl.concat([active, reached], how="diagonal"), rows)
        played, panes, after = self._until_it_fits(script, clocks)
        times = {WATERMARK: clocks.now, PROCESSING_TIME: clocks.processing_time}
        state.leave(self.cells, pl.concat([idle, layout.kept(after, times)]))
        return panes, self._refused(played, script), played.fired

    def _active(
        self, cells: pl.DataFrame, reached: pl.DataFrame, clocks: Clocks
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """(cells that rows have come for, or in which something is due; the others)."""
        now = {WATERMARK: clocks.now, PROCESSING_TIME: clocks.processing_time}
        due = pl.any_horizontal(deadline <= now[clock] for clock, deadline in self.layout.deadlines().items())
        marks = reached.with_columns(pl.lit(True).alias("__reached"))
        cells = cells.join(marks, on=self.layout.id, how="left", nulls_equal=True, maintain_order="left")
        marked = pl.col("__reached").fill_null(False) | due.fill_null(False)
        active, idle = cells.filter(marked), cells.filter(~marked)
        return active.drop("__reached"), idle.drop("__reached")

    def _script(self, cells: pl.DataFrame, rows: pl.DataFrame) -> Script:
        """Rows by cell, those of each in the order in which they are played."""
        ids = cells.select(self.layout.id).with_row_index(_CELL)
        sort = [_CELL, _TURN, pl.when(pl.col(_TURN) == 1).then(EVENT_TIME), NUMBER]
        ordered = rows.join(ids, on=self.layout.id, how="left", nulls_equal=True).sort(sort)
        counts = ordered.group_by(_CELL).agg(
            pl.len().cast(pl.Int64).alias("rows"), (pl.col(_TURN) == 0).sum().cast(pl.Int64).alias("at_once")
        )
        each = ids.select(_CELL).join(counts, on=_CELL, how="left", maintain_order="left").fill_null(0)
        ends = each["rows"].cum_sum()
        begins = [0, *ends.to_list()]
        turns = (ends - each["rows"] + each["at_once"]).to_list()
        return Script(
            cells,
            begins,
            turns,
            ordered.select(list(self.layout.schema)),
            ordered[EVENT_TIME].to_list(),
            ordered[PANE_RETRACTED].to_list() if self.retracted else None,
        )

    def _until_it_fits(self, script: Script, clocks: Clocks) -> tuple[Played, pl.DataFrame, pl.DataFrame]:
        """(what was played, what is emitted, the cells after it): again with care for cells with what does not fit."""
        careful: frozenset[int] = frozenset()
        while True:
            player = Player(self.layout, script, clocks, self._check, careful)
            played = player.play()
            frame, wrong = self.results(played.items)
            after, misfits = player.state.after(player.dead)
            again = misfits | {played.cells[number] for number in wrong}
            if again <= careful:
                return played, self._stamped(frame, played, script.state), after
            careful |= again

    @property
    def _check(self) -> Check:
        return lambda items: self.results(items)[1]

    def _stamped(self, frame: pl.DataFrame, played: Played, cells: pl.DataFrame) -> pl.DataFrame:
        """Rows with their event time and window."""
        where = cells.select(WINDOW_COLUMNS)[pl.Series(played.cells, dtype=pl.UInt32)]
        return frame.hstack([pl.Series(EVENT_TIME, played.times, dtype=pl.Int64)]).hstack(where)

    def _panes(self, played: Played, cells: pl.DataFrame) -> pl.DataFrame:
        return self._stamped(self.results(played.items)[0], played, cells)

    def _refused(self, played: Played, script: Script) -> tuple[Refused, ...]:
        """Rows as they came, and firings by key, timer and time."""
        refused = []
        if played.refused_rows:
            numbers, errors = zip(*played.refused_rows, strict=True)
            refused.append(Refused(script.rows[list(numbers)], errors))
        if played.refused_firings:
            cells, firings, errors = zip(*played.refused_firings, strict=True)
            names, tags, times = zip(*firings, strict=True)
            keys = script.state.select(self.keys)[list(cells)]
            tagged = [pl.Series("tag", tags, dtype=pl.String)] if any(tags) else []
            time = pl.Series("time", times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
            refused.append(Refused(keys.hstack([pl.Series("timer", names), *tagged, time]), errors))
        return tuple(refused)

    def _shown(self, late: pl.DataFrame, nowhere: pl.DataFrame) -> pl.DataFrame:
        """What was dropped, with the reason."""
        windows = [pl.lit(None, pl.Int64).alias(column) for column in WINDOW_COLUMNS]
        columns = [*self._row, REASON, EVENT_TIME, *WINDOW_COLUMNS]
        return pl.concat(
            [
                late.with_columns(pl.lit(LATE).alias(REASON)).select(columns),
                nowhere.with_columns(pl.lit(NO_WINDOW).alias(REASON), *windows).select(columns),
            ]
        )


def _usable(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
    """(rows that Python can hold, the others)."""
    fits = python_has(rows)
    if fits is None:
        return rows, ()
    beyond = rows.filter(~fits)
    return rows.filter(fits), (Refused(beyond, tuple(ValueError(BEYOND) for _ in range(len(beyond)))),)
