"""Protocols of sources: ways in which a source is read, of which most sources need one, and optional capabilities.

`ReadInChunks` is for runs in process, `Resumable` for runs in process with a checkpoint. On Spark, a source is read in
one of three ways: as files that the driver lists, as rows in memory that are stored next to the checkpoint, or by a
streaming reader of Spark. Sources that plan their batches (`Planned`), and test streams, work on both runners.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import attrs
import polars as pl

from beamlike.io.base import Announced, AnyFrame, Faulty, FromFile, Pieces, Source
from stages.strategies.base import Summary

Chunk: TypeAlias = AnyFrame | Faulty | Pieces | Announced
"""The input of a batch from a source, or a piece of it. Collecting its rows may raise `Unreadable`."""

AnySource = TypeVar("AnySource", bound=Source)


# `isinstance` only checks that methods exist; `beamlike.io.capabilities` checks their signatures.


@runtime_checkable
class ReadInChunks(Source, Protocol):
    """A source that is read in process."""

    def chunks(self, rows: int) -> Iterator[Chunk]:
        """Yields the input in order of arrival. Each chunk, of about `rows` rows, is a batch."""


@runtime_checkable
class ReadBySpark(Source, Protocol):
    """A source that Spark itself reads. If it has no `chunks`, it can be used only on Spark."""

    def read_by_spark(self, spark: Any) -> Any:
        """Returns a streaming DataFrame of the session `spark` with the columns of `schema()`."""


Position: TypeAlias = Mapping[str, Any]
"""The position of a run in a source. Each batch changes some entries, such as the next offset of a partition."""


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
    """A reader of a source from a position on, for a run in process that stores the position on disk."""

    def new(self) -> PlannedBatch | None:
        """Returns the next batch, with about the number of rows that a batch should have; None if there is no new
        input.

        Until the batch is read, further calls return the same batch.
        """

    def read(self, batch: PlannedBatch) -> Chunk:
        """Reads exactly the input that `new` returned. A later process that begins at the same position may also call
        it.

        Raises `LookupError` or `FileNotFoundError` if the input no longer exists.
        """

    def close(self) -> None:
        """Closes open resources, at the end of the run."""


@runtime_checkable
class AcceptsCommits(Protocol):
    """A source or reader that is notified when a batch is committed."""

    def committed(self, batch: PlannedBatch) -> None:
        """Called when the batch is committed. After a run was killed, it may be called again."""


@runtime_checkable
class Closeable(Protocol):
    """A source that uses a resource while it is read, such as a connection."""

    def close(self) -> None:
        """Closes the resource, at the end of the run."""


@runtime_checkable
class Resumable(Source, Protocol):
    """A source that can continue from the position of an earlier run, and can return the same input again."""

    def resume(self, position: Position, rows: int) -> Reader:
        """Returns a reader from `position` on, with batches of about `rows` rows. `{}` is the beginning."""


PlannedRows: TypeAlias = pl.DataFrame | pl.LazyFrame | Pieces
"""The rows of a planned batch."""


@runtime_checkable
class ReadAsPlanned(Source, Protocol):
    """A source that plans each batch before the batch is read. On Spark the driver plans, and a task reads.

    Batches are planned as long as there is input. If the source also has `committed`, a batch is planned only after the
    batch before it was committed.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Returns the next batch after `position`, with about `rows` rows; None if there is no new input.

        `{}` is the position at the beginning.
        """

    def read(self, batch: PlannedBatch) -> PlannedRows:
        """Returns the rows of a planned batch, the same each time. Raises `LookupError` if they no longer exist."""


@runtime_checkable
class ReadInParts(Source, Protocol):
    """A source whose planned batches consist of parts, which Spark tasks read in parallel.

    `PlannedBatch.input` is the list of parts. `rows` is the number of rows of all parts together.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Returns the next batch after `position`, with about `rows` rows; None if there is no new input.

        `{}` is the position at the beginning.
        """

    def read_part(self, part: Any, rows: int) -> Iterator[FromFile | pl.DataFrame | pl.LazyFrame]:
        """Yields the rows of a part, the same each time, in pieces of at most `rows` rows."""


Planned: TypeAlias = ReadAsPlanned | ReadInParts
"""A source that plans its batches."""


@runtime_checkable
class Openable(Source, Protocol):
    """A source that plans its batches, and stores what it learns while it is read. Each run opens a source of
    its own.
    """

    def opened(self, position: Position) -> Planned:
        """Returns a source of the same kind, which one run uses instead of this one, from `position` on.

        Spark tasks read planned batches with the declaration itself.
        """


@runtime_checkable
class InfersSchema(Source, Protocol):
    """A source that infers its columns from its input if they are not declared."""

    def looked_up(self) -> Self:
        """Returns the source with the current columns of its input as part of the declaration."""


@runtime_checkable
class MayBeComplete(Source, Protocol):
    """A source that the user can declare complete: it has all its input when a run begins.

    When that is read, the watermark of the source goes to the end of time, and other sources go on.
    """

    @property
    def complete(self) -> bool:
        """True if the source is complete."""


@runtime_checkable
class HasSparkOffsets(Resumable, ReadBySpark, Protocol):
    """A source whose position can be converted to Spark's offsets and back. So its savepoints work on both runners."""

    def offsets_of_spark(self, position: Position) -> Sequence[str]:
        """Returns the lines of Spark's offset log for this position, one for each stream of `read_by_spark`."""

    def position_of(self, offsets: Sequence[str]) -> Position:
        """Returns the position for the lines of Spark's offset log."""


@runtime_checkable
class HasSpans(HasSparkOffsets, Protocol):
    """A source that can read the rows between two of its positions again, whichever runner read them first."""

    def span(self, begin: Position, end: Position) -> PlannedBatch:
        """Returns the batch of the rows between two positions, for the reader that `resume` returns.

        Its input is `{"begin": ..., "end": ...}`, both with the entries of the position that the batch moves.
        """


@runtime_checkable
class HasPast(Source, Protocol):
    """A source that can read all its input up to a position again, although the batches are not known any more."""

    def past(self, position: Position, since: int | None) -> PlannedBatch | None:
        """Plans the input from the beginning to a position as one batch; None if there is none.

        With `since`, input may be left out if all its event times are before that time (us). Raises `LookupError` if
        the input cannot be read again.
        """


@runtime_checkable
class ReadFromMemory(ReadInChunks, Protocol):
    """A source whose rows are in memory when it is declared. On Spark they are stored as files next to the
    checkpoint.
    """

    def chunks(self, rows: int) -> Iterator[AnyFrame]:
        """Yields the rows in order of arrival. Each chunk is a batch, also on Spark."""

    def all_rows(self) -> pl.DataFrame:
        """Returns all rows, the same each time."""


@attrs.frozen
class FoundFile:
    """A file in a listing: its path, modification time (milliseconds since 1970), and size in bytes.

    Every storage reports times with a precision of milliseconds or better.
    """

    path: str
    modified: int
    size: int


@runtime_checkable
class ReadInFiles(ReadInChunks, Protocol):
    """A source of files. On Spark the driver lists the files, and tasks read each file in one or more parts."""

    @property
    def max_files_per_trigger(self) -> int | None:
        """The number of files in a batch; None for no limit.

        Without a limit, a batch in process has about a number of rows, and on Spark all new files.
        """

    @property
    def splits(self) -> bool:
        """True if several tasks can read parts of a file independently."""

    @property
    def order_advice(self) -> str:
        """The advice that is logged if the order of files made rows late; empty for none."""

    def from_anywhere(self) -> Self:
        """Returns the source with absolute paths, because tasks have other working directories."""

    def require_there(self, *, globs: bool) -> None:
        """Raises `FileNotFoundError` if a path does not exist or, with `globs`, if a glob matches nothing."""

    def found(self, *, later: bool = False) -> Sequence[FoundFile]:
        """Returns the existing files in reading order. `later`: files may still arrive, so a glob may match nothing."""

    def pieces(self, file: str, rows: int, part: int = 0, parts: int = 1) -> Iterator[pl.LazyFrame | Faulty]:
        """Yields part number `part` of `parts` of a file, in pieces of at most `rows` rows."""

    def batches(self, rows: int) -> Iterator[Pieces]:
        """Yields the input of each batch of a run in process, with the files that rows are from."""

    def batches_apart(self, rows: int) -> Iterator[Pieces]:
        """Yields the input of each batch without mixing files, for a watermark in which each file is a split."""

    def resume(self, position: Position, rows: int, *, apart: bool = False) -> Reader:
        """Returns a reader from `position` on, with batches of about `rows` rows.

        `apart`: rows of different files are not mixed, because each file is a split.
        """


@attrs.frozen(eq=False)
class SourceStep:
    """A step of a test stream: elements that arrive together, or clocks that move.

    `summary` is the watermark that the stream announces, `processing_time` its processing time (us).
    """

    elements: pl.DataFrame
    summary: Summary
    processing_time: int


@runtime_checkable
class ReadInSteps(Source, Protocol):
    """A source with a clock of its own, such as a test stream. Each runner plays step n in batch n."""

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
    """A source whose rows Spark reads in encoded form. Tasks decode them to the columns of `schema()`."""

    def decode(self, frame: pl.DataFrame) -> Pieces:
        """Decodes rows. Those that cannot be decoded become dead letters."""


@runtime_checkable
class InSplits(Source, Protocol):
    """A source with partitions, each of which has its own order of rows. By default each has its own watermark."""

    @property
    def split(self) -> str:
        """The column that identifies the partition."""


@runtime_checkable
class AcceptsEventTime(Protocol):
    """A source that reads the event-time column in another way than other columns."""

    def for_event_time(self, column: str) -> Self:
        """Returns the source with this column as its event time.

        Text formats then read the column as text, unless its type is declared. So an invalid time can be shown exactly
        as it is in the file.
        """


@runtime_checkable
class AcceptsTimeUnit(Source, Protocol):
    """A source that reads event times itself, instead of leaving their conversion to the engine."""

    def reading_event_time(self, column: str, unit: str | None) -> Self:
        """Returns the source with this event-time column. `unit` is the unit of numbers."""


@runtime_checkable
class SchemaFromSpark(ReadBySpark, Protocol):
    """A source whose columns Spark may have to infer."""

    @property
    def is_open(self) -> bool:
        """True if the columns are not known yet."""

    def with_schema(self, schema: pl.Schema) -> Self:
        """Returns the source with these columns."""


def with_event_time(source: AnySource, column: str, unit: str | None = None) -> AnySource:
    """Returns the source with `column` as its event time. `unit` is the unit of numbers in it."""
    if isinstance(source, AcceptsTimeUnit):
        return source.reading_event_time(column, unit)
    return source.for_event_time(column) if isinstance(source, AcceptsEventTime) else source
