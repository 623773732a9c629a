"""Rows in memory as a source and as a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import PlanError, listed
from beamlike.io.base import Part, declared
from beamlike.io.sources import PlannedBatch, Position
from beamlike.rows.annotations import class_schema
from beamlike.rows.dtypes import SchemaLike, type_name
from beamlike.rows.exact import lost
from beamlike.rows.given import given_column, plain_values
from beamlike.rows.objects import row_as_dict
from beamlike.rows.row_classes import is_row_class
from beamlike.system.datasets import Dataset
from beamlike.system.fields import true_or_false, whole_number
from stages.process.columns import MISFITS
from windowing.python_rows import BEYOND, beyond_python
from windowing.python_values import dicts_of

_ROW: Final = "row"


class ArrowStream(Protocol):
    """A table of any library that can be exported to Arrow, such as `pyarrow.RecordBatchReader`."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


if TYPE_CHECKING:
    import pandas
    import pyarrow

    Tabular: TypeAlias = (
        Sequence[Any] | pl.DataFrame | pl.LazyFrame | pandas.DataFrame | pyarrow.Table | ArrowStream
    )


@attrs.frozen(eq=False, init=False)
class Rows:
    """Rows that the program provides, in order of arrival.

    Args:
        rows: A list of dicts, or of objects of a class such as a dataclass; or a frame of polars, pandas, Arrow or
            another library with `__arrow_c_stream__`, which is read at once.
        schema: Column names and types, or a class. By default they are inferred from the rows, or are those of their
            class.
        rows_per_batch: The number of rows in a batch. By default the runner chooses.
        complete: True if the watermark goes to the end of time when all rows are read, while other sources go on. A run
            without a checkpoint ends all its sources together by default, and one with a checkpoint ends none.

    Raises:
        TypeError: The rows do not fit the schema, or are of no supported kind.

    Example:
        >>> rows = bl.Rows([{"user": "ada", "points": 3}], schema={"user": str, "points": float})
        >>> bl.Pipeline("p").read("plays", rows)
        <Collection 'plays': user String, points Float64>
    """

    frame: pl.DataFrame = attrs.field(repr=lambda frame: f"<{frame.height} rows>")
    rows_per_batch: int | None = attrs.field(default=None, validator=whole_number(1))
    complete: bool = attrs.field(default=False, validator=true_or_false)

    bounded = True

    def __init__(
        self,
        rows: Tabular,
        schema: SchemaLike | None = None,
        rows_per_batch: int | None = None,
        *,
        complete: bool = False,
    ) -> None:
        columns = declared(schema)
        frame = _frame(rows, None if columns is None else pl.Schema(columns))
        self.__attrs_init__(frame, rows_per_batch, complete)

    def schema(self) -> pl.Schema:
        return self.frame.schema

    def datasets(self) -> list[Dataset]:
        return []

    def all_rows(self) -> pl.DataFrame:
        return self.frame

    def chunks(self, rows: int) -> Iterator[pl.DataFrame]:
        """Yields pieces of `rows_per_batch` rows, or else of `rows` rows."""
        for piece in self.frame.iter_slices(self.rows_per_batch or rows):
            if piece.height:
                yield piece

    def resume(self, position: Position, rows: int) -> RowsReader:
        return RowsReader(self, position.get(_ROW, 0), rows)


@attrs.define
class RowsReader:
    """A reader of rows in memory from a row number on."""

    source: Rows
    row: int
    rows: int

    def new(self) -> PlannedBatch | None:
        total = self.source.frame.height
        if self.row >= total:
            return None
        end = min(self.row + (self.source.rows_per_batch or self.rows), total)
        return PlannedBatch([self.row, end], {_ROW: end}, end < total)

    def read(self, batch: PlannedBatch) -> pl.DataFrame:
        first, self.row = batch.input
        return self.source.frame[first : self.row]

    def close(self) -> None:
        """Does nothing, as nothing is open."""


def _frame(rows: Tabular, schema: pl.Schema | None) -> pl.DataFrame:
    """Converts rows to polars. Raises `TypeError` if they are of no supported kind or do not fit the schema."""
    try:
        if isinstance(rows, list | tuple):
            return _from_dicts([_as_dict(row, rows[0], schema) for row in rows], schema or _class_of(rows))
        frame = _from_frame(rows)
        if schema is None:
            return frame
        return pl.DataFrame([_cast(frame[name], dtype) for name, dtype in schema.items()])
    except MISFITS as error:
        expected = "dicts, objects of a class, or a polars, pandas or Arrow frame, that fit its schema"
        raise TypeError(f"Rows accepts {expected}: {error}") from error


def _from_frame(rows: Any) -> pl.DataFrame:
    # narwhals recognizes pandas and Arrow without importing them.
    frame: Any = nw.from_native(rows, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect("polars")
    if isinstance(frame, nw.DataFrame):
        return frame.to_polars()
    # A column can be exported to Arrow, too, but has no names of columns.
    if isinstance(rows, pl.Series) or not hasattr(rows, "__arrow_c_stream__"):
        raise TypeError(f"{rows!r} is none of them")
    return pl.DataFrame(rows)


def _as_dict(row: Any, first: Any, schema: pl.Schema | None) -> dict[str, Any]:
    found = row_as_dict(row)
    if found is None:
        raise TypeError(f"{row!r} is neither a dict nor an object of a class such as a dataclass")
    if schema is None and is_row_class(type(first)) and type(row) is not type(first):
        raise TypeError(f"{row!r} is of another class than {first!r}; give schema=")
    return found


def _class_of(rows: Sequence[Any]) -> pl.Schema | None:
    """Returns the columns of the class of the rows; None for dicts."""
    kind = type(rows[0]) if rows else dict
    return pl.Schema(class_schema(kind)) if is_row_class(kind) else None


def _from_dicts(rows: list[dict[str, Any]], schema: pl.Schema | None) -> pl.DataFrame:
    if schema is None:
        if not rows:
            raise ValueError("there are no rows to infer the columns from; give schema=")
        found = pl.from_dicts(rows, infer_schema_length=None)
        has_objects = pl.Object in found.dtypes
        return pl.from_dicts(plain_values(rows), infer_schema_length=None) if has_objects else found
    if rows and not any(name in row for row in rows for name in schema):
        raise TypeError(
            f"the rows have the columns {listed(rows[0])}, and none of the schema's, {listed(schema)}"
        )
    return pl.DataFrame(
        [given_column(name, [row.get(name) for row in rows], schema[name]) for name in schema]
    )


def _cast(values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Casts a column. Raises `TypeError` for a value that the type would change, such as a number with a fraction."""
    cast = values.cast(dtype)
    changed = lost(values, cast)
    if changed.any():
        raise TypeError(f"{values.name!r} is {type_name(dtype)}, and has {values.filter(changed)[0]!r}")
    return cast


@attrs.frozen(eq=False)
class Memory:
    """A sink that collects all rows of a run in the memory of this process, for tests and notebooks.

    A notebook shows the rows. `frame()` returns them as a polars frame, `rows()` as dicts, and libraries that read
    Arrow read the sink itself, as in `pyarrow.table(out)`. A new run removes the rows of earlier runs, so each of two
    concurrent runs needs a sink of its own. A pickled copy is empty.

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

    def datasets(self) -> list[Dataset]:
        return []

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
        # An empty part also replaces the rows of an earlier attempt.
        self._columns.update(frame.schema)
        if frame.is_empty():
            self._parts.pop(part, None)
        else:
            self._parts[part] = frame

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        self._parts.pop(part, None)

    @property
    def has_run(self) -> bool:
        """True once a run has written rows, or none."""
        return bool(self._columns)

    def frame(self) -> pl.DataFrame:
        """Returns all rows, in order of query, batch and task."""
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
        return list(dicts_of(frame))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.frame().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()


def memory_of(sinks: Mapping[str, Any], what: str) -> Memory:
    """Returns the only sink in memory that a run has written, for `what`. Raises `PlanError` if there is none."""
    found = {name: sink for name, sink in sinks.items() if isinstance(sink, Memory)}
    if len(found) > 1:
        raise PlanError(f"{what} has several sinks in memory, {listed(found)}; read one of these")
    sink = next(iter(found.values()), None)
    if sink is None:
        raise PlanError(f"{what} has no rows in memory: before a run, write it to a bl.Memory()")
    if not sink.has_run:
        raise PlanError(f"{what} has no rows yet: run the pipeline first")
    return sink
