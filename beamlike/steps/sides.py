"""Side inputs: the steps that prepare rows of a side, and the calls of a user's function with views of sides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import attrs
import polars as pl
import polars.selectors as cs

from beamlike.errors import StepError
from beamlike.steps.base import Step
from beamlike.steps.python import Failures, PythonStep, without
from stages.operator import Refused
from stages.process.stateful import Unavailable
from stages.sides.contents import SideContent
from stages.sides.declarations import IS_ROW
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, RESERVED_PREFIX, WINDOW_COLUMNS
from windowing.identity import Declared, identity_of
from windowing.python_rows import each, unusable
from windowing.python_values import dicts_of, tuples_of, values_of

CONTENT: Final = "content"
ROW: Final = "row"


@attrs.frozen
class AsContent(Step):
    """A step that turns a row of a side into a struct, with its event time."""

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
    """A step that converts panes of a side, each with a list of rows, to rows. An empty pane gives one row of
    nulls, in which `IS_ROW` is False.
    """

    kind: ClassVar[str] = "panes"
    inferred: ClassVar[tuple[str, ...]] = ("columns",)
    columns: tuple[str, ...]
    retracts: bool

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns rows with the window and index of their pane. Retracted panes are left out, because the next pane
        replaces them.
        """
        frame = frame.filter(~pl.col(PANE_RETRACTED)) if self.retracts else frame
        row = pl.col(CONTENT)
        return (
            frame.select(CONTENT, *WINDOW_COLUMNS, PANE_INDEX)
            .explode(CONTENT, empty_as_null=True, keep_nulls=True)
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
    """A step that unpacks the structs that the grouping of a side has dropped into rows, with the reason."""

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
    """A step that keeps the rows for which a function returns True."""

    kind: ClassVar[str] = "filter"

    def call(self, rows: pl.DataFrame, system: pl.DataFrame, failures: Failures) -> pl.DataFrame:
        passes = each(self._asked, self.values(rows), rows.height, failures.add, False)
        return rows.hstack(system).filter(pl.Series(passes, dtype=pl.Boolean))

    def _asked(self, row: Any) -> bool:
        passes = self.fn(row)
        if not isinstance(passes, bool):
            raise StepError(self.name, f"the function of a filter must return True or False; got {passes!r}")
        return passes


# Views: the forms in which a function receives sides


@attrs.frozen
class View:
    """The form in which a function receives a side. `name` is the name of the side."""

    name: str

    def of(self, rows: pl.DataFrame) -> Any:
        """Returns the value for the rows of a side. They are sorted by event time, which is one of their columns."""
        raise NotImplementedError


def _values(rows: pl.DataFrame, column: str | None) -> list[Any]:
    own = rows.select(~cs.starts_with(RESERVED_PREFIX))
    return list(dicts_of(own)) if column is None else values_of(own[column])


@attrs.frozen
class ListView(View):
    """A list of all rows as dicts, or of the values of one column, sorted by event time."""

    column: str | None

    def of(self, rows: pl.DataFrame) -> list[Any]:
        return _values(rows, self.column)


@attrs.frozen
class DictView(View):
    """A dict of the newest row by key, or of its value in one column. Several keys are a tuple."""

    keys: tuple[str, ...]
    column: str | None

    def of(self, rows: pl.DataFrame) -> dict[Any, Any]:
        keys = values_of(rows[self.keys[0]]) if len(self.keys) == 1 else tuples_of(rows.select(self.keys))
        return dict(zip(keys, _values(rows, self.column), strict=True))


@attrs.frozen(eq=False)
class SingletonView(View):
    """The only row as a dict, or its value in one column. Without a row, the default is used if there is one."""

    column: str | None
    default: tuple[Any, ...]

    def of(self, rows: pl.DataFrame) -> Any:
        """Returns the value. Raises `ValueError` if there are several rows, or if there is neither a row nor
        a default.
        """
        values = _values(rows, self.column)
        if len(values) > 1:
            raise ValueError(f"side {self.name!r} has {len(values):,} rows where there should be one")
        if not values and not self.default:
            raise ValueError(f"side {self.name!r} has no row; give as_singleton a default=")
        return values[0] if values else self.default[0]


@attrs.define
class FailuresWithErrors(Failures):
    """Failures that also keep the exceptions that the function raised."""

    raised: dict[int, Exception] = attrs.field(factory=dict)

    def add(self, row: int, error: Exception) -> None:
        Failures.add(self, row, error)
        error.add_note(f"in the function of step {self.step.name!r} ({self.step.kind})")
        self.raised[row] = error


@attrs.frozen(slots=False, eq=False)
class CallWithSides(Declared):
    """The call of a step's function with each row, and with views of sides as keyword arguments."""

    step: PythonStep
    views: Mapping[str, View]
    python: ClassVar[bool] = True

    @property
    def schema(self) -> pl.Schema:
        """The columns that the function returns."""
        return self.step.schema

    def identity(self) -> Any:
        return {"kind": self.step.kind, "step": self.step.identity(), "views": identity_of(self.views)}

    def compute(
        self, rows: pl.DataFrame, sides: Mapping[str, SideContent]
    ) -> tuple[pl.DataFrame, Refused | None]:
        """Returns the function's results, and the rows that are refused, for which it cannot be called or fails."""
        own, system = rows.select(self.step.reads), rows.drop(self.step.reads)
        # All rows here read the same window of the side. So if a view cannot be created, all of them are
        # refused.
        try:
            values = {name: value_of(view, sides) for name, view in self.views.items()}
        except (ValueError, OverflowError) as error:
            nothing = pl.DataFrame(schema=self.schema).hstack(system.clear())
            return nothing, Refused(own, (error,) * len(own))
        unused = unusable(own, self.step.takes)
        lost = own[sorted(unused)]
        if unused:
            own, system = without(own, unused), without(system, unused)
        step = attrs.evolve(self.step, fn=partial(self.step.fn, **values))
        failures = FailuresWithErrors(step, strict=False)
        made = step.call(own, system, failures)
        wrong = sorted(failures.errors)
        errors = [failures.raised.get(row) or StepError(step.name, failures.errors[row]) for row in wrong]
        errors += [StepError(step.name, unused[row]) for row in sorted(unused)]
        if not errors:
            return made, None
        return made, Refused(pl.concat([own[wrong], lost]), tuple(errors))


@attrs.frozen(slots=False, eq=False)
class SideViews(Declared):
    """The forms in which a user's function of keyed state reads sides, by keyword."""

    views: Mapping[str, View]

    def identity(self) -> Any:
        return identity_of(self.views)

    def values(self, sides: Mapping[str, SideContent]) -> dict[str, Any]:
        """Returns the value of each side by its keyword; an `Unavailable` if it could not be made."""
        found: dict[str, Any] = {}
        for keyword, view in self.views.items():
            try:
                found[keyword] = value_of(view, sides)
            except (ValueError, OverflowError) as error:
                found[keyword] = Unavailable(error)
        return found


def value_of(view: View, sides: Mapping[str, SideContent]) -> Any:
    """Returns the value of a view for the content of its side. Raises `ValueError` or `OverflowError` if it cannot be
    made.
    """

    def make(rows: pl.DataFrame) -> Any:
        return view.of(rows.sort(EVENT_TIME, maintain_order=True).drop(WINDOW_COLUMNS))

    return sides[view.name].cached((type(view).__name__, repr(view)), make)
