"""Sources that announce how complete they are, batch by batch, and are told when a batch is committed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import polars as pl

from beamlike.io.sources import PlannedBatch, PlannedRows, Position
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import WatermarkStrategy


class AnnouncingSource(ABC):
    """A source that announces its watermark itself, such as a queue; a class of your own defines three methods.

    `schema` gives the columns. `plan` says what the next batch takes, where the source is after that, and how complete
    it is then. `read` gives the rows of a planned batch: in process the process that has planned it, on Spark a task.
    When the batch is committed, `committed` is called, once or, after a run that was killed, again; only after that the
    next one is planned. A batch that was planned and not committed comes again, and `read` must give the same rows.

    `p.read` needs no `watermark=` then; `bl.AnnouncedWatermark(idle_after="30s")` leaves the source out of the minimum
    while it plans nothing. A run without a checkpoint plans and reads, and commits nothing.

    Several runs may read one declaration. If the source learns something while it is read, `opened(position)` gives a
    source of the same kind for one run, which keeps that.

    Example:
        >>> import polars as pl
        >>> class Counter(bl.AnnouncingSource):
        ...     '''The numbers below `end`, one for each second.'''
        ...
        ...     def __init__(self, end):
        ...         self.end = end
        ...
        ...     def schema(self):
        ...         return {"at": pl.Int64}
        ...
        ...     def plan(self, position, rows):
        ...         first = position.get("next", 0)
        ...         to = min(first + min(rows, 60), self.end)
        ...         if to > first:
        ...             return bl.PlannedBatch([first, to], {"next": to}, more=to < self.end, watermark=to * 1_000_000)
        ...
        ...     def read(self, taken):
        ...         return pl.DataFrame({"at": range(*taken.input)})
        >>> p = bl.Pipeline("p")
        >>> seconds = p.read("seconds", Counter(100), timestamp="at", timestamp_unit="s")
        >>> minutes = seconds.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())
        >>> _ = minutes.write("out", bl.Memory())
        >>> [batch.sources["seconds"].watermark // 1_000_000 for batch in p.run().batches[:-1]]
        [60, 100]
    """

    bounded: bool = False
    watermark: WatermarkStrategy = AnnouncedWatermark()

    @abstractmethod
    def schema(self) -> pl.Schema:
        """The columns, which rows have in the order that they like; a dict will do."""

    @abstractmethod
    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """What the next batch takes from this position, about so many rows; None if nothing is new.

        `{}` is the position of a run that begins. `PlannedBatch.input` says what to read, as data that JSON can hold; with
        None a batch only moves the position or the watermark. `PlannedBatch.watermark` holds once the batch is done: a
        datetime, or microseconds since 1970; None leaves it where it is, as does one that is behind.
        """

    @abstractmethod
    def read(self, taken: PlannedBatch) -> PlannedRows:
        """The rows that were planned, as a frame of polars with the columns and types of `schema`.

        Raises `LookupError` where they are not there any more.
        """

    def committed(self, taken: PlannedBatch) -> None:
        """The batch is done for good, and is not read again. It may be told of more than once."""
        return

    def close(self) -> None:
        """The run is over."""
        return
