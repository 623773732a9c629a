"""The base class for sources that announce their watermark and are notified of commits."""

from __future__ import annotations

from abc import ABC, abstractmethod

from beamlike.io.sources import PlannedBatch, PlannedRows, Position
from beamlike.rows.dtypes import Columns
from stages.strategies.announced import AnnouncedWatermark
from stages.strategies.base import WatermarkStrategy


class AnnouncingSource(ABC):
    """A source that announces its watermark itself, such as a queue. Subclasses define three methods.

    `schema` returns the columns. `plan` returns the next batch: what to read, and the position and watermark after it.
    `read` returns the rows of a planned batch. In process it is called where the batch was planned, on Spark in a task.

    When a batch is committed, `committed` is called, possibly again after a run was killed; the next batch is planned
    only after that. A batch that was planned but not committed is read again, and `read` must return the same rows.

    `p.read` needs no `watermark=` for such a source. With `bl.AnnouncedWatermark(idle_after="30s")`, the watermark of
    the pipeline does not wait for the source while it plans nothing. A run without a checkpoint plans and reads, and
    commits nothing.

    Several runs may read one declaration. A source that stores what it learns while it is read defines
    `opened(position)`, which returns a source of the same kind for one run.

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
        ...             more, watermark = to < self.end, to * 1_000_000
        ...             return bl.PlannedBatch([first, to], {"next": to}, more, watermark)
        ...
        ...     def read(self, batch):
        ...         return pl.DataFrame({"at": range(*batch.input)})
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
    def schema(self) -> Columns:
        """Returns the columns, as a polars schema or a dict. Rows may have them in any order."""

    @abstractmethod
    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Plans the next batch.

        Args:
            position: The entries of earlier batches; `{}` at the beginning of a run.
            rows: About how many rows the batch should have.

        Returns:
            The batch, or None if there is no new input. With `input=None` a batch only moves the position or the
            watermark. A watermark that is None, or not later than the current one, has no effect.
        """

    @abstractmethod
    def read(self, batch: PlannedBatch) -> PlannedRows:
        """Returns the rows of a planned batch, as a polars frame with the columns and types of `schema`.

        Raises:
            LookupError: The rows no longer exist.
        """

    def committed(self, batch: PlannedBatch) -> None:
        """Called when the batch is committed and will not be read again; possibly more than once."""
        return

    def close(self) -> None:
        """Called at the end of the run."""
        return
