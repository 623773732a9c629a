"""Steps that call a user's function, by row or by batch, and the dead letters of rows that it cannot use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, repeat
from typing import Any, ClassVar, Final

import attrs
import polars as pl
import polars.selectors as cs

from beamlike.errors import StepError, listed
from beamlike.expressions.describe import function_name
from beamlike.rows.dead_letters import Attempt, dead_letters, error_text
from beamlike.rows.dtypes import type_name
from beamlike.steps.base import Row, Step
from beamlike.steps.python_results import as_columns
from beamlike.system.activity import activity
from windowing.columns import SYSTEM_COLUMNS
from windowing.python_rows import BEYOND, each, python_has

_LOST: Final = object()
"""The result of a row for which the function raised an error."""


@attrs.define
class Failures:
    """The errors of rows without a result, by row number. If `strict`, the first error is raised."""

    step: Step
    strict: bool
    errors: dict[int, str] = attrs.field(factory=dict)

    def add(self, row: int, error: Exception) -> None:
        """Records an error that the function raised for a row."""
        if self.strict or isinstance(error, MemoryError):
            error.add_note(f"in the function of step {self.step.name!r} ({self.step.kind})")
            raise error
        self.errors[row] = error_text(error)

    def misfits(self, wrong: Mapping[int, str]) -> None:
        """Records reasons why the function's results for these rows do not fit."""
        if self.strict and wrong:
            raise StepError(self.step.name, wrong[min(wrong)])
        self.errors.update(wrong)

    def dead_letters(self, rows: pl.DataFrame) -> pl.DataFrame | None:
        """The failed rows as dead letters, or None."""
        if not self.errors:
            return None
        failed = sorted(self.errors)
        return dead_letters(self.step.name, rows[failed], [self.errors[row] for row in failed])


@attrs.frozen
class PythonStep(Step):
    """A step that calls `fn` with rows of the columns `reads`, and emits rows of `schema`."""

    fn: Callable[..., Any]
    reads: tuple[str, ...]
    schema: pl.Schema

    inferred: ClassVar[tuple[str, ...]] = ("reads", "schema")

    by_row: ClassVar[bool] = True
    """True if the function receives Python values."""

    @property
    def python(self) -> bool:
        return True

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Loads the rows into memory, once. An error of the function is raised with a note of the step."""
        return self._called(frame, Failures(self, strict=True)).rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        return self._called(frame, Failures(self, strict=False))

    def _called(self, frame: pl.LazyFrame, failures: Failures) -> Attempt:
        given = frame.select(*self.reads, cs.by_name(*SYSTEM_COLUMNS, require_all=False)).collect()
        count = len(given)
        # Some values have no Python equivalent, such as times after the year 9999: their rows are dead letters.
        fits = python_has(given.select(self.reads)) if self.by_row else None
        beyond = given.clear() if fits is None else given.filter(~fits)
        given = given if fits is None else given.filter(fits)
        if failures.strict and len(beyond):
            raise StepError(self.name, BEYOND)
        rows = given.select(self.reads)
        with activity("step", self.name):
            result = self.call(rows, given.drop(self.reads), failures).lazy()
        if beyond.is_empty():
            return Attempt(result, failures.dead_letters(rows), count)
        lost = dead_letters(self.name, beyond.select(self.reads), [BEYOND] * len(beyond))
        letters = failures.dead_letters(rows)
        return Attempt(result, lost if letters is None else pl.concat([lost, letters]), count)

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """The function's results beside the system columns of their rows; failed rows are added to `failures`."""
        raise NotImplementedError

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(SYSTEM_COLUMNS).union(self.reads)

    def detail(self) -> str:
        return function_name(self.fn)


def _each(fn: Callable[[Row], Any], rows: pl.DataFrame, failures: Failures) -> list[Any]:
    """The function's result for each row, in order; _LOST if it raised an error."""
    return each(fn, rows.iter_rows(named=True), rows.height, failures.add, _LOST)


@attrs.frozen
class Map(PythonStep):
    """Calls a function for the dict of each row, which returns a dict."""

    kind: ClassVar[str] = "map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        results = _each(self.fn, rows, failures)
        raised = frozenset(failures.errors)
        frame, wrong = as_columns(results, self.schema)
        failures.misfits({row: why for row, why in wrong.items() if row not in raised})
        frame = frame.hstack(system)
        return without(frame, failures.errors) if failures.errors else frame


@attrs.frozen
class FlatMap(PythonStep):
    """Calls a function for the dict of each row, which returns dicts; each has the row's event time and window."""

    kind: ClassVar[str] = "flat_map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Calls the function row by row, and repeats the system columns of a row for each of its results.

        A failed row has no results: neither earlier ones nor those that would fit.
        """
        parts = [() if part is _LOST else part for part in _each(self._several, rows, failures)]
        origins = list(chain.from_iterable(repeat(row, len(part)) for row, part in enumerate(parts)))
        frame, wrong = as_columns(list(chain.from_iterable(parts)), self.schema)
        # A result is numbered within the chunk, a dead letter by the row that the result is from.
        first: dict[int, str] = {}
        for index, why in sorted(wrong.items()):
            first.setdefault(origins[index], why)
        failures.misfits(first)
        frame = frame.hstack(system[pl.Series(origins, dtype=pl.UInt32)])
        lost = [index for index, row in enumerate(origins) if row in first] if first else ()
        return without(frame, lost) if lost else frame

    def _several(self, row: Row) -> list[Row]:
        results = self.fn(row)
        if isinstance(results, Mapping | str) or not isinstance(results, Iterable):
            hint = "; for one dict per row use map" if isinstance(results, Mapping) else ""
            raise StepError(
                self.name, f"flat_map expects several dicts for a row, such as a list{hint}; got {results!r}"
            )
        return list(results)  # what a generator raises, it raises here


def without(frame: pl.DataFrame, lost: Iterable[int]) -> pl.DataFrame:
    """The frame without the rows of these numbers."""
    kept = pl.repeat(True, frame.height, eager=True).scatter(list(lost), False)
    return frame.filter(kept)


@attrs.frozen
class MapBatches(PythonStep):
    """Calls a function for a frame, which returns a frame of the same length: row i belongs to row i."""

    kind: ClassVar[str] = "map_batches"
    by_row: ClassVar[bool] = False

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Calls the function for the whole chunk, without the system columns. If it fails, all rows fail."""
        try:
            return self.fitted(self.table(rows)).hstack(system)
        except Exception as error:
            if failures.strict or isinstance(error, MemoryError):
                raise
            why = f"{error_text(error)}; the batch of {rows.height} rows in which this row was failed as a whole"
            # The error names no row, so each of them may be at fault.
            failures.misfits(dict.fromkeys(range(rows.height), why))
            return pl.DataFrame(schema=self.schema).hstack(system.clear())

    def table(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The function's result for these rows. Raises `StepError` unless it is a frame of the same length."""
        try:
            table = self.fn(rows)
        except Exception as error:
            error.add_note(f"in the function of step {self.name!r} ({self.kind})")
            raise
        return self.required(table, rows.height)

    def required(self, table: Any, height: int) -> pl.DataFrame:
        """The function's result, also an Arrow table, as a polars frame of this length."""
        if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
            raise StepError(self.name, f"map_batches expects a polars DataFrame, got {type(table).__name__}")
        result = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
        if result.height != height:
            raise StepError(
                self.name,
                f"map_batches gave {result.height} rows for {height}, so it cannot be said which "
                "event time they have; give one row for each, or use flat_map, or filter before",
            )
        return result

    def fitted(self, result: pl.DataFrame) -> pl.DataFrame:
        """The declared columns of the function's result. Raises `StepError` for other columns."""
        if set(result.columns) != set(self.schema):
            raise StepError(
                self.name,
                f"map_batches gave the columns {listed(result.columns)}, expected {listed(self.schema)}",
            )
        return result.select(self._cast(result[name], dtype) for name, dtype in self.schema.items())

    def _cast(self, column: pl.Series, dtype: pl.DataType) -> pl.Series:
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
    """True if a cast keeps every value, up to the unit of a time."""
    if isinstance(given, pl.Datetime) and isinstance(declared, pl.Datetime):
        return given.time_zone == declared.time_zone
    if declared == pl.String:
        return given in (pl.Null, pl.Categorical, pl.Enum)
    try:
        both = [pl.Series(dtype=given).to_frame(""), pl.Series(dtype=declared).to_frame("")]
        return pl.concat(both, how="vertical_relaxed").schema[""] == declared
    except pl.exceptions.PolarsError:
        return False
