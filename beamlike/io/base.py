"""What a source and a sink are, and the frame that a sink gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import attrs
import polars as pl

from beamlike.rows.dtypes import SchemaLike, column_dtype, require_column_name
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
"""A schema as part of a declaration: hashable."""

# A Python datetime shows the years 1 to 9999. The limits of the global window lie far outside.
FIRST_MOMENT: Final = -62_135_596_800_000_000
LAST_MOMENT: Final = 253_402_300_799_999_999
"""In microseconds since 1970."""

_MOMENT: Final = pl.Datetime("us", "UTC")


def declared(schema: SchemaLike | Declared | None) -> Declared | None:
    """The schema that a user gave a source, checked. Raises `TypeError` for what is no schema or no type."""
    if schema is None:
        return None
    columns = dict(schema) if isinstance(schema, tuple) else schema
    if not isinstance(columns, Mapping):
        raise TypeError(f'schema= must be a dict such as {{"user": str}}, not {schema!r}')
    for name in columns:
        require_column_name(name, None)
    return tuple((name, column_dtype(name, dtype)) for name, dtype in columns.items())


_BEFORE: Final = (WINDOW_START, WINDOW_END)
_AFTER: Final = (EVENT_TIME, PANE_TIMING, PANE_INDEX, PANE_RETRACTED)
_MOMENTS: Final = (*_BEFORE, EVENT_TIME)
SHOWN: Final = tuple(name.removeprefix(RESERVED_PREFIX) for name in (*_BEFORE, *_AFTER))
"""The names under which sinks get system columns, before and after the columns of the user."""


@runtime_checkable
class Source(Protocol):
    """Where rows come from. `beamlike.io.sources` has the ways in which one can be read, and what else it can do."""

    @property
    def bounded(self) -> bool:
        """Whether the input has an end."""

    def schema(self) -> pl.Schema:
        """The user's columns."""


@attrs.frozen(eq=False)
class Faulty:
    """A piece of a file that is not rows: what could not be read of it, as dead letters.

    `dead_letters` has the columns `error` (file, column, value and the type expected) and `row` (the row as JSON, or the
    text that is none), both text; each is one row of the source that was read and is no element.
    """

    dead_letters: pl.DataFrame

    @classmethod
    def none(cls) -> Faulty:
        """No letters."""
        return cls(pl.DataFrame(schema={"error": pl.String, "row": pl.String}))


@attrs.frozen(eq=False)
class FromFile:
    """Some of what a source has, and the file that it is from; or the first and the last one, if it is from several.

    `over`: nothing more comes of the file.
    """

    rows: pl.LazyFrame | Faulty
    file: str
    last: str = ""
    over: bool = False

    @property
    def files(self) -> str:
        """Where it is from, in words."""
        return repr(self.file) if self.last in ("", self.file) else f"{self.file!r} to {self.last!r}"


@attrs.frozen(eq=False)
class Pieces:
    """What a batch takes of a source of files, and which of these it has not told of before, where they are splits."""

    pieces: Sequence[FromFile]
    known: Sequence[str] = ()


@attrs.frozen(eq=False)
class Announced:
    """What a batch takes of a source that announces its watermark (us): none, where that stays."""

    rows: pl.LazyFrame | Faulty | Pieces
    watermark: int | None


class Unreadable(Exception):
    """What collecting a piece of a file raises whose bytes are damaged: `faulty` says what is lost with it.

    Within `left_out` the piece has no rows, so that the others of its chunk can be collected.
    """

    def __init__(self, faulty: Faulty, left_out: Callable[[], AbstractContextManager[object]]) -> None:
        super().__init__(faulty.dead_letters["error"][0])
        self.faulty = faulty
        self.left_out = left_out


@attrs.frozen
class Part:
    """One piece of output: of this query (or run), batch and task. Writing it again replaces it.

    `sink` is the name of the step that writes, for titles.
    """

    query: str
    batch: int
    task: int = 0
    sink: str = ""


@runtime_checkable
class WrittenInFrames(Protocol):
    """A sink that writes the frames of `output_frame` itself, in process and on Spark.

    Its `path`, if it has one, is the directory that it alone writes to. With an attribute `distributed` that is true,
    tasks of Spark write their part of a batch each; otherwise the driver writes all of it, and so it does for a sink
    that has no such attribute. `beamlike.io.sinks` has what else a sink can do.
    """

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Writes the part, or replaces it."""


@runtime_checkable
class WrittenBySpark(Protocol):
    """A sink of which Spark knows how to write it. Without `write` it is for pipelines on Spark only."""

    def write_by_spark(self, rows: Any, part: Part) -> None:
        """Writes the part, which is a DataFrame of Spark's with the rows of `output_frame`; called on the driver."""


Sink: TypeAlias = WrittenInFrames | WrittenBySpark
"""Where the rows of a collection go."""


def output_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """A collection's frame as sinks get it: times are Datetime(us, UTC), system columns have plain names.

    Columns: window_start, window_end (if there are windows); the user's; event_time; pane_timing, pane_index
    (if there are panes), pane_retracted (if they may be taken back). A column of the user's keeps its name, and
    the system's of that name is left out. A time that a datetime cannot show, such as the limits of the global
    window, is null.
    """
    return frame.select(_output(frame.schema))


def output_schema(schema: Mapping[str, pl.DataType]) -> pl.Schema:
    """The schema of `output_frame` for frames of this one."""
    return output_frame(pl.DataFrame(schema=schema)).schema


def _output(schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
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
