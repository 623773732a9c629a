"""Dedup: of rows with the same id, the first to arrive passes at once, and covers later ones for some time."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import attrs
import polars as pl

from stages.clock import StepClock
from stages.declared import Text
from stages.operator import HOLD, PENDING
from stages.pending_rows import NUMBER
from stages.process.keyed import CELL, Keyed, Result
from stages.state_tables import Spread, State, StateTable, TimeTable
from windowing.clocks import PROCESSING_TIME, WATERMARK, Times
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS, WINDOW_END
from windowing.lateness import collected_at
from windowing.time import MAX_TIME, Microseconds, format_duration
from windowing.windows import GlobalWindows

By = Literal["event", "processing"]

_TIME: Final = "__time"
"""Column of rows: the time that is compared with `within`."""
_SINCE: Final = "__since"
"""Column of rows: the time of the earlier row that may cover it."""

_SECOND: Final = 1_000_000

_ROUNDS: Final = 64
"""The rounds of the decision in columns. A round decides the first row left of every id, and the rows that it covers.
Rows that are left after so many rounds share a few ids at times far apart, and are decided row by row.
"""


@attrs.frozen(slots=False, eq=False)
class SeenIds(StateTable[TimeTable]):
    """The ids that are remembered: a row for each row that passed, for as long as it may cover others."""

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    within: int | None
    by: By

    @property
    def clocks(self) -> tuple[str, ...]:
        """The watermark, which ends windows, and the clock by which ids are forgotten."""
        timed = self.by == "processing" and self.within is not None
        return (WATERMARK, PROCESSING_TIME) if timed else (WATERMARK,)

    @property
    def column(self) -> str:
        """The column with the time of the row that passed."""
        return f"__s.{self.by}"

    @cached_property
    def rows(self) -> pl.Schema:
        """The columns of a row."""
        return pl.Schema({**self.schema, self.column: pl.Int64(), PENDING: pl.Int64(), HOLD: pl.Int64()})

    @cached_property
    def table(self) -> TimeTable:
        """Spread by time: a step reads the times that may cover its arrivals, and writes only new rows."""
        if self.within is None:
            spread = Spread(WINDOW_END, _SECOND, 3600 * _SECOND)
        else:
            late = self.allowed_lateness if self.by == "event" else 0
            spread = Spread(self.column, _SECOND, max(self.within + late, 32 * _SECOND))
        waits_until = self.deadlines(Times())
        return TimeTable(
            row="id",
            waits="is remembered",
            keys=self.keys,
            bounds=WINDOW_COLUMNS,
            schema=self.rows,
            incoming=self.rows,
            spread=spread,
            waits_until=waits_until,
        )

    def between(self, rows: pl.DataFrame) -> tuple[int, int]:
        """The range of times (us) in which an earlier row can make one of these rows a duplicate."""
        column = WINDOW_END if self.within is None else self.column
        first, last = rows.select(
            pl.col(column).min().alias("first"), pl.col(column).max().alias("last")
        ).row(0)
        return first - (self.within or 0), last

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """The time at which an id is forgotten: it covers no row in time any more, or its window is collected."""
        over = collected_at(self.allowed_lateness)
        if self.within is None:
            return {WATERMARK: over}
        late = self.allowed_lateness if self.by == "event" else 0
        after = pl.min_horizontal(self.column, MAX_TIME - self.within - late) + (self.within + late)
        if self.by == "processing":
            return {WATERMARK: over, PROCESSING_TIME: after}
        return {WATERMARK: pl.min_horizontal(over, after)}


@attrs.frozen(slots=False, eq=False)
class Dedup(Keyed):
    """Passes the rows that no earlier row of the same keys covers: a row of time t covers [t, t + within).

    `by`: times are event times, or the processing times at which rows arrive. Without `within` the first row of a
    window covers all others.
    """

    within: int | None
    by: By
    kind: ClassVar[str] = "dedup"

    @cached_property
    def cells(self) -> SeenIds:
        ids = {**{key: self.schema[key] for key in self.keys}, **dict.fromkeys(WINDOW_COLUMNS, pl.Int64())}
        return SeenIds(self.keys, pl.Schema(ids), self.windowing.allowed_lateness, self.within, self.by)

    @property
    def clocks(self) -> tuple[str, ...]:
        return self.cells.clocks

    @property
    def kept(self) -> Mapping[str, object]:
        """The time of each row that passed. Its kind says for how long a row covers others."""
        return {self.by: "window" if self.within is None else Microseconds(self.within)}

    @property
    def content(self) -> pl.Schema:
        return pl.Schema({self.cells.column: pl.Int64()})

    def own_facts(self, text: Text) -> dict[str, str]:
        if self.within is None:
            return {"covers": "its window"}
        return {"covers": f"{format_duration(self.within)} of {self.by} time"}

    def process_rows(self, state: State, rows: pl.DataFrame, clock: StepClock) -> Result:
        time = pl.col(EVENT_TIME) if self.by == "event" else pl.lit(clock.processing_time, pl.Int64)
        nothing_held = [pl.lit(0, pl.Int64).alias(PENDING), pl.lit(None, pl.Int64).alias(HOLD)]
        arrived = rows.with_columns(time.alias(self.cells.column), *nothing_held)
        seen = (
            self.cells.table.no_rows
            if rows.is_empty()
            else state.scan(self.cells, self.cells.between(arrived))
        )
        passed = arrived.join(self._passed(arrived, seen), on=NUMBER, how="semi", maintain_order="left")
        loaded = state.load(self.cells, passed.select(list(self.cells.rows)))
        deadlines = self.cells.deadlines(Times()).items()
        over = pl.any_horizontal(deadline <= clock.now.times[name] for name, deadline in deadlines)
        state.write_back(self.cells, pl.concat([loaded.rows, loaded.incoming]).filter(~over))
        return Result(passed.select(*self.schema, EVENT_TIME, *WINDOW_COLUMNS))

    def _passed(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """The `NUMBER` of the rows that pass."""
        # In the global window, windows need not be compared, which costs as much as all the rest.
        id = self.keys if isinstance(self.windowing.windows, GlobalWindows) else self.id
        cells = rows.select(id).unique(maintain_order=True).with_row_index(CELL)
        to_cells: dict[str, Any] = {"on": id, "nulls_equal": True}
        time = self.cells.column
        left = rows.join(cells, **to_cells, maintain_order="left").select(
            CELL, NUMBER, pl.col(time).alias(_TIME)
        )
        before = seen.join(cells, **to_cells).select(CELL, pl.col(time).alias(_SINCE))
        if self.within is None:
            return left.join(before, on=CELL, how="anti", maintain_order="left").unique(CELL, keep="first")
        return _first_and_uncovered(_uncovered(left, before, self.within), self.within)


def _uncovered(rows: pl.DataFrame, before: pl.DataFrame, within: int) -> pl.DataFrame:
    """The rows that no row of earlier steps covers, in order of arrival."""
    if before.is_empty():
        return rows
    nearest = rows.sort(_TIME).join_asof(
        before.sort(_SINCE),
        left_on=_TIME,
        right_on=_SINCE,
        by=CELL,
        strategy="backward",
        check_sortedness=False,
    )
    covered = (pl.col(_TIME) - pl.col(_SINCE) < within).fill_null(False)
    return nearest.filter(~covered).drop(_SINCE).sort(NUMBER)


def _first_and_uncovered(rows: pl.DataFrame, within: int) -> pl.DataFrame:
    """The rows, in order, that no earlier passing row covers."""
    passed = [rows.clear()]
    for _ in range(_ROUNDS):
        if rows.is_empty():
            break
        # The first row left of an id passes: rows that an earlier one covers are removed already.
        first = rows.unique(CELL, keep="first", maintain_order=True)
        passed.append(first)
        if len(first) == len(rows):
            rows = rows.clear()
            break
        since = first.select(CELL, pl.col(_TIME).alias(_SINCE))
        after = pl.col(_TIME) - pl.col(_SINCE)
        rows = rows.join(since, on=CELL, maintain_order="left").filter((after < 0) | (after >= within))
        rows = rows.drop(_SINCE)
    return pl.concat([*passed, rows.filter(_one_by_one(rows, within))])


def _one_by_one(rows: pl.DataFrame, within: int) -> pl.Series:
    """Decides row by row which rows pass."""
    kept: dict[int, list[int]] = defaultdict(list)
    passes = []
    for cell, time in rows.select(CELL, _TIME).iter_rows():
        times = kept[cell]
        place = bisect_right(times, time)
        passes.append(place == 0 or time - times[place - 1] >= within)
        if passes[-1]:
            insort(times, time)
    return pl.Series(passes, dtype=pl.Boolean)
