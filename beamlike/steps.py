"""Stateless steps between sources, stages and sinks: frozen declarations that rewrite lazy frames.

The system columns (event time, window, pane) travel through every step beside the user's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, repeat
from typing import Any, ClassVar

import attrs
import narwhals as nw
import polars as pl
import polars.selectors as cs

from beamlike.describe import describe, function_name
from beamlike.dtypes import type_name
from beamlike.errors import StepError, listed, nearest
from beamlike.trees import columns_read, expression_text
from windowing.columns import EVENT_TIME, PANE_RETRACTED, SYSTEM_COLUMNS, WINDOW_COLUMNS
from windowing.custom import CustomWindows
from windowing.strategy import Windowing

Row = dict[str, Any]


def _texts(expressions: tuple[nw.Expr, ...]) -> tuple[str, ...]:
    """Expressions compare as their text: their own == makes a new expression."""
    return tuple(map(expression_text, expressions))


def _wanted(
    columns: tuple[nw.Expr, ...], gives: tuple[tuple[str, ...], ...], wanted: frozenset[str]
) -> tuple[tuple[nw.Expr, ...], tuple[tuple[str, ...], ...]]:
    """The expressions, and the names that they give, of which some name is wanted."""
    kept = [(column, names) for column, names in zip(columns, gives, strict=True) if wanted & {*names}]
    return tuple(column for column, _ in kept), tuple(names for _, names in kept)


def _read(columns: tuple[nw.Expr, ...]) -> frozenset[str]:
    return frozenset(chain.from_iterable(map(columns_read, columns)))


@attrs.frozen
class Step:
    """A rewrite of rows that needs no state. `name` is unique in the pipeline.

    Law: applying a step to parts of a frame and putting the results together gives what applying it to the
    whole gives, so how the input was cut into chunks does not show.
    """

    name: str

    kind: ClassVar[str]

    @property
    def python(self) -> bool:
        """Whether the rows must be at hand, as for a function of the user's."""
        return False

    @property
    def skew(self) -> int:
        """By how many microseconds it may set event times back."""
        return 0

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rewritten frame; the system columns of `frame` are kept."""
        raise NotImplementedError

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The columns of its input from which it makes the columns `wanted` of its output."""
        raise NotImplementedError

    def narrowed(self, wanted: frozenset[str]) -> Step:
        """The step without what is not needed to make `wanted`; it runs on frames of only `needs(wanted)`."""
        return self

    def detail(self) -> str:
        """What it does, in a few words: the expressions, the windows, the function's name."""
        raise NotImplementedError


@attrs.frozen
class Relational(Step):
    """A step of expressions: any engine that narwhals knows can run it."""

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The rewritten narwhals frame."""
        raise NotImplementedError

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Lazy, so that what it leaves out is not even read."""
        native: pl.LazyFrame = self.rewrite(nw.from_native(frame)).to_native()
        return native


@attrs.frozen
class Filter(Relational):
    """Keeps the rows for which all predicates are true; null is not."""

    kind: ClassVar[str] = "filter"
    predicates: tuple[nw.Expr, ...] = attrs.field(eq=_texts)

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The rows that pass."""
        return frame.filter(*self.predicates)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Those, and what the predicates read."""
        return wanted.union(*map(columns_read, self.predicates))

    def detail(self) -> str:
        """The expressions."""
        return ", ".join(map(expression_text, self.predicates))


@attrs.frozen
class Select(Relational):
    """Gives the columns of these expressions, named as in `gives`, and the system columns `kept`."""

    kind: ClassVar[str] = "select"
    columns: tuple[nw.Expr, ...] = attrs.field(eq=_texts)
    gives: tuple[tuple[str, ...], ...]
    kept: tuple[str, ...]

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The chosen columns, then the system columns."""
        return frame.select(*self.columns, *self.kept)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """What the wanted expressions read."""
        return wanted.intersection(self.kept) | _read(self.narrowed(wanted).columns)

    def narrowed(self, wanted: frozenset[str]) -> Select:
        """The wanted expressions and system columns."""
        columns, gives = _wanted(self.columns, self.gives, wanted)
        kept = tuple(column for column in self.kept if column in wanted)
        return attrs.evolve(self, columns=columns, gives=gives, kept=kept)

    def detail(self) -> str:
        """The expressions."""
        return ", ".join(map(expression_text, self.columns))


@attrs.frozen
class WithColumns(Relational):
    """Adds or replaces the columns of these expressions, named as in `gives`."""

    kind: ClassVar[str] = "with_columns"
    columns: tuple[nw.Expr, ...] = attrs.field(eq=_texts)
    gives: tuple[tuple[str, ...], ...]

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """All columns, with these."""
        return frame.with_columns(*self.columns) if self.columns else frame

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """What the wanted expressions read, and the columns that are not replaced."""
        return wanted.difference(*self.gives) | _read(self.narrowed(wanted).columns)

    def narrowed(self, wanted: frozenset[str]) -> WithColumns:
        """The wanted expressions."""
        columns, gives = _wanted(self.columns, self.gives, wanted)
        return attrs.evolve(self, columns=columns, gives=gives)

    def detail(self) -> str:
        """The expressions."""
        return ", ".join(map(expression_text, self.columns))


@attrs.frozen
class WindowInto(Step):
    """Gives each element its windows: an element in several of them becomes several rows."""

    kind: ClassVar[str] = "window_into"
    windowing: Windowing

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The frame with window start and end; windows that it had are replaced."""
        return self.windowing.windows.assign(frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The event time, from which windows follow, and what windows of the user's own read."""
        return wanted.difference(WINDOW_COLUMNS) | {EVENT_TIME, *self.windowing.windows.columns}

    @property
    def python(self) -> bool:
        """Where the windows are the user's own."""
        return isinstance(self.windowing.windows, CustomWindows)

    def detail(self) -> str:
        """The windows."""
        return describe(self.windowing.windows)


@attrs.frozen
class NotRetracted(Step):
    """Says of rows that meet such as may be taken back that they never are."""

    kind: ClassVar[str] = "flatten"

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The frame with a flag that is false."""
        return frame.with_columns(pl.lit(False).alias(PANE_RETRACTED))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """All but the flag."""
        return wanted - {PANE_RETRACTED}

    def detail(self) -> str:
        """What is the same in all rows."""
        return "pane_retracted() = False"


@attrs.frozen
class PythonStep(Step):
    """A step that calls `fn` with rows of the columns `reads`, and gives rows of `schema`."""

    fn: Callable[..., Any]
    reads: tuple[str, ...]
    schema: pl.Schema

    @property
    def python(self) -> bool:
        """Always."""
        return True

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows come into memory here, once."""
        rows = frame.select(*self.reads, cs.by_name(*SYSTEM_COLUMNS, require_all=False)).collect()
        return self.call(rows.select(self.reads), rows.drop(self.reads)).lazy()

    def call(self, rows: pl.DataFrame, system: pl.DataFrame) -> pl.DataFrame:
        """The results beside the system columns of the rows that they came from."""
        raise NotImplementedError

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """All that the function is given."""
        return wanted.intersection(SYSTEM_COLUMNS).union(self.reads)

    def detail(self) -> str:
        """The function's name."""
        return function_name(self.fn)

    def _run(self, argument: Any) -> Any:
        try:
            return self.fn(argument)
        except Exception as error:
            error.add_note(f"in the function of step {self.name!r} ({self.kind})")
            raise

    def _frame(self, results: list[Row]) -> pl.DataFrame:
        """Results as columns of exactly the declared names and types."""
        for result in results:
            if not isinstance(result, Mapping) or result.keys() != self.schema.keys():
                raise StepError(self.name, _misfit(result, self.schema))
        return pl.DataFrame([self._column(name, dtype, results) for name, dtype in self.schema.items()])

    def _column(self, name: str, dtype: pl.DataType, results: list[Row]) -> pl.Series:
        try:
            return pl.Series(name, [result[name] for result in results], dtype=dtype, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            reason = str(error).partition("\n")[0]
            raise StepError(
                self.name, f"column {name!r} was declared {type_name(dtype)}: {reason}"
            ) from error


@attrs.frozen
class Map(PythonStep):
    """One dict for each row, from a dict for each row."""

    kind: ClassVar[str] = "map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame) -> pl.DataFrame:
        """Row by row."""
        return self._frame([self._run(row) for row in rows.iter_rows(named=True)]).hstack(system)


@attrs.frozen
class FlatMap(PythonStep):
    """Any number of dicts for each row; each keeps the event time and the window of its row."""

    kind: ClassVar[str] = "flat_map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame) -> pl.DataFrame:
        """Row by row; the system columns of a row are repeated for each of its results."""
        results = [self._several(row) for row in rows.iter_rows(named=True)]
        origins = chain.from_iterable(repeat(index, len(part)) for index, part in enumerate(results))
        repeated = system[pl.Series(list(origins), dtype=pl.UInt32)]
        return self._frame(list(chain.from_iterable(results))).hstack(repeated)

    def _several(self, row: Row) -> list[Row]:
        results = self._run(row)
        if isinstance(results, Mapping | str) or not isinstance(results, Iterable):
            hint = "; for one dict per row use map" if isinstance(results, Mapping) else ""
            raise StepError(
                self.name, f"flat_map expects several dicts for a row, such as a list{hint}; got {results!r}"
            )
        try:
            return list(results)
        except Exception as error:  # A generator runs only now.
            error.add_note(f"in the function of step {self.name!r} ({self.kind})")
            raise


@attrs.frozen
class MapBatches(PythonStep):
    """An Arrow table for an Arrow table of the same length: row i of one belongs to row i of the other."""

    kind: ClassVar[str] = "map_batches"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame) -> pl.DataFrame:
        """The whole chunk at once; the system columns stay outside of the user's table."""
        result = self.table(rows)
        missing = [name for name in self.schema if name not in result.columns]
        extra = [name for name in result.columns if name not in self.schema]
        if missing or extra:
            raise StepError(
                self.name,
                f"map_batches gave the columns {listed(result.columns)}, expected {listed(self.schema)}",
            )
        return result.select(self._fitted(result[name], dtype) for name, dtype in self.schema.items()).hstack(
            system
        )

    def table(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What the function gives for these rows; `StepError` if it is no table of the same length."""
        import pyarrow as pa

        table = self._run(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise StepError(self.name, f"map_batches expects a pyarrow Table, got {type(table).__name__}")
        result = pl.DataFrame(table)
        if result.height != rows.height:
            raise StepError(
                self.name,
                f"map_batches gave {result.height} rows for {rows.height}, so it cannot be said which "
                "event time they have; give one row for each, or use flat_map, or filter before",
            )
        return result

    def _fitted(self, column: pl.Series, dtype: pl.DataType) -> pl.Series:
        if column.dtype == dtype:
            return column
        if not _fits(column.dtype, dtype):
            raise StepError(
                self.name,
                f"map_batches gave column {column.name!r} as {type_name(column.dtype)}, "
                f"expected {type_name(dtype)}; cast it in the function, or declare it with schema=",
            )
        return column.cast(dtype)


def _fits(given: pl.DataType, declared: pl.DataType) -> bool:
    """Whether a cast keeps every value, up to the unit of a time."""
    if isinstance(given, pl.Datetime) and isinstance(declared, pl.Datetime):
        return given.time_zone == declared.time_zone
    if declared == pl.String:
        return given in (pl.Null, pl.Categorical, pl.Enum)
    try:
        both = [pl.Series(dtype=given).to_frame(""), pl.Series(dtype=declared).to_frame("")]
        return pl.concat(both, how="vertical_relaxed").schema[""] == declared
    except pl.exceptions.PolarsError:
        return False


def _misfit(result: object, schema: pl.Schema) -> str:
    """What is wrong with a result that should have been a dict with these keys."""
    expected = f"expected a dict with the keys {listed(schema)}"
    if not isinstance(result, Mapping):
        return f"{expected}, got {result!r}"
    missing = [name for name in schema if name not in result]
    if missing:
        return f"{expected}; the key {missing[0]!r} is missing{nearest(missing[0], map(str, result))}"
    extra = next(name for name in result if name not in schema)
    return f"{expected}; the key {extra!r} is not declared, add it to schema={nearest(extra, schema)}"
