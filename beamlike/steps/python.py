"""Steps that call a user's function, by row or by batch, and what becomes of the rows that it cannot use."""

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
"""Stands where a row's result would."""


@attrs.define
class Failures:
    """The rows for which a step has no result, by their number. Where it is `strict`, the first one is raised."""

    step: Step
    strict: bool
    errors: dict[int, str] = attrs.field(factory=dict)

    def add(self, row: int, error: Exception) -> None:
        """The function raised this for the row."""
        if self.strict or isinstance(error, MemoryError):
            error.add_note(f"in the function of step {self.step.name!r} ({self.step.kind})")
            raise error
        self.errors[row] = error_text(error)

    def misfits(self, wrong: Mapping[int, str]) -> None:
        """What the function gave for these rows does not fit, for these reasons."""
        if self.strict and wrong:
            raise StepError(self.step.name, wrong[min(wrong)])
        self.errors.update(wrong)

    def letters(self, rows: pl.DataFrame) -> pl.DataFrame | None:
        """The rows that failed, as dead letters, if there are any."""
        if not self.errors:
            return None
        failed = sorted(self.errors)
        return dead_letters(self.step.name, rows[failed], [self.errors[row] for row in failed])


@attrs.frozen
class PythonStep(Step):
    """A step that calls `fn` with rows of the columns `reads`, and gives rows of `schema`."""

    fn: Callable[..., Any]
    reads: tuple[str, ...]
    schema: pl.Schema

    inferred: ClassVar[tuple[str, ...]] = ("reads", "schema")

    by_row: ClassVar[bool] = True
    """Whether the function gets values as Python has them."""

    @property
    def python(self) -> bool:
        """Always."""
        return True

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rows come into memory here, once. What the function raises goes on, with a note of the step."""
        return self._called(frame, Failures(self, strict=True)).rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """The same, but a row that the function raises on, or whose result does not fit, is a dead letter."""
        return self._called(frame, Failures(self, strict=False))

    def _called(self, frame: pl.LazyFrame, failures: Failures) -> Attempt:
        given = frame.select(*self.reads, cs.by_name(*SYSTEM_COLUMNS, require_all=False)).collect()
        count = len(given)
        fits = python_has(given.select(self.reads)) if self.by_row else None
        beyond = given.clear() if fits is None else given.filter(~fits)
        given = given if fits is None else given.filter(fits)
        if failures.strict and len(beyond):
            raise StepError(self.name, BEYOND)
        rows = given.select(self.reads)
        with activity("step", self.name):
            result = self.call(rows, given.drop(self.reads), failures).lazy()
        if beyond.is_empty():
            return Attempt(result, failures.letters(rows), count)
        lost = dead_letters(self.name, beyond.select(self.reads), [BEYOND] * len(beyond))
        letters = failures.letters(rows)
        return Attempt(result, lost if letters is None else pl.concat([lost, letters]), count)

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """The results beside the system columns of the rows that they came from; `failures` gets the others."""
        raise NotImplementedError

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """All that the function is given."""
        return wanted.intersection(SYSTEM_COLUMNS).union(self.reads)

    def detail(self) -> str:
        """The function's name."""
        return function_name(self.fn)


def _each(fn: Callable[[Row], Any], rows: pl.DataFrame, failures: Failures) -> list[Any]:
    """What the function gives for each row, in order, and _LOST where it raises."""
    return each(fn, rows.iter_rows(named=True), rows.height, failures.add, _LOST)


@attrs.frozen
class Map(PythonStep):
    """One dict for each row, from a dict for each row."""

    kind: ClassVar[str] = "map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Row by row."""
        results = _each(self.fn, rows, failures)
        raised = frozenset(failures.errors)
        frame, wrong = as_columns(results, self.schema)
        failures.misfits({row: why for row, why in wrong.items() if row not in raised})
        frame = frame.hstack(system)
        return without(frame, failures.errors) if failures.errors else frame


@attrs.frozen
class FlatMap(PythonStep):
    """Any number of dicts for each row; each keeps the event time and the window of its row."""

    kind: ClassVar[str] = "flat_map"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """Row by row; the system columns of a row are repeated for each of its results.

        Of a row that fails there are no results: neither those before it did, nor those that would fit.
        """
        parts = [() if part is _LOST else part for part in _each(self._several, rows, failures)]
        origins = list(chain.from_iterable(repeat(row, len(part)) for row, part in enumerate(parts)))
        frame, wrong = as_columns(list(chain.from_iterable(parts)), self.schema)
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
    """A frame for a frame of the same length: row i of one belongs to row i of the other."""

    kind: ClassVar[str] = "map_batches"
    by_row: ClassVar[bool] = False

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        """The whole chunk at once; the system columns stay outside of the user's frame.

        Where that fails nobody knows by which row, so all of them are lost.
        """
        try:
            return self.fitted(self.table(rows)).hstack(system)
        except Exception as error:
            if failures.strict or isinstance(error, MemoryError):
                raise
            why = f"{error_text(error)}; the batch of {rows.height} rows in which this row was failed as a whole"
            failures.misfits(dict.fromkeys(range(rows.height), why))
            return pl.DataFrame(schema=self.schema).hstack(system.clear())

    def table(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What the function gives for these rows; `StepError` if it is no frame of the same length."""
        try:
            table = self.fn(rows)
        except Exception as error:
            error.add_note(f"in the function of step {self.name!r} ({self.kind})")
            raise
        return self.required(table, rows.height)

    def required(self, table: Any, height: int) -> pl.DataFrame:
        """What the function gave as a polars frame, which must have this length; an Arrow table is as good."""
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
        """The declared columns of what the function gave; `StepError` where it gave others."""
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
