"""The index of a table: for each bucket its size, when it is next due, and where it holds the watermark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.facts import SPARSE
from stages.keys import key_shown
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING, Table
from stages.parted import together
from stages.state.buckets import BUCKET, inside
from stages.state.chunks import Written
from stages.state.store import StateStore, decode, encode
from stages.strategies.histogram import Histogram, histogram, merge_histograms
from windowing.clocks import PROCESSING_TIME, Times
from windowing.time import MIN_TIME, format_time

KEY: Final = "index"
DEADLINE: Final = "deadline."
"""The prefix of a column, before the name of a clock: the time (us) on that clock at which a bucket is due."""
SIZES: Final = ("base", "chunks", "bytes", "log")
"""The fields of `Size`."""
COUNTS: Final = ("rows", "pending", "keys", "timers")
SCHEMA: Final = pl.Schema(
    {
        BUCKET: pl.Int64(),
        **{name: pl.Int64() for name in (*SIZES, *COUNTS)},
        "hold": pl.Int64(),
        "holder_key": pl.String(),
        "holder_start": pl.Int64(),
        "holder_end": pl.Int64(),
        "holder_pane": pl.Boolean(),
        "holder_timer": pl.String(),
        "holder_due": pl.Int64(),
    }
)


@attrs.frozen
class Size:
    """The size of a bucket in the store: `base` chunks of base rows, then the chunks of a log, `chunks` in all.

    The log has waiting arrivals or, in a table that is visited by key, patches. `bytes` are those of the base rows,
    `log` those of the log.
    """

    base: int = 0
    chunks: int = 0
    bytes: int = 0
    log: int = 0

    @classmethod
    def of_rows(cls, written: Written) -> Size:
        """The size of a bucket with these chunks of base rows, and no log."""
        return cls(len(written.rows), len(written.rows), sum(written.bytes))


@attrs.frozen
class Holder:
    """The owner of the least hold: the key and row of state, such as a window, that hold a stage's output watermark.

    `hold` is where the row holds the watermark (us), and `start` and `end` are the row's bounds (us). The row holds by
    pending elements, by a `pane` that may be retracted, or by a `timer` that fires at `end`. `table` is the name of its
    table, empty for the first. `due` is the processing time (us) for which the row waits, if any. `said` describes a
    row without a key.
    """

    hold: int
    key: str
    start: int
    end: int
    pane: bool = False
    timer: str | None = attrs.field(default=None, metadata=SPARSE)
    table: str = attrs.field(default="", metadata=SPARSE)
    due: int | None = attrs.field(default=None, metadata=SPARSE)
    said: str = attrs.field(default="", metadata=SPARSE)

    def __str__(self) -> str:
        return self.text()

    def text(self, time: Callable[[int], str] = format_time) -> str:
        """Describes the row, with its bounds formatted by `time`."""
        if self.timer is not None:
            return f"timer {self.timer!r} of key {self.key}, set for {time(self.end)}"
        if self.said:
            return f"{self.said}, at {time(self.start)}"
        if self.table:
            return f"a row of key {self.key} at {time(self.start)}"
        who = f"key {self.key} in" if self.key else "window"
        what = "a pane that may be taken back, of " if self.pane else ""
        return f"{what}{who} [{time(self.start)}, {time(self.end)})"


@attrs.frozen
class Index:
    """The facts about a table that a stage knows without reading its rows: a row for each bucket, and the clocks."""

    buckets: pl.DataFrame
    watermarks: Watermarks = attrs.field(factory=Watermarks)
    times: Times = attrs.field(factory=Times)
    holds: Mapping[int, Histogram] | None = None
    """The histogram of holds of each bucket's pending elements; None if percentile watermarks were never in use."""
    arrived: int = 0
    """The number of elements placed so far, from which the next ones are numbered."""

    @classmethod
    def load(cls, store: StateStore, stage: str, clocks: Sequence[str]) -> Index:
        """Loads the index that was saved last; an empty one at the beginning. Rows may wait for `clocks`."""
        value = store.get(stage, KEY)
        if value is None:
            return cls(pl.DataFrame(schema=_schema(clocks)))
        frame, facts = decode(value)
        holds = facts.get("holds")
        if holds is not None:
            holds = {int(bucket): histogram for bucket, histogram in holds.items()}
        if dict(frame.schema) != dict(schema := _schema(clocks)):
            # An index of an earlier version lacks some of the columns of the hold's owner.
            frame = pl.concat([pl.DataFrame(schema=schema), frame], how="diagonal")
        watermarks = Watermarks(facts["input"], facts["output"])
        # An index of an earlier version does not count arrivals; no row of such a table is numbered.
        return cls(frame, watermarks, Times(facts["times"]), holds, facts.get("arrived", 0))

    def save(self, store: StateStore, stage: str) -> None:
        facts: dict[str, Any] = {
            "input": self.watermarks.input,
            "output": self.watermarks.output,
            "times": dict(self.times.times),
            "arrived": self.arrived,
        }
        if self.holds is not None:
            facts["holds"] = self.holds
        store.put(stage, KEY, encode(self.buckets, facts))

    def due(self, now: Times) -> list[int]:
        """The buckets in which a row is due when the clocks are at `now`."""
        reached = [
            pl.col(column) <= now.times.get(column.removeprefix(DEADLINE), MIN_TIME)
            for column in self.buckets.columns
            if column.startswith(DEADLINE)
        ]
        return self.buckets.filter(pl.any_horizontal(reached))[BUCKET].to_list()

    def sizes(self) -> dict[int, Size]:
        """The sizes of the buckets that exist."""
        return {bucket: Size(*sizes) for bucket, *sizes in self.buckets.select(BUCKET, *SIZES).iter_rows()}

    def replace(
        self, touched: Collection[int], summary: pl.DataFrame, holds: Mapping[int, Histogram] | None = None
    ) -> Index:
        """Replaces the index rows of the touched buckets by a summary; buckets that the summary lacks are empty."""
        others = inside(self.buckets, touched)[1]
        if holds is not None:
            known = self.holds or {}
            holds = {bucket: known[bucket] for bucket in known if bucket not in touched} | dict(holds)
        return attrs.evolve(self, buckets=together(others, summary).sort(BUCKET), holds=holds)

    def add(self, summary: pl.DataFrame, holds: Mapping[int, Histogram] | None = None) -> Index:
        """Adds a summary of further rows to the index rows of their buckets."""
        if summary.is_empty():
            return self
        buckets = folded(pl.concat([self.buckets, summary]))
        if holds is not None:
            known = self.holds or {}
            more = {bucket: merge_histograms(known.get(bucket, {}), part) for bucket, part in holds.items()}
            holds = {**known, **more}
        return attrs.evolve(self, buckets=buckets, holds=holds)

    @property
    def rows(self) -> int:
        """The number of live rows and of waiting arrivals, each counted as a row."""
        return int(self.buckets["rows"].sum())

    @property
    def pending(self) -> int:
        """The number of elements in no output yet, each counted in every row that contains it."""
        return int(self.buckets["pending"].sum())

    @property
    def pending_holds(self) -> Histogram:
        """The histogram of pending elements' holds, each counted in every row that contains it."""
        return merge_histograms(*(self.holds or {}).values())

    @property
    def keys(self) -> int:
        """The number of keys with live rows, each counted in every bucket that contains it."""
        return int(self.buckets["keys"].sum())

    @property
    def timers(self) -> int:
        """The number of pending timers."""
        return int(self.buckets["timers"].sum())

    @property
    def bytes(self) -> int:
        """The bytes of rows and waiting arrivals in the store."""
        return int(self.buckets["bytes"].sum()) + int(self.buckets["log"].sum())

    @property
    def holder(self) -> Holder | None:
        """The owner of the least hold; None if no row holds the watermark."""
        if (place := self.buckets["hold"].arg_min()) is None:
            return None
        least = self.buckets.row(place, named=True)
        bounds = least["holder_start"], least["holder_end"]
        pane, timer = least["holder_pane"] or False, least["holder_timer"]
        due = least["holder_due"]
        return Holder(least["hold"], least["holder_key"], *bounds, pane=pane, timer=timer, due=due)


def histograms(rows: pl.DataFrame) -> dict[int, Histogram]:
    """Computes the histogram of pending elements' holds for each bucket of placed rows."""
    held = rows.filter(pl.col(HOLD).is_not_null() & (pl.col(PENDING) > 0))
    counted = held.group_by(BUCKET, HOLD).agg(pl.col(PENDING).sum())
    parts = counted.partition_by(BUCKET, as_dict=True).items()
    return {bucket: histogram(part[HOLD], part[PENDING]) for (bucket,), part in sorted(parts)}


def folded(buckets: pl.DataFrame) -> pl.DataFrame:
    """Merges the index rows of each bucket: sums of sizes and counts, minima, and the owner of the least hold."""
    least = pl.col("hold").arg_min()
    both = buckets.group_by(BUCKET).agg(
        pl.col(*SIZES, *COUNTS).sum(),
        pl.col("^holder_.*$").get(least),
        pl.col("hold", *(name for name in buckets.columns if name.startswith(DEADLINE))).min(),
    )
    return both.select(buckets.columns).sort(BUCKET)


def _schema(clocks: Sequence[str]) -> pl.Schema:
    return pl.Schema({**SCHEMA, **{DEADLINE + clock: pl.Int64() for clock in clocks}})


def summarize(
    rows: pl.DataFrame,
    table: Table,
    deadlines: Mapping[str, pl.Expr],
    sizes: Mapping[int, Size],
) -> pl.DataFrame:
    """Computes an index row for each bucket of placed rows.

    `deadlines` are keyed by the name of the clock, `sizes` by bucket.
    """
    schema = _schema(list(deadlines))
    if rows.is_empty():
        return pl.DataFrame(schema=schema)
    # Keys get internal names, since a user's column may be named as one of the index.
    named = {f"__key.{number}": pl.col(key) for number, key in enumerate(table.keys)}
    due = {DEADLINE + clock: deadline for clock, deadline in deadlines.items()}
    least = pl.col("hold").arg_min()
    name = pl.concat_str([key_shown(key) for key in named], separator=", ")
    start, end = table.bounds
    pane = pl.col(OUTSTANDING_HOLD) if OUTSTANDING_HOLD in rows.columns else pl.lit(None, pl.Int64)
    by_pane = pane.is_not_null() & (pane < pl.col(HOLD)).fill_null(True)
    timer = pl.lit(None, pl.String) if table.holder is None else pl.col(table.holder)
    waits = deadlines.get(PROCESSING_TIME, pl.lit(None, pl.Int64))
    holds = {"hold": pl.min_horizontal(HOLD, pane), "pane": by_pane, "timer": timer, "due": waits}
    found = (
        rows.select(
            BUCKET,
            pl.col(start).alias("start"),
            pl.col(end).alias("end"),
            pl.col(PENDING).alias("pending"),
            (pl.lit(0) if table.timers is None else table.timers).cast(pl.Int64).alias("timers"),
            **holds,
            **named,
            **due,
        )
        .group_by(BUCKET)
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("pending", "timers").sum(),
            _distinct(list(named)).cast(pl.Int64).alias("keys"),
            pl.col("hold", *due).min(),
            *(pl.col(key).get(least) for key in named),
            pl.col("start", "end", "pane", "timer", "due").get(least).name.prefix("holder_"),
        )
    )
    stored = [sizes[bucket] for bucket in found[BUCKET]]
    held = found.with_columns((name if table.keys else pl.lit("")).alias("holder_key"))
    new = [pl.Series(size, [getattr(one, size) for one in stored], dtype=pl.Int64) for size in SIZES]
    return held.hstack(new)[list(schema)]


def _distinct(columns: list[str]) -> pl.Expr:
    """The number of different keys; 1 without key columns."""
    if not columns:
        return pl.lit(1)
    return (pl.col(columns[0]) if len(columns) == 1 else pl.struct(columns)).n_unique()
