"""Protocols of sources: the ways to read one, and optional capabilities. Most sources need one of them.

`ReadInChunks` is for runs in process, `Resumable` for runs in process with a checkpoint. On Spark a source is read as
files that the driver lists, as rows in memory that are stored beside the checkpoint, or by a streaming reader of Spark.
Sources that plan their batches (`Planned`), or that are read in steps, work on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Announced, Faulty, FromFile, Pieces, Source
from stages.strategies.base import Summary

Chunk: TypeAlias = pl.LazyFrame | Faulty | Pieces | Announced
"""What a batch takes of a source, or a piece of that. Collecting one may raise `Unreadable`."""

AnySource = TypeVar("AnySource", bound=Source)


@runtime_checkable
class ReadInChunks(Source, Protocol):
    """A source that is read in process."""

    def chunks(self, rows: int) -> Iterator[Chunk]:
        """Yields the input in order of arrival, one chunk of about `rows` rows for each batch."""


@runtime_checkable
class ReadBySpark(Source, Protocol):
    """A source that Spark reads. Without `chunks`, it can be used on Spark only."""

    def read_by_spark(self, spark: Any) -> Any:
        """Returns a streaming DataFrame of the session `spark` with the columns of `schema()`."""


Position: TypeAlias = Mapping[str, Any]
"""Where a run is in a source: entries of which a batch changes some, such as the next offset of each partition."""


class PlannedBatch(NamedTuple):
    """The input of one batch, planned by a source before it is read.

    Args:
        input: What to read, as data that JSON can hold. None for a batch that only moves the position or the watermark.
        position: The entries of the source's position that the batch changes, as data that JSON can hold.
        more: True if further input is available already.
        watermark: The watermark that the source announces, valid once the batch is done: a datetime, or microseconds
            since 1970. None leaves it unchanged.

    Example:
        >>> bl.PlannedBatch(["a.csv", "b.csv"], {"file": "b.csv"}, more=True)
        PlannedBatch(input=['a.csv', 'b.csv'], position={'file': 'b.csv'}, more=True, watermark=None)
    """

    input: Any
    position: Position
    more: bool = False
    watermark: datetime | int | None = None


class Reader(Protocol):
    """Reads a source on from a position, for a run in process that stores the position on disk."""

    def new(self) -> PlannedBatch | None:
        """Returns the next batch, of about as many rows as a batch should have; None if there is no new input.

        Returns the same batch until it is read.
        """

    def read(self, taken: PlannedBatch) -> Chunk:
        """Reads exactly the input that `new` returned, also in a later process that begins at the same position.

        Raises `LookupError` or `FileNotFoundError` if the input no longer exists.
        """

    def close(self) -> None:
        """Closes what the reader holds open, at the end of the run."""


@runtime_checkable
class AcceptsCommits(Protocol):
    """A source, or a reader of one, that is notified when a batch is committed."""

    def committed(self, taken: PlannedBatch) -> None:
        """Called when the batch is done for good; after a run was killed, possibly a second time."""


@runtime_checkable
class Closeable(Protocol):
    """A source that holds a resource while it is read, such as a connection."""

    def close(self) -> None:
        """Closes the resource, at the end of the run."""


@runtime_checkable
class Resumable(Source, Protocol):
    """A source that can be read on from the position of an earlier run, and returns the same input again."""

    def resume(self, position: Position, rows: int) -> Reader:
        """Returns a reader from `position` on, in batches of about `rows` rows; {} is the beginning."""


PlannedRows: TypeAlias = pl.DataFrame | pl.LazyFrame | Pieces
"""What a planned batch has."""


@runtime_checkable
class ReadAsPlanned(Source, Protocol):
    """A source that plans each batch before the batch is read. On Spark the driver plans, and a task reads.

    Batches are planned as long as there is input. If the source also has `committed`, a batch is planned only after the
    batch before it was committed.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Returns the next batch after `position`, of about `rows` rows; None if there is no new input.

        {} is the position at the beginning.
        """

    def read(self, taken: PlannedBatch) -> PlannedRows:
        """Returns the rows of a planned batch, the same each time. Raises `LookupError` if they no longer exist."""


@runtime_checkable
class ReadInParts(Source, Protocol):
    """A source whose planned batches have several parts, which Spark tasks share.

    `PlannedBatch.input` is the list of parts, and `rows` the number of rows of all parts together.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Returns the next batch after `position`, of about `rows` rows; None if there is no new input.

        {} is the position at the beginning.
        """

    def read_part(self, part: Any, rows: int) -> Iterator[FromFile | pl.DataFrame | pl.LazyFrame]:
        """Yields the rows of a part, the same each time, in pieces of at most `rows` rows."""


Planned: TypeAlias = ReadAsPlanned | ReadInParts
"""A source that plans its batches."""


@runtime_checkable
class Openable(Source, Protocol):
    """A source that plans its batches and learns something while it is read; each run opens it for itself."""

    def opened(self, position: Position) -> Planned:
        """Returns a source of the same kind, which one run uses in place of this one, from `position` on.

        Spark tasks read planned batches with the declaration itself.
        """


@runtime_checkable
class InfersSchema(Source, Protocol):
    """A source that infers its columns from its input if they are not declared."""

    def looked_up(self) -> Self:
        """Returns the source with the columns that its input has now as part of the declaration."""


@runtime_checkable
class HasSparkOffsets(Resumable, ReadBySpark, Protocol):
    """A source whose position can be converted to Spark's offsets and back, for savepoints between runners."""

    def offsets_of_spark(self, position: Position) -> Sequence[str]:
        """Returns the lines of Spark's offset log for this position, one for each stream of `read_by_spark`."""

    def position_of(self, offsets: Sequence[str]) -> Position:
        """Returns the position for the lines of Spark's offset log."""


@runtime_checkable
class ReadFromMemory(ReadInChunks, Protocol):
    """A source whose rows exist when it is declared. On Spark they are stored as files beside the checkpoint."""

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Yields the rows in order of arrival; each chunk is a batch, also on Spark."""

    def all_rows(self) -> pl.DataFrame:
        """Returns all rows, the same each time."""


@attrs.frozen
class FoundFile:
    """A file in a listing: its path, modification time (milliseconds since 1970), and size in bytes.

    All storages report times in milliseconds at least.
    """

    path: str
    modified: int
    size: int


@runtime_checkable
class ReadInFiles(ReadInChunks, Protocol):
    """A source of files. On Spark the driver lists them, and tasks read each file in one or more parts."""

    @property
    def max_files_per_trigger(self) -> int | None:
        """The number of files in a batch; None for no limit.

        Without a limit, a batch in process has about a number of rows, and on Spark all new files.
        """

    @property
    def splits(self) -> bool:
        """True if parts of a file can be read independently."""

    @property
    def order_advice(self) -> str:
        """The advice in the log if the order of files made rows late; empty for no message."""

    def from_anywhere(self) -> Self:
        """Returns the source with absolute paths, since tasks have other working directories."""

    def require_there(self, *, globs: bool) -> None:
        """Raises `FileNotFoundError` if a path does not exist, or with `globs` if a glob matches nothing."""

    def found(self, *, later: bool = False) -> Sequence[FoundFile]:
        """Returns the existing files in reading order. `later`: files may still arrive, so a glob may match nothing."""

    def pieces(self, file: str, rows: int, part: int = 0, parts: int = 1) -> Iterator[pl.LazyFrame | Faulty]:
        """Yields part number `part` of `parts` of a file, in pieces of at most `rows` rows."""

    def batches(self, rows: int) -> Iterator[Pieces]:
        """Yields the input of each batch in process, with the files that it is from."""

    def batches_apart(self, rows: int) -> Iterator[Pieces]:
        """Yields the input of each batch with separate files, for a watermark that has a split for each file."""

    def resume(self, position: Position, rows: int, *, apart: bool = False) -> Reader:
        """Returns a reader from `position` on, in batches of about `rows` rows.

        `apart`: the rows of each file stay separate, as each is a split.
        """


@attrs.frozen(eq=False)
class SourceStep:
    """A step of a source: elements that arrive together, or clocks that move.

    `summary` is the watermark that the source announces, `processing_time` its processing time in us.
    """

    elements: pl.DataFrame
    summary: Summary
    processing_time: int


@runtime_checkable
class ReadInSteps(Source, Protocol):
    """A source with its own clock; each runner plays step n in batch n."""

    @property
    def steps(self) -> Sequence[SourceStep]:
        """All steps."""

    @property
    def processing_time(self) -> int:
        """The processing time after the last step, in microseconds."""

    @property
    def announces(self) -> bool:
        """True if any step announces a watermark."""

    def step(self, number: int) -> SourceStep:
        """Returns the step with this number; after the last step, one in which nothing happens."""


@runtime_checkable
class HasDecode(ReadBySpark, Protocol):
    """A source whose rows Spark reads in stored form; tasks decode them to the columns of `schema()`."""

    def decode(self, frame: pl.DataFrame) -> Pieces:
        """Decodes rows; those that cannot be decoded are dead letters."""


@runtime_checkable
class InSplits(Source, Protocol):
    """A source with partitions, each with its own order of rows; by default each has a watermark of its own."""

    @property
    def split(self) -> str:
        """The column that identifies the partition."""


@runtime_checkable
class AcceptsEventTime(Protocol):
    """A source that reads the event time column in another way than other columns."""

    def for_event_time(self, column: str) -> Self:
        """Returns the source with this column as its event time.

        Text formats then read the column as text, unless its type is declared, so that an invalid time can be shown as
        it was
        written.
        """


@runtime_checkable
class AcceptsTimeUnit(Source, Protocol):
    """A source that reads event times itself."""

    def reading_event_time(self, column: str, unit: str | None) -> Self:
        """Returns the source with this event time column; `unit` is the unit of numbers."""


@runtime_checkable
class SchemaFromSpark(ReadBySpark, Protocol):
    """A source whose columns may be known to Spark only."""

    @property
    def is_open(self) -> bool:
        """True if the columns are not known yet."""

    def with_schema(self, schema: pl.Schema) -> Self:
        """Returns the source with these columns."""


def with_event_time(source: AnySource, column: str, unit: str | None = None) -> AnySource:
    """Returns the source that is read with `column` as event time, and numbers of that column in `unit`."""
    if isinstance(source, AcceptsTimeUnit):
        return source.reading_event_time(column, unit)
    return source.for_event_time(column) if isinstance(source, AcceptsEventTime) else source
