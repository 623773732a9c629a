"""How a source can be read, and what else it can do: each protocol is asked for by name, and few need more than one.

`ReadInChunks` is for runs in process, and `Resumable` for those that go on from a checkpoint. On Spark a source is read
as files that the driver lists, as rows in memory that are kept beside the checkpoint, or by a reader of Spark's; one
that plans its batches, or is read in steps, is for either.
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
        """The input in order of arrival: what a batch takes, which is about `rows` rows."""


@runtime_checkable
class ReadBySpark(Source, Protocol):
    """A source of which Spark knows how to read it. Without `chunks` it is for pipelines on Spark only."""

    def read_by_spark(self, spark: Any) -> Any:
        """A streaming DataFrame of the session `spark`, with the columns of `schema()`."""


Position: TypeAlias = Mapping[str, Any]
"""Where a run is in a source: entries of which a batch changes some, such as the next offset of each partition."""


class PlannedBatch(NamedTuple):
    """What a batch takes of a source: `input` says what that is, and `position` has the entries that it changes.

    Both are data that JSON can hold. With `more`, what comes after it is there already. `watermark` is what a source
    announces with it, which holds once the batch is done (a datetime, or microseconds since 1970); where `input` is
    None, that and the position are all that it brings.

    Example:
        >>> bl.PlannedBatch(["a.csv", "b.csv"], {"file": "b.csv"}, more=True)
        PlannedBatch(input=['a.csv', 'b.csv'], position={'file': 'b.csv'}, more=True, watermark=None)
    """

    input: Any
    position: Position
    more: bool = False
    watermark: datetime | int | None = None


class Reader(Protocol):
    """Reads a source on from where it is, for a run in process that keeps that on disk."""

    def new(self) -> PlannedBatch | None:
        """What comes next, about as many rows as a batch is to have; None if nothing is there now.

        It stays the same until it is read.
        """

    def read(self, taken: PlannedBatch) -> Chunk:
        """The input that `new` gave, exactly; also if that was before the run was killed, at the same position.

        Raises `LookupError` or `FileNotFoundError` where that is not there any more.
        """

    def close(self) -> None:
        """The run is over."""


@runtime_checkable
class AcceptsCommits(Protocol):
    """A source, or an reader of one, that is to know when what it gave is committed."""

    def committed(self, taken: PlannedBatch) -> None:
        """The batch is done for good. After a run that was killed it may be told of once more."""


@runtime_checkable
class Closeable(Protocol):
    """A source that holds something while it is read, such as a connection."""

    def close(self) -> None:
        """The run is over."""


@runtime_checkable
class Resumable(Source, Protocol):
    """A source that can be read on from where an earlier run was, and that gives the same input again."""

    def resume(self, position: Position, rows: int) -> Reader:
        """Reads on from there, batches of about `rows` rows; {} is the beginning."""


PlannedRows: TypeAlias = pl.DataFrame | pl.LazyFrame | Pieces
"""What a planned batch has."""


@runtime_checkable
class ReadAsPlanned(Source, Protocol):
    """A source of which is known, before it is read, what a batch takes. On Spark the driver plans, and a task reads.

    Batches are planned as far as there is input; those of a source that is `AcceptsCommits` one by one, when the one
    before is committed.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """What comes after this position, about `rows` rows; {} is the beginning. None if nothing is there now."""

    def read(self, taken: PlannedBatch) -> PlannedRows:
        """The rows of a planned batch, the same each time. Raises `LookupError` where they are not there any more."""


@runtime_checkable
class ReadInParts(Source, Protocol):
    """A source of which a planned batch has several parts: its `input` is a list of them. On Spark tasks share those.

    `rows` is then as many as there are.
    """

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """What comes after this position, about `rows` rows; {} is the beginning. None if nothing is there now."""

    def read_part(self, part: Any, rows: int) -> Iterator[FromFile | pl.DataFrame | pl.LazyFrame]:
        """The rows of a part, the same each time, in pieces of at most `rows` rows."""


Planned: TypeAlias = ReadAsPlanned | ReadInParts
"""A source that plans its batches."""


@runtime_checkable
class Openable(Source, Protocol):
    """A source that plans its batches, and learns something while it is read: each run opens it for itself."""

    def opened(self, position: Position) -> Planned:
        """Gives a source of the same kind, which one run asks instead of this one, from this position on.

        Tasks of Spark read what was planned with the declaration itself.
        """


@runtime_checkable
class InfersSchema(Source, Protocol):
    """A source that finds its columns in its input, where they are not declared."""

    def looked_up(self) -> Self:
        """Gives the source with the columns that its input has now as a part of its declaration."""


@runtime_checkable
class HasSparkOffsets(Resumable, ReadBySpark, Protocol):
    """A source of which a savepoint goes from one runner to the other."""

    def offsets_of_spark(self, position: Position) -> Sequence[str]:
        """The lines of Spark's offset log for this position, one for each stream that `read_by_spark` makes."""

    def position_of(self, offsets: Sequence[str]) -> Position:
        """The position that such lines are for."""


@runtime_checkable
class ReadFromMemory(ReadInChunks, Protocol):
    """A source whose rows are there when it is declared. On Spark they are kept as files beside the checkpoint."""

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """The rows in order of arrival; on Spark, too, each is a batch."""

    def all_rows(self) -> pl.DataFrame:
        """The rows, the same each time."""


@attrs.frozen
class FoundFile:
    """A file that a listing has found: when it was modified, in milliseconds since 1970, and its size in bytes.

    Milliseconds are what all storages know.
    """

    path: str
    modified: int
    size: int


@runtime_checkable
class ReadInFiles(ReadInChunks, Protocol):
    """A source of files. On Spark the driver lists them, and tasks read each of them in one or more parts."""

    @property
    def max_files_per_trigger(self) -> int | None:
        """How many files a batch is; None if it is about so many rows, or all that is there."""

    @property
    def splits(self) -> bool:
        """Whether parts of a file can be read apart."""

    @property
    def order_advice(self) -> str:
        """What the log says where files came in an order that made rows late; nothing is told where it is empty."""

    def from_anywhere(self) -> Self:
        """The source with its paths as this process means them: tasks have working directories of their own."""

    def require_there(self, *, globs: bool) -> None:
        """Raises `FileNotFoundError` for a path that does not exist, and with `globs` for one that nothing matches."""

    def found(self, *, later: bool = False) -> Sequence[FoundFile]:
        """The files that are there, in the order in which they are read. Files may come `later`."""

    def pieces(self, file: str, rows: int, part: int = 0, parts: int = 1) -> Iterator[pl.LazyFrame | Faulty]:
        """One of several parts of a file, in pieces of at most `rows` rows."""

    def batches(self, rows: int) -> Iterator[Pieces]:
        """What each batch in process takes, with the files that it is from."""

    def batches_apart(self, rows: int) -> Iterator[Pieces]:
        """The same, file by file, for a watermark of which each file is a split."""

    def resume(self, position: Position, rows: int, *, apart: bool = False) -> Reader:
        """Reads on from there in batches of about `rows` rows; file by file if they are read `apart`."""


@attrs.frozen(eq=False)
class SourceStep:
    """Elements that come together, or clocks that move: what the source announces, and its processing time (us)."""

    elements: pl.DataFrame
    summary: Summary
    processing_time: int


@runtime_checkable
class ReadInSteps(Source, Protocol):
    """A source with a clock of its own: step n is played in batch n, by each runner in the same way."""

    @property
    def steps(self) -> Sequence[SourceStep]:
        """All steps."""

    @property
    def processing_time(self) -> int:
        """Where processing time stands after the last step, in microseconds."""

    @property
    def announces(self) -> bool:
        """Whether any step says where the watermark is."""

    def step(self, number: int) -> SourceStep:
        """The step with this number; after the last one nothing happens any more."""


@runtime_checkable
class HasDecode(ReadBySpark, Protocol):
    """A source whose rows Spark gives as they are stored: tasks make those of `schema()` of them."""

    def decode(self, frame: pl.DataFrame) -> Pieces:
        """The rows, and what is none."""


@runtime_checkable
class InSplits(Source, Protocol):
    """A source that comes in partitions, each in an order of its own: a watermark is kept for each by default."""

    @property
    def split(self) -> str:
        """The column that tells them apart."""


@runtime_checkable
class AcceptsEventTime(Protocol):
    """A source that reads a column in another way if that is the event time."""

    def for_event_time(self, column: str) -> Self:
        """The source, told which column is the event time.

        Text formats then leave that column as text, unless its type is declared, so that a value that is no
        time can be shown as it was written.
        """


@runtime_checkable
class AcceptsTimeUnit(Source, Protocol):
    """A source that looks at event times itself."""

    def reading_event_time(self, column: str, unit: str | None) -> Self:
        """The source, told which column is the event time, and of numbers in which unit."""


@runtime_checkable
class SchemaFromSpark(ReadBySpark, Protocol):
    """A source whose columns Spark may have to be asked for."""

    @property
    def is_open(self) -> bool:
        """Whether its columns are not known yet."""

    def with_schema(self, schema: pl.Schema) -> Self:
        """The source with these columns."""


def with_event_time(source: AnySource, column: str, unit: str | None = None) -> AnySource:
    """The source that is read where this column is the event time, of numbers in this unit."""
    if isinstance(source, AcceptsTimeUnit):
        return source.reading_event_time(column, unit)
    return source.for_event_time(column) if isinstance(source, AcceptsEventTime) else source
