"""Side inputs: the steps that feed a side, and the calls of a user's function with views of sides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from beamlike.errors import StepError
from beamlike.steps.base import Row, Step
from beamlike.steps.python import Failures, PythonStep
from stages.operator import Refused
from stages.sides.contents import Seen
from stages.sides.declarations import IS_ROW
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, SYSTEM_COLUMNS, WINDOW_COLUMNS
from windowing.identity import Declared, identity_of
from windowing.python_rows import BEYOND, each, python_has

CONTENT: Final = "content"
ROW: Final = "row"


@attrs.frozen
class AsContent(Step):
    """Makes a struct of a side's row, with its event time."""

    kind: ClassVar[str] = "side"
    inferred: ClassVar[tuple[str, ...]] = ("columns", "kept")
    columns: tuple[str, ...]
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.select(pl.struct(*self.columns, EVENT_TIME).alias(ROW), *self.kept)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(self.kept) | {*self.columns, EVENT_TIME}

    def narrowed(self, wanted: frozenset[str]) -> AsContent:
        return attrs.evolve(self, kept=tuple(column for column in self.kept if column in wanted))

    def detail(self) -> str:
        return ", ".join(self.columns)


@attrs.frozen
class InPanes(Step):
    """Makes rows of panes with lists of structs; an empty pane gives one row, which is marked as no row of the side."""

    kind: ClassVar[str] = "panes"
    inferred: ClassVar[tuple[str, ...]] = ("columns",)
    columns: tuple[str, ...]
    retracts: bool

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Rows with the window and number of their pane. Retracted panes are removed: the next pane replaces them."""
        frame = frame.filter(~pl.col(PANE_RETRACTED)) if self.retracts else frame
        row = pl.col(CONTENT)
        return (
            frame.select(CONTENT, *WINDOW_COLUMNS, PANE_INDEX)
            .explode(CONTENT)
            .select(
                *(row.struct.field(name) for name in (*self.columns, EVENT_TIME)),
                *WINDOW_COLUMNS,
                PANE_INDEX,
                row.is_not_null().alias(IS_ROW),
            )
        )

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return frozenset(
            {CONTENT, *WINDOW_COLUMNS, PANE_INDEX, *((PANE_RETRACTED,) if self.retracts else ())}
        )

    def detail(self) -> str:
        return ", ".join(self.columns)


@attrs.frozen
class Dropped(Step):
    """Makes rows of a side of the structs that its grouping has dropped, with the reason."""

    kind: ClassVar[str] = "late"
    inferred: ClassVar[tuple[str, ...]] = ("columns", "kept")
    columns: tuple[str, ...]
    kept: tuple[str, ...]

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        row = pl.col(ROW).struct
        return frame.select(*(row.field(name) for name in self.columns), "reason", *self.kept)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(self.kept) | {ROW, "reason"}

    def narrowed(self, wanted: frozenset[str]) -> Dropped:
        return attrs.evolve(self, kept=tuple(column for column in self.kept if column in wanted))

    def detail(self) -> str:
        return ", ".join(self.columns)


@attrs.frozen
class FilterByFunction(PythonStep):
    """Keeps the rows for which a function returns True."""

    kind: ClassVar[str] = "filter"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        passes = each(self._asked, rows.iter_rows(named=True), rows.height, failures.add, False)
        return rows.hstack(system).filter(pl.Series(passes, dtype=pl.Boolean))

    def _asked(self, row: Row) -> bool:
        passes = self.fn(row)
        if not isinstance(passes, bool):
            raise StepError(self.name, f"a filter gives True or False for a row; got {passes!r}")
        return passes


# Views: the values of sides that a function receives


@attrs.frozen
class View:
    """The value of a side that a function receives; `name` is the side's."""

    name: str

    def of(self, rows: pl.DataFrame) -> Any:
        """The value made of a side's rows, which are sorted by event time and have a column of it."""
        raise NotImplementedError


def _values(rows: pl.DataFrame, column: str | None) -> list[Any]:
    own = rows.drop(SYSTEM_COLUMNS, strict=False)
    return own.to_dicts() if column is None else own[column].to_list()


@attrs.frozen
class ListView(View):
    """A list of all rows as dicts, or of the values of a column, sorted by event time."""

    column: str | None

    def of(self, rows: pl.DataFrame) -> list[Any]:
        return _values(rows, self.column)


@attrs.frozen
class DictView(View):
    """A dict of the newest row, or of its value in a column, by key; several keys are a tuple."""

    keys: tuple[str, ...]
    column: str | None

    def of(self, rows: pl.DataFrame) -> dict[Any, Any]:
        keys = rows[self.keys[0]].to_list() if len(self.keys) == 1 else rows.select(self.keys).rows()
        return dict(zip(keys, _values(rows, self.column), strict=True))


@attrs.frozen(eq=False)
class SingletonView(View):
    """The only row as a dict, or its value in a column; the default, if given, without a row."""

    column: str | None
    default: tuple[Any, ...]

    def of(self, rows: pl.DataFrame) -> Any:
        """Raises `ValueError` unless there is exactly one row, or a default instead of none."""
        values = _values(rows, self.column)
        if len(values) > 1:
            raise ValueError(f"side {self.name!r} has {len(values):,} rows where there should be one")
        if not values and not self.default:
            raise ValueError(f"side {self.name!r} has no row; give as_singleton a default=")
        return values[0] if values else self.default[0]


@attrs.define
class FailuresWithErrors(Failures):
    """Failures that also keep the errors that the function raised."""

    raised: dict[int, Exception] = attrs.field(factory=dict)

    def add(self, row: int, error: Exception) -> None:
        Failures.add(self, row, error)
        error.add_note(f"in the function of step {self.step.name!r} ({self.step.kind})")
        self.raised[row] = error


@attrs.frozen(slots=False, eq=False)
class CallWithSides(Declared):
    """The call of a step's function with rows and, by keyword, views of sides."""

    step: PythonStep
    views: Mapping[str, View]
    python: ClassVar[bool] = True

    @property
    def schema(self) -> pl.Schema:
        """The columns that the function returns."""
        return self.step.schema

    def identity(self) -> Any:
        return {"kind": self.step.kind, "step": self.step.identity(), "views": identity_of(self.views)}

    @cached_property
    def _hows(self) -> dict[str, tuple[Any, ...]]:
        return {keyword: (type(view).__name__, repr(view)) for keyword, view in self.views.items()}

    def give(self, rows: pl.DataFrame, sides: Mapping[str, Seen]) -> tuple[pl.DataFrame, Refused | None]:
        """Returns the function's results, and the refused rows: those that it cannot receive, or for which it fails."""
        own, system = rows.select(self.step.reads), rows.drop(self.step.reads)
        # A view that cannot be made refuses all rows: they read the same window of the side.
        try:
            values = {name: self._value(name, sides[view.name]) for name, view in self.views.items()}
        except (ValueError, OverflowError) as error:
            nothing = pl.DataFrame(schema=self.schema).hstack(system.clear())
            return nothing, Refused(own, (error,) * len(own))
        fits = python_has(own)
        beyond = own.clear() if fits is None else own.filter(~fits)
        if fits is not None:
            own, system = own.filter(fits), system.filter(fits)
        step = attrs.evolve(self.step, fn=partial(self.step.fn, **values))
        failures = FailuresWithErrors(step, strict=False)
        made = step.call(own, system, failures)
        wrong = sorted(failures.errors)
        errors = [failures.raised.get(row) or StepError(step.name, failures.errors[row]) for row in wrong]
        errors += [StepError(step.name, BEYOND) for _ in range(len(beyond))]
        if not errors:
            return made, None
        return made, Refused(pl.concat([own[wrong], beyond]), tuple(errors))

    def _value(self, keyword: str, seen: Seen) -> Any:
        view = self.views[keyword]

        def make(rows: pl.DataFrame) -> Any:
            return view.of(rows.sort(EVENT_TIME, maintain_order=True).drop(WINDOW_COLUMNS))

        return seen.made(self._hows[keyword], make)
