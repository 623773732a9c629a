"""Steps that call a user's function, per row or per batch, and dead letters for rows for which it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, ClassVar, Final

import attrs
import polars as pl
import polars.selectors as cs

from beamlike.errors import StepError, listed
from beamlike.expressions.describe import function_name
from beamlike.rows.dead_letters import Attempt, dead_letters, error_text, note_row
from beamlike.rows.dtypes import type_name
from beamlike.rows.objects import RowObjects
from beamlike.rows.row_class import RowClass
from beamlike.rows.taken import Taking
from beamlike.steps.base import Step
from beamlike.steps.python_results import as_columns
from beamlike.system.activity import activity
from windowing.columns import SYSTEM_COLUMNS
from windowing.python_rows import each, is_one_row, unusable
from windowing.python_values import dicts_of

_LOST: Final = object()
"""The result for a row for which the function raised an error."""


@attrs.define
class Failures:
    """The errors of rows without a result, by row number. If `strict`, the first error is raised, with a note that has
    its row of `rows`.
    """

    step: Step
    strict: bool
    errors: dict[int, str] = attrs.field(factory=dict)
    rows: pl.DataFrame | None = attrs.field(default=None, init=False)

    def add(self, row: int, error: Exception) -> None:
        """Records an error that the function raised for a row."""
        if self.strict or isinstance(error, MemoryError):
            error.add_note(f"in the function of step {self.step.name!r} ({self.step.kind})")
            raise self._noted(error, row)
        self.errors[row] = error_text(error)

    def misfits(self, wrong: Mapping[int, str]) -> None:
        """Records why the function's results for these rows do not fit the declared columns."""
        if self.strict and wrong:
            raise self._noted(StepError(self.step.name, wrong[min(wrong)]), min(wrong))
        self.errors.update(wrong)

    def _noted(self, error: Exception, row: int) -> Exception:
        return error if self.rows is None else note_row(error, self.rows[row])

    def dead_letters(self, rows: pl.DataFrame) -> pl.DataFrame | None:
        """Returns the failed rows as dead letters; None if no row has failed."""
        if not self.errors:
            return None
        failed = sorted(self.errors)
        return dead_letters(self.step.name, rows[failed], [self.errors[row] for row in failed])


@attrs.frozen
class PythonStep(Step):
    """A step that calls `fn` with rows of the columns `reads`, and emits rows with the columns `schema`."""

    fn: Callable[..., Any]
    reads: tuple[str, ...]
    schema: pl.Schema
    takes: RowObjects | None = attrs.field(default=None, kw_only=True)
    """The objects that `fn` receives; by default dicts."""
    gives: RowClass | None = attrs.field(default=None, kw_only=True)
    """The class of the objects that `fn` may return in place of dicts."""

    inferred: ClassVar[tuple[str, ...]] = ("reads", "schema", "takes", "gives")

    by_row: ClassVar[bool] = True
    """True if the function receives Python values, and not a frame."""

    @property
    def received(self) -> tuple[str, ...]:
        """The columns that the function receives. Dead letters also have the others that are read."""
        return self.reads if self.takes is None else self.takes.columns

    @property
    def python(self) -> bool:
        return True

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Loads the rows into memory. An error of the function is raised with a note that names the step."""
        return self._called(frame, Failures(self, strict=True)).rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        return self._called(frame, Failures(self, strict=False))

    def _called(self, frame: pl.LazyFrame, failures: Failures) -> Attempt:
        given = frame.select(*self.reads, cs.by_name(*SYSTEM_COLUMNS, require_all=False)).collect()
        count = len(given)
        wrong = unusable(given.select(self.reads), self.takes) if self.by_row else {}
        if wrong and failures.strict:
            raise note_row(StepError(self.name, wrong[min(wrong)]), given.select(self.reads)[min(wrong)])
        usable = without(given, wrong) if wrong else given
        rows = failures.rows = usable.select(self.reads)
        with activity("step", self.name):
            result = self.call(rows, usable.drop(self.reads), failures).lazy()
        letters = failures.dead_letters(usable)
        if not wrong:
            return Attempt(result, letters, count)
        lost = given[sorted(wrong)]
        refused = dead_letters(self.name, lost, [wrong[row] for row in sorted(wrong)])
        return Attempt(result, refused if letters is None else pl.concat([refused, letters]), count)

    def values(self, rows: pl.DataFrame) -> Iterator[Any]:
        """Yields the rows as the function receives them: dicts, or objects of its class."""
        return dicts_of(rows) if self.takes is None else self.takes.iterate(rows)

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Returns the function's results next to the system columns of their rows. Failed rows are added to
        `failures`.
        """
        raise NotImplementedError

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(SYSTEM_COLUMNS).union(self.reads)

    def detail(self) -> str:
        return function_name(self.fn)


def _each(fn: Callable[[Any], Any], step: PythonStep, rows: pl.DataFrame, failures: Failures) -> list[Any]:
    """Returns the function's result for each row, in order; _LOST if it raised an error."""
    return each(fn, step.values(rows), rows.height, failures.add, _LOST)


@attrs.frozen
class Map(PythonStep):
    """A step that calls a function with the dict of each row. The function returns a dict."""

    kind: ClassVar[str] = "map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        fn, take = self.fn, Taking(self.schema, self.gives)()
        results = _each(lambda row: take(fn(row)), self, rows, failures)
        raised = frozenset(failures.errors)
        frame, wrong = as_columns(results, self.schema, self.gives)
        failures.misfits({row: why for row, why in wrong.items() if row not in raised})
        frame = frame.hstack(system)
        return without(frame, failures.errors) if failures.errors else frame


@attrs.frozen
class FlatMap(PythonStep):
    """A step that calls a function with the dict of each row. The function returns dicts, which keep the row's event
    time and window.
    """

    kind: ClassVar[str] = "flat_map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Calls the function row by row, and repeats the system columns of a row for each of its results.

        If one result of a row does not fit, or the function fails, none of the row's results is emitted.
        """
        take = Taking(self.schema, self.gives)()
        found = _each(lambda row: self._several(row, take), self, rows, failures)
        parts = [() if part is _LOST else part for part in found]
        origins = list(chain.from_iterable(repeat(row, len(part)) for row, part in enumerate(parts)))
        frame, wrong = as_columns(list(chain.from_iterable(parts)), self.schema, self.gives)
        # A misfit has the number of the result, but a dead letter needs the number of the row.
        first: dict[int, str] = {}
        for index, why in sorted(wrong.items()):
            first.setdefault(origins[index], why)
        failures.misfits(first)
        frame = frame.hstack(system[pl.Series(origins, dtype=pl.UInt32)])
        lost = [index for index, row in enumerate(origins) if row in first] if first else ()
        return without(frame, lost) if lost else frame

    def _several(self, row: Any, take: Callable[[Any], Any]) -> list[Any]:
        results = self.fn(row)
        if type(results) is not list and (is_one_row(results) or not isinstance(results, Iterable)):
            hint = "" if isinstance(results, str) else "; for one row use map"
            raise StepError(
                self.name, f"flat_map expects several dicts for a row, such as a list{hint}; got {results!r}"
            )
        return list(map(take, results))  # so that errors of a generator are raised here


def without(frame: pl.DataFrame, lost: Iterable[int]) -> pl.DataFrame:
    """Returns the frame without the rows with these numbers."""
    kept = pl.repeat(True, frame.height, eager=True).scatter(list(lost), False)
    return frame.filter(kept)


@attrs.frozen
class MapBatches(PythonStep):
    """A step that calls a function with a frame. The function returns a frame of the same length: row n belongs to row
    n.
    """

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
            # The error does not say which row caused it, so all rows become dead letters.
            failures.misfits(dict.fromkeys(range(rows.height), why))
            return pl.DataFrame(schema=self.schema).hstack(system.clear())

    def table(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the function's result for these rows. Raises `StepError` unless it is a frame of the same length."""
        try:
            table = self.fn(rows)
        except Exception as error:
            error.add_note(f"in the function of step {self.name!r} ({self.kind})")
            raise
        return self.required(table, rows.height)

    def required(self, table: Any, height: int) -> pl.DataFrame:
        """Returns the function's result, which may be an Arrow table, as a polars frame. Raises `StepError` for another
        length.
        """
        if not isinstance(table, pl.DataFrame) and not hasattr(table, "__arrow_c_stream__"):
            raise StepError(self.name, f"map_batches expects a polars DataFrame, got {type(table).__name__}")
        result = table if isinstance(table, pl.DataFrame) else pl.DataFrame(table)
        if result.height != height:
            raise StepError(
                self.name,
                f"map_batches gave {result.height} rows for {height}, so it is not known which "
                "event time they have; give one row for each, or use flat_map, or filter before",
            )
        return result

    def fitted(self, result: pl.DataFrame) -> pl.DataFrame:
        """Returns the declared columns of the function's result. Raises `StepError` for other columns."""
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
    """True if a cast keeps every value. Only the unit of a time may change."""
    if isinstance(given, pl.Datetime) and isinstance(declared, pl.Datetime):
        return given.time_zone == declared.time_zone
    if declared == pl.String:
        return given in (pl.Null, pl.Categorical, pl.Enum)
    try:
        both = [pl.Series(dtype=given).to_frame(""), pl.Series(dtype=declared).to_frame("")]
        return pl.concat(both, how="vertical_relaxed").schema[""] == declared
    except pl.exceptions.PolarsError:
        return False
