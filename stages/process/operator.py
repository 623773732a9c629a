"""The operator of a user's `Process`: its methods are called for rows and timers, and what is left is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import polars as pl

from stages.operator import Refused, State
from stages.process.declarations import Process
from stages.process.keyed import CELL, TURN, Clocks, Result, touched
from stages.process.play import Played, Player, Script
from stages.process.stateful import Stateful
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.identity import fields_of, function_of
from windowing.python_rows import BEYOND, python_has

AsColumns = Callable[[Sequence[Any]], tuple[pl.DataFrame, Mapping[int, str]]]
"""Results as rows of the declared columns, null where they do not fit; and which do not, by number, and why."""


@attrs.frozen(slots=False, eq=False)
class KeyedProcess(Stateful):
    """Plays rows and timers by the methods of a user's object; `results` makes columns of what they give."""

    process: Process
    results: AsColumns
    kind: ClassVar[str] = "process"

    @property
    def does(self) -> object:
        """The user's class, and what its object was made with."""
        return {"class": function_of(type(self.process)), "with": fields_of(self.process)}

    def usable(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refused, ...]]:
        """A method can only be given what Python can hold."""
        fits = python_has(rows)
        if fits is None:
            return rows, ()
        beyond = rows.filter(~fits)
        return rows.filter(fits), (Refused(beyond, tuple(ValueError(BEYOND) for _ in range(len(beyond)))),)

    def play(self, state: State, rows: pl.DataFrame, clocks: Clocks) -> Result:
        """Key by key, each in its order of time."""
        layout = self.layout
        loaded = state.load(self.cells, rows.select(self.id).unique(maintain_order=True))
        cells, idle = touched(loaded.rows, loaded.incoming, layout.due(clocks.times), self.id)
        if cells.is_empty():
            state.write_back(self.cells, idle)
            return Result(self._stamped(self.results([])[0], Played(), cells))
        script = self._script(cells, rows)
        played, panes, after = self._until_it_fits(script, clocks)
        state.write_back(self.cells, pl.concat([idle, layout.kept(after, clocks.times)]))
        return Result(panes, self._refused(played, script), played.fired, len(played.refused_rows))

    def _script(self, cells: pl.DataFrame, rows: pl.DataFrame) -> Script:
        """Rows by cell, those of each in the order in which they are played."""
        ordered = self.by_cell(cells, rows)
        counts = ordered.group_by(CELL).agg(
            pl.len().cast(pl.Int64).alias("rows"), (pl.col(TURN) == 0).sum().cast(pl.Int64).alias("at_once")
        )
        numbers = pl.DataFrame({CELL: pl.int_range(len(cells), dtype=pl.UInt32, eager=True)})
        each = numbers.join(counts, on=CELL, how="left", maintain_order="left").fill_null(0)
        ends = each["rows"].cum_sum()
        return Script(
            cells,
            [0, *ends.to_list()],
            (ends - each["rows"] + each["at_once"]).to_list(),
            ordered.select(list(self.schema)),
            ordered[EVENT_TIME].to_list(),
            ordered[PANE_RETRACTED].to_list() if self.retracted else None,
        )

    def _until_it_fits(self, script: Script, clocks: Clocks) -> tuple[Played, pl.DataFrame, pl.DataFrame]:
        """(what was played, what is emitted, the cells after it): again with care for cells with what does not fit."""
        careful: frozenset[int] = frozenset()
        while True:
            player = Player(self.process, self.layout, script, clocks, self._check, careful)
            played = player.play()
            frame, wrong = self.results(played.items)
            after, misfits = player.state.after(player.dead)
            again = misfits | {played.cells[number] for number in wrong}
            if again <= careful:
                return played, self._stamped(frame, played, script.state), after
            careful |= again

    def _check(self, items: Sequence[Any]) -> Mapping[int, str]:
        return self.results(items)[1]

    def _stamped(self, frame: pl.DataFrame, played: Played, cells: pl.DataFrame) -> pl.DataFrame:
        """Rows with their event time and window."""
        where = cells.select(WINDOW_COLUMNS)[pl.Series(played.cells, dtype=pl.UInt32)]
        return frame.hstack([pl.Series(EVENT_TIME, played.times, dtype=pl.Int64)]).hstack(where)

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
            families = any(tag is not None for tag in tags)
            tagged = [pl.Series("tag", tags, dtype=pl.String)] if families else []
            time = pl.Series("time", times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
            told = [pl.Series("timer", names), *tagged, time]
            refused.append(Refused(keys.hstack([self._beside_keys(column) for column in told]), errors))
        return tuple(refused)

    def _beside_keys(self, column: pl.Series) -> pl.Series:
        """The column, by another name if a key has its own."""
        return column.alias(f"timer_{column.name}") if column.name in self.keys else column
