"""The index of a table: for each bucket its size, when it is next due, and at which time it holds the watermark."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import attrs
import polars as pl

from stages.clock import Watermarks
from stages.facts import SPARSE
from stages.frames import concat_nonempty
from stages.operator import HOLD, PENDING
from stages.state.buckets import BUCKET, inside
from stages.state.chunks import Written
from stages.state.store import StateStore, decode, encode
from stages.strategies.histogram import Histogram, histogram, merge_histograms
from windowing.clocks import Times
from windowing.time import MIN_TIME, format_time

KEY: Final = "index"
DEADLINE: Final = "deadline."
"""The prefix of an index column that ends in the name of a clock: the time (us) on it at which a bucket is due."""
SIZES: Final = ("base", "chunks", "bytes", "log")
"""The index columns with the fields of `Size`."""
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
    """The size of a bucket in the store: base rows, followed by a log of waiting arrivals or, if keyed, of patches.

    Attributes:
        base: The number of chunks of base rows.
        chunks: The number of all chunks.
        bytes: The bytes of the base rows.
        log: The bytes of the log.
    """

    base: int = 0
    chunks: int = 0
    bytes: int = 0
    log: int = 0

    @property
    def total(self) -> int:
        """The bytes of all chunks."""
        return self.bytes + self.log

    @classmethod
    def of_rows(cls, written: Written) -> Size:
        """Returns the size of a bucket without a log whose base rows were written as these chunks."""
        return cls(len(written.rows), len(written.rows), sum(written.bytes))


@attrs.frozen
class HoldOwner:
    """The row of state, such as a window of a key, with the least hold: it holds back the stage's output watermark.

    Attributes:
        hold: The event time (us) at which the row holds the watermark.
        key: The key of the row as text.
        start: The first bound of the row (us), such as a window's start.
        end: The second bound of the row (us), such as a window's end or a timer's time.
        pane: True if the reason is a pane that may be retracted, not pending elements.
        timer: The name of the timer, if a timer is the reason. It fires at `end`.
        table: The name of the row's table; empty for an operator's first table.
        due: The processing time (us) that the row waits for, if any.
        said: The description of a row that its key does not describe.
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
        """Describes the row for people. `time` formats its bounds."""
        if self.timer is not None:
            return f"timer {self.timer!r} of key {self.key}, set for {time(self.end)}"
        if self.said:
            return f"{self.said}, at {time(self.start)}"
        if self.table:
            return f"a row of key {self.key} at {time(self.start)}"
        who = f"key {self.key} in" if self.key else "window"
        what = "a pane that may be retracted, of " if self.pane else ""
        return f"{what}{who} [{time(self.start)}, {time(self.end)})"


@attrs.frozen
class Index:
    """The summary of a table that is read instead of its rows: a row for each bucket, and clocks of the last step."""

    buckets: pl.DataFrame
    watermarks: Watermarks = attrs.field(factory=Watermarks)
    times: Times = attrs.field(factory=Times)
    holds: Mapping[int, Histogram] | None = None
    """A histogram of the holds of pending elements for each bucket; None if percentile watermarks were never in use."""
    arrived: int = 0
    """The number of elements that the stage has received. The next elements are numbered from here."""

    @classmethod
    def load(cls, store: StateStore, stage: str, clocks: Sequence[str]) -> Index:
        """Loads the index that was saved last, or an empty one. `clocks` are the clocks that rows may wait for."""
        value = store.get(stage, KEY)
        if value is None:
            return cls(no_buckets(tuple(clocks)))
        return _SAVED.get((value, tuple(clocks))) or cls.decoded(value, clocks)

    @classmethod
    def decoded(cls, value: bytes, clocks: Sequence[str]) -> Index:
        """Decodes a saved index."""
        frame, facts = decode(value)
        holds = facts.get("holds")
        if holds is not None:
            holds = {int(bucket): histogram for bucket, histogram in holds.items()}
        if frame.columns != list(schema_of(tuple(clocks))):
            # An index that an earlier version saved lacks some of the columns that describe the owner of the hold.
            frame = pl.concat([no_buckets(tuple(clocks)), frame], how="diagonal")
        watermarks = Watermarks(facts["input"], facts["output"])
        # An index that an earlier version saved does not count arrivals, and no row of its table is numbered.
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
        value = encode(self.buckets, facts)
        store.put(stage, KEY, value)
        if len(value) <= _MOST_BYTES:
            clocks = (
                name.removeprefix(DEADLINE) for name in self.buckets.columns if name.startswith(DEADLINE)
            )
            _SAVED[value, tuple(clocks)] = self
            if len(_SAVED) > _MOST_SAVED:
                _SAVED.popitem(last=False)

    def due(self, now: Times) -> list[int]:
        """Returns the numbers of the buckets in which a row is due when the clocks are at `now`."""
        times = {
            column: now.times.get(column.removeprefix(DEADLINE), MIN_TIME)
            for column in self.buckets.columns
            if column.startswith(DEADLINE)
        }
        # In most steps no row is due, which the least deadline of each clock shows without a query.
        least = {column: cast(int | None, self.buckets[column].min()) for column in times}
        due = set[int]()
        for column, time in least.items():
            if time is not None and time <= times[column]:
                each = zip(self.buckets[BUCKET], self.buckets[column], strict=True)
                due.update(bucket for bucket, at in each if at is not None and at <= times[column])
        return sorted(due)

    def sizes(self) -> dict[int, Size]:
        """Returns the sizes of the existing buckets by number."""
        return {bucket: Size(*sizes) for bucket, *sizes in self.buckets[:, [BUCKET, *SIZES]].rows()}

    def replace(
        self, touched: Collection[int], summary: pl.DataFrame, holds: Mapping[int, Histogram] | None = None
    ) -> Index:
        """Returns the index after a step has rewritten the buckets `touched`, whose new index rows are `summary`.

        A touched bucket without a new index row is empty and no longer exists.
        """
        others = inside(self.buckets, touched)[1]
        if holds is not None:
            known = self.holds or {}
            holds = {bucket: known[bucket] for bucket in known if bucket not in touched} | dict(holds)
        buckets = concat_nonempty(others, summary)
        return attrs.evolve(self, buckets=buckets.sort(BUCKET) if len(buckets) > 1 else buckets, holds=holds)

    def add(self, summary: pl.DataFrame, holds: Mapping[int, Histogram] | None = None) -> Index:
        """Adds `summary`, the index rows of rows that were appended, to the index rows of their buckets."""
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
        """The number of live rows and waiting arrivals in all buckets."""
        return int(self.buckets["rows"].sum())

    @property
    def pending(self) -> int:
        """The number of elements that are in no output yet. An element in several rows counts once in each."""
        return int(self.buckets["pending"].sum())

    @property
    def pending_holds(self) -> Histogram:
        """The histogram of the holds of pending elements. An element in several rows counts once in each."""
        return merge_histograms(*(self.holds or {}).values())

    @property
    def keys(self) -> int:
        """The number of keys with live rows. A key in several buckets counts once in each."""
        return int(self.buckets["keys"].sum())

    @property
    def timers(self) -> int:
        return int(self.buckets["timers"].sum())

    @property
    def bytes(self) -> int:
        """The size of rows and waiting arrivals in the store."""
        return int(self.buckets["bytes"].sum()) + int(self.buckets["log"].sum())

    @property
    def holder(self) -> HoldOwner | None:
        """The row with the least hold; None if no row holds the watermark."""
        if (place := self.buckets["hold"].arg_min()) is None:
            return None
        least = self.buckets.row(place, named=True)
        bounds = least["holder_start"], least["holder_end"]
        pane, timer = least["holder_pane"] or False, least["holder_timer"]
        due = least["holder_due"]
        return HoldOwner(least["hold"], least["holder_key"], *bounds, pane=pane, timer=timer, due=due)


_SAVED: Final = OrderedDict[tuple[bytes, tuple[str, ...]], Index]()
"""The last small indices that this process has saved, by value and clocks. The next step need not decode them."""

_MOST_SAVED: Final = 64
_MOST_BYTES: Final = 64_000


def histograms(rows: pl.DataFrame) -> dict[int, Histogram]:
    """Computes a histogram of the holds of pending elements for each bucket in the column BUCKET."""
    held = rows.filter(pl.col(HOLD).is_not_null() & (pl.col(PENDING) > 0))
    counted = held.group_by(BUCKET, HOLD).agg(pl.col(PENDING).sum())
    parts = counted.partition_by(BUCKET, as_dict=True).items()
    return {bucket: histogram(part[HOLD], part[PENDING]) for (bucket,), part in sorted(parts)}


def folded(buckets: pl.DataFrame) -> pl.DataFrame:
    """Merges several index rows of a bucket into one: sums of sizes and counts, and minima of holds and deadlines."""
    # The columns of the owner are taken from the index row that has the least hold, so that they belong together.
    least = pl.col("hold").arg_min()
    both = buckets.group_by(BUCKET).agg(
        pl.col(*SIZES, *COUNTS).sum(),
        pl.col("^holder_.*$").get(least),
        pl.col("hold", *(name for name in buckets.columns if name.startswith(DEADLINE))).min(),
    )
    return both.select(buckets.columns).sort(BUCKET)


@cache
def schema_of(clocks: tuple[str, ...]) -> pl.Schema:
    """Returns the schema of the index of a table whose rows may wait for these clocks."""
    return pl.Schema({**SCHEMA, **{DEADLINE + clock: pl.Int64() for clock in clocks}})


@cache
def no_buckets(clocks: tuple[str, ...]) -> pl.DataFrame:
    """Returns the index of an empty table."""
    return pl.DataFrame(schema=schema_of(clocks))
