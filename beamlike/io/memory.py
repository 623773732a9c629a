"""Rows in memory, as a source and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import attrs
import narwhals as nw
import polars as pl

from beamlike.io.base import Part, declared
from beamlike.io.sources import PlannedBatch, Position
from beamlike.rows.dtypes import SchemaLike
from beamlike.system.fields import whole_number
from windowing.python_rows import BEYOND, beyond_python

_ROW: Final = "row"

if TYPE_CHECKING:
    import pandas
    import pyarrow

    Tabular: TypeAlias = Sequence[Mapping[str, Any]] | pl.DataFrame | pandas.DataFrame | pyarrow.Table


@attrs.frozen(eq=False, init=False)
class Rows:
    """Rows given in the program, in order of arrival.

    Args:
        rows: Dicts, or a polars, pandas or Arrow frame.
        schema: Column names and types. By default they are inferred from the rows.
        rows_per_batch: The number of rows in a batch. By default the runner chooses.

    Raises:
        TypeError: The rows do not fit the schema, or are of no supported kind.

    Example:
        >>> rows = bl.Rows([{"user": "ada", "points": 3}], schema={"user": str, "points": float})
        >>> bl.Pipeline("p").read("plays", rows)
        <Collection 'plays': user String, points Float64>
    """

    frame: pl.DataFrame = attrs.field(repr=lambda frame: f"<{frame.height} rows>")
    rows_per_batch: int | None = attrs.field(default=None, validator=whole_number(1))

    bounded: ClassVar[bool] = True

    def __init__(
        self, rows: Tabular, schema: SchemaLike | None = None, rows_per_batch: int | None = None
    ) -> None:
        columns = declared(schema)
        frame = _frame(rows, None if columns is None else pl.Schema(columns))
        self.__attrs_init__(frame, rows_per_batch)

    def schema(self) -> pl.Schema:
        return self.frame.schema

    def all_rows(self) -> pl.DataFrame:
        return self.frame

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Yields pieces of `rows_per_batch` rows, else of `rows`."""
        for piece in self.frame.iter_slices(self.rows_per_batch or rows):
            if piece.height:
                yield piece.lazy()

    def resume(self, position: Position, rows: int) -> RowsReader:
        return RowsReader(self, position.get(_ROW, 0), rows)


@attrs.define
class RowsReader:
    """Reads rows on from a row number."""

    source: Rows
    row: int
    rows: int

    def new(self) -> PlannedBatch | None:
        total = self.source.frame.height
        if self.row >= total:
            return None
        end = min(self.row + (self.source.rows_per_batch or self.rows), total)
        return PlannedBatch([self.row, end], {_ROW: end}, end < total)

    def read(self, taken: PlannedBatch) -> pl.LazyFrame:
        first, self.row = taken.input
        return self.source.frame[first : self.row].lazy()

    def close(self) -> None:
        """Closes nothing."""


def _frame(rows: Tabular, schema: pl.Schema | None) -> pl.DataFrame:
    """Converts rows to polars. Raises `TypeError` if they are of no supported kind or do not fit the schema."""
    try:
        if isinstance(rows, list | tuple):
            return _from_dicts(rows, schema)
        native: Any = rows
        frame: pl.DataFrame = nw.from_native(native, eager_only=True).to_polars()
        if schema is None:
            return frame
        return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        expected = "dicts, or a polars, pandas or Arrow frame, that fit its schema"
        raise TypeError(f"Rows takes {expected}: {error}") from error


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pl.Schema | None) -> pl.DataFrame:
    wrong = next((row for row in rows if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise TypeError(f"{wrong!r} is no dict")
    if not rows and schema is None:
        raise ValueError("there are no rows to see the columns from; give schema=")
    for name, dtype in (schema or {}).items():
        if dtype.is_integer():
            _require_whole(name, [row.get(name) for row in rows], dtype)
    return pl.from_dicts([dict(row) for row in rows], schema=schema, infer_schema_length=None)


def _require_whole(name: str, values: list[Any], dtype: pl.DataType) -> None:
    """Raises `TypeError` for a number with a fraction, which polars would cut off."""
    wrong = next((value for value in values if isinstance(value, float | Decimal) and value % 1 != 0), None)
    if wrong is not None:
        raise TypeError(f"{name!r} is {dtype}, and has {wrong!r}")


@attrs.frozen(eq=False)
class Memory:
    """A sink that collects all rows of a run in the memory of this process, for tests and notebooks.

    `frame()` returns the rows as a polars frame, `rows()` as dicts. A run that begins from nothing removes the rows of
    earlier runs, so two runs at the same time need a sink each. A pickled copy is empty.

    Example, with the `plays` of `bl.Collection`:
        >>> out = bl.Memory()
        >>> plays.select("user").write("out", out)
        <Collection 'plays.select': user String>
        >>> p.run()
        <LocalRun of 'scores': 4 batches>
        >>> [row["user"] for row in out.rows()]
        ['ada', 'bob', 'ada']
    """

    _parts: dict[Part, pl.DataFrame] = attrs.field(factory=dict, init=False, repr=False)
    _columns: dict[str, pl.DataType] = attrs.field(factory=dict, init=False, repr=False)

    remembers: ClassVar[bool] = True

    def start(self, run: str) -> None:
        self._parts.clear()
        self._columns.clear()

    def latest_batch(self, run: str) -> int | None:
        return max((part.batch for part in self._parts if part.query == run), default=None)

    def cut(self, run: str, batch: int) -> str:
        for part in [part for part in self._parts if part.query == run and part.batch > batch]:
            del self._parts[part]
        return ""

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        self._columns.update(frame.schema)
        if frame.is_empty():
            self._parts.pop(part, None)
        else:
            self._parts[part] = frame

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        self._parts.pop(part, None)

    def frame(self) -> pl.DataFrame:
        """Returns all rows, in order of query, batch and task. Without rows, the frame has the columns only."""
        order = sorted(self._parts, key=lambda part: (part.query, part.batch, part.task))
        return pl.concat([pl.DataFrame(schema=self._columns), *(self._parts[part] for part in order)])

    def rows(self) -> list[dict[str, Any]]:
        """Returns all rows as dicts, in the order of `frame()`.

        Raises:
            ValueError: A time is outside the range of Python's datetime; `frame()` can hold it.
        """
        frame = self.frame()
        if (wrong := beyond_python(frame)) is not None:
            raise ValueError(f"column {wrong!r} cannot be in dicts, as {BEYOND}; frame() has it")
        return frame.to_dicts()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()
