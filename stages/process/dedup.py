"""The operator of `dedup` and `distinct`: emits the first row of each id at once, and drops duplicates for some time.

A row *covers* the rows of its id that are its duplicates: with `within`, those of times [t, t + within) for a row of
time t; otherwise all rows of its window. Only rows that are emitted cover others.
"""

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

SINCE_TIME: Final = "__time"
"""The column with the event time or processing time of a row (us), by which duplicates are determined."""
_SINCE: Final = "__since"
"""The column with the time (us) of an earlier emitted row of the same id, which may cover the row."""

_SECOND: Final = 1_000_000

_ROUNDS: Final = 64
"""The maximum number of rounds, each of which emits one row of every id and drops the rows that it covers.

Rows that are left then have few ids, with times far apart. They are processed one by one.
"""


@attrs.frozen(slots=False, eq=False)
class SeenIds(StateTable[TimeTable]):
    """The state table of emitted ids: a row for each emitted row, for as long as it may cover further arrivals."""

    keys: tuple[str, ...]
    schema: pl.Schema
    allowed_lateness: int
    within: int | None
    by: By

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks by which ids are removed: the watermark, and processing time if `within` is measured in it."""
        timed = self.by == "processing" and self.within is not None
        return (WATERMARK, PROCESSING_TIME) if timed else (WATERMARK,)

    @property
    def column(self) -> str:
        """The name of the column with the time (us) of an emitted row, by which it covers later rows of its id."""
        return f"__s.{self.by}"

    @cached_property
    def rows(self) -> pl.Schema:
        """The schema of this state table: id, window, time and hold."""
        return pl.Schema({**self.schema, self.column: pl.Int64(), PENDING: pl.Int64(), HOLD: pl.Int64()})

    @cached_property
    def table(self) -> TimeTable:
        # Spread by time, so that a step reads only the times that may cover its arrivals, and writes only new rows.
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
            ends_silently=True,
            overstay=0 if self.within is None else self.within + late,
        )

    def between(self, rows: pl.DataFrame) -> tuple[int, int]:
        """Returns the range of times (us, inclusive) of the emitted rows that may cover one of these rows."""
        column = WINDOW_END if self.within is None else self.column
        first, last = rows.select(
            pl.col(column).min().alias("first"), pl.col(column).max().alias("last")
        ).row(0)
        return first - (self.within or 0), last

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        """Returns the deadline of each id: it is removed when its window is collected, or when any row that it
        covers would be dropped as late.
        """
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
    """The operator that emits a row unless an emitted row of the same keys covers it.

    Attributes:
        within: The time (us) for which a row covers others: a row of time t covers the times [t, t + within). If None,
            the first row of a window covers all others.
        by: "event" to compare event times, "processing" to compare the processing times of arrival.
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
        # The stored time of each emitted row, with the time for which it covers others.
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
            else state.scan(self.cells, self.cells.between(arrived), arrived.select(self.keys))
        )
        passed = arrived.join(self._passed(arrived, seen), on=NUMBER, how="semi", maintain_order="left")
        loaded = state.load(self.cells, passed.select(list(self.cells.rows)))
        deadlines = self.cells.deadlines(Times()).items()
        over = pl.any_horizontal(deadline <= clock.now.times[name] for name, deadline in deadlines)
        state.write_back(self.cells, pl.concat([loaded.rows, loaded.incoming]).filter(~over))
        return Result(passed.select(*self.schema, EVENT_TIME, *WINDOW_COLUMNS))

    def _passed(self, rows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
        """Returns the `NUMBER` of the rows to emit; `seen` are the emitted rows of previous steps."""
        # Comparing windows costs as much as everything else, so it is left out if there is only the global window.
        id = self.keys if isinstance(self.windowing.windows, GlobalWindows) else self.id
        cells = rows.select(id).unique(maintain_order=True).with_row_index(CELL)
        to_cells: dict[str, Any] = {"on": id, "nulls_equal": True}
        time = self.cells.column
        candidates = rows.join(cells, **to_cells, maintain_order="left").select(
            CELL, NUMBER, pl.col(time).alias(SINCE_TIME)
        )
        before = seen.join(cells, **to_cells).select(CELL, pl.col(time).alias(_SINCE))
        if self.within is None:
            return candidates.join(before, on=CELL, how="anti", maintain_order="left").unique(
                CELL, keep="first"
            )
        return first_and_uncovered(_uncovered(candidates, before, self.within), self.within)


def _uncovered(rows: pl.DataFrame, before: pl.DataFrame, within: int) -> pl.DataFrame:
    """Returns the rows that are no duplicates of the emitted rows `before`, those of previous steps, in order of
    arrival.
    """
    if before.is_empty():
        return rows
    nearest = rows.sort(SINCE_TIME).join_asof(
        before.sort(_SINCE),
        left_on=SINCE_TIME,
        right_on=_SINCE,
        by=CELL,
        strategy="backward",
        check_sortedness=False,
    )
    covered = (pl.col(SINCE_TIME) - pl.col(_SINCE) < within).fill_null(False)
    return nearest.filter(~covered).drop(_SINCE).sort(NUMBER)


def first_and_uncovered(rows: pl.DataFrame, within: int) -> pl.DataFrame:
    """Returns the rows to emit, from rows that are no duplicates of previous steps but may be duplicates of each
    other.
    """
    passed = [rows.clear()]
    for _ in range(_ROUNDS):
        if rows.is_empty():
            break
        # The first remaining row of each id is emitted, since rows that an earlier one covers have been removed.
        first = rows.unique(CELL, keep="first", maintain_order=True)
        passed.append(first)
        if len(first) == len(rows):
            rows = rows.clear()
            break
        since = first.select(CELL, pl.col(SINCE_TIME).alias(_SINCE))
        after = pl.col(SINCE_TIME) - pl.col(_SINCE)
        rows = rows.join(since, on=CELL, maintain_order="left").filter((after < 0) | (after >= within))
        rows = rows.drop(_SINCE)
    return pl.concat([*passed, rows.filter(_one_by_one(rows, within))])


def _one_by_one(rows: pl.DataFrame, within: int) -> pl.Series:
    """Returns a mask of the rows to emit, among rows that may cover each other. It is computed row by row."""
    emitted_times: dict[int, list[int]] = defaultdict(list)
    passes = []
    for cell, time in rows.select(CELL, SINCE_TIME).iter_rows():
        times = emitted_times[cell]
        place = bisect_right(times, time)
        passes.append(place == 0 or time - times[place - 1] >= within)
        if passes[-1]:
            insort(times, time)
    return pl.Series(passes, dtype=pl.Boolean)
