"""The base protocols of sources and sinks, and the frame that a sink receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import attrs
import polars as pl

from beamlike.rows.dtypes import Columns, SchemaLike, column_dtype, columns_of, require_column_name
from windowing.columns import (
    EVENT_TIME,
    PANE_INDEX,
    PANE_RETRACTED,
    PANE_TIMING,
    RESERVED_PREFIX,
    WINDOW_END,
    WINDOW_START,
)

Declared = tuple[tuple[str, pl.DataType], ...]
"""A schema as part of a declaration, in hashable form."""

# A Python datetime has years from 1 to 9999. The bounds of the global window are outside this range.
FIRST_MOMENT: Final = -62_135_596_800_000_000
LAST_MOMENT: Final = 253_402_300_799_999_999
"""The first and last time of a Python datetime, in microseconds since 1970."""

_MOMENT: Final = pl.Datetime("us", "UTC")


def declared(schema: SchemaLike | Declared | None) -> Declared | None:
    """Checks the schema that a user declared for a source. Raises `TypeError` for an invalid schema or type."""
    if schema is None:
        return None
    columns = dict(schema) if isinstance(schema, tuple) else columns_of(schema)
    for name in columns:
        require_column_name(name, None)
    return tuple((name, column_dtype(name, dtype)) for name, dtype in columns.items())


_BEFORE: Final = (WINDOW_START, WINDOW_END)
_AFTER: Final = (EVENT_TIME, PANE_TIMING, PANE_INDEX, PANE_RETRACTED)
_MOMENTS: Final = (*_BEFORE, EVENT_TIME)
SHOWN: Final = tuple(name.removeprefix(RESERVED_PREFIX) for name in (*_BEFORE, *_AFTER))
"""The names of system columns at sinks: first the columns before the user's columns, then those after them."""


@runtime_checkable
class Source(Protocol):
    """A source of rows. The protocols in `beamlike.io.sources` define how it is read, and optional capabilities."""

    @property
    def bounded(self) -> bool:
        """True if the input has an end. A class sets it as `bounded = True`: type checkers refuse a `ClassVar`."""

    def schema(self) -> Columns:
        """Returns the user's columns, as a polars schema or a dict."""


AnyFrame: TypeAlias = pl.DataFrame | pl.LazyFrame
"""Rows of a source: in memory, or a query that reads them."""


@attrs.frozen(eq=False)
class Faulty:
    """Rows of a source that cannot be read, as dead letters.

    `dead_letters` has two text columns: `error` (file, column, value and the expected type) and `row` (the row as JSON,
    or the text that is not a row). Each of its rows counts as read from the source, but not as an element.
    """

    dead_letters: pl.DataFrame

    @classmethod
    def none(cls) -> Faulty:
        """Returns an instance without dead letters."""
        return cls(pl.DataFrame(schema={"error": pl.String, "row": pl.String}))


@attrs.frozen(eq=False)
class FromFile:
    """Rows of a source with the file that they are from. If they are from several files: the first and the last file.

    `over`: the file has no further rows.
    """

    rows: AnyFrame | Faulty
    file: str
    last: str = ""
    over: bool = False

    @property
    def files(self) -> str:
        """The file or the range of files, as text for messages."""
        return repr(self.file) if self.last in ("", self.file) else f"{self.file!r} to {self.last!r}"


@attrs.frozen(eq=False)
class Pieces:
    """The rows of a batch from a source of files, in pieces that name their files.

    `known`: if each file is a split, the files that are reported with this batch for the first time.
    """

    pieces: Sequence[FromFile]
    known: Sequence[str] = ()


@attrs.frozen(eq=False)
class Announced:
    """The rows of a batch from a source that announces its watermark (us); None leaves the watermark unchanged."""

    rows: AnyFrame | Faulty | Pieces
    watermark: int | None


class Unreadable(Exception):
    """The error that collecting a piece of a file raises if its bytes are damaged. `faulty` has dead letters for the
    loss.

    Within the context manager `left_out()`, the piece has no rows, so that the other pieces of its chunk can be
    collected.
    """

    def __init__(self, faulty: Faulty, left_out: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__(faulty.dead_letters["error"][0])
        self.faulty = faulty
        self.left_out = left_out


@attrs.frozen
class Part:
    """The identity of a piece of output: query (or run), batch and task. Writing the same part again replaces it.

    `sink` is the name of the step that writes. Some sinks show it.
    """

    query: str
    batch: int
    task: int = 0
    sink: str = ""


@runtime_checkable
class WrittenInFrames(Protocol):
    """A sink that writes frames with the columns of `output_frame` itself, in process and on Spark.

    `path`, if present, is the directory that only this sink writes to. If the attribute `distributed` is true, each
    Spark task writes its part of a batch; otherwise, or without the attribute, the driver writes the whole batch. The
    protocols in `beamlike.io.sinks` define optional capabilities.
    """

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes the part, or replaces it."""


@runtime_checkable
class WrittenBySpark(Protocol):
    """A sink that Spark writes. If it has no `write`, it can be used only on Spark."""

    def write_by_spark(self, rows: Any, part: Part) -> None:
        """Writes the part; `rows` is a Spark DataFrame with the columns of `output_frame`. Called on the driver."""


Sink: TypeAlias = WrittenInFrames | WrittenBySpark
"""A sink for the rows of a collection."""


def output_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns a collection's frame as sinks receive it: times are Datetime(us, UTC), system columns have plain names.

    Columns: window_start, window_end (if there are windows); the user's; event_time; pane_timing, pane_index (if there
    are panes), pane_retracted (if panes may be retracted). If a user's column has the name of a system column, the
    user's column is kept. A time that a Python datetime cannot hold, such as the limits of the global window, is null.
    """
    return frame.select(_output(frame.schema))


def output_schema(schema: Mapping[str, pl.DataType]) -> pl.Schema:
    """Returns the schema of `output_frame` for frames with this schema."""
    return output_frame(pl.DataFrame(schema=schema)).schema


def _output(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    # A user's column hides the system column with the same plain name.
    users = [name for name in schema if not name.startswith(RESERVED_PREFIX)]

    def shown(system: Iterable[str]) -> list[pl.Expr]:
        names = {name: name.removeprefix(RESERVED_PREFIX) for name in system if name in schema}
        return [
            (_moment(name) if name in _MOMENTS else pl.col(name)).alias(plain)
            for name, plain in names.items()
            if plain not in users
        ]

    return [*shown(_BEFORE), *(pl.col(name) for name in users), *shown(_AFTER)]


def _moment(column: str) -> pl.Expr:
    time = pl.col(column)
    return pl.when(time.is_between(FIRST_MOMENT, LAST_MOMENT)).then(time).cast(_MOMENT)
