"""Stateless steps between sources, stages and sinks: immutable declarations that rewrite lazy frames.

Each step keeps the system columns (event time, window, pane) in addition to the user's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import StepError
from beamlike.expressions.describe import describe
from beamlike.expressions.tree import columns_read, copied, expression_identity, expression_text
from beamlike.rows.dead_letters import Attempt, dead_letters, error_text
from windowing.columns import EVENT_TIME, PANE_RETRACTED, PREVIOUS_END, WINDOW_COLUMNS
from windowing.custom import CustomWindows
from windowing.identity import Declared, fields_of
from windowing.windowing import Windowing

Row = dict[str, Any]


def _texts(expressions: tuple[nw.Expr, ...]) -> tuple[str, ...]:
    """Returns the expressions as text, for comparisons. Comparing expressions with == would create a new expression."""
    return tuple(map(expression_text, expressions))


def _wanted(
    columns: tuple[nw.Expr, ...], gives: tuple[tuple[str, ...], ...], wanted: frozenset[str]
) -> tuple[tuple[nw.Expr, ...], tuple[tuple[str, ...], ...]]:
    """Returns the expressions that produce a wanted column, with the names that each produces."""
    kept = [(column, names) for column, names in zip(columns, gives, strict=True) if wanted & {*names}]
    return tuple(column for column, _ in kept), tuple(names for _, names in kept)


def _computed(kind: str, columns: Sequence[nw.Expr], gives: Sequence[tuple[str, ...]]) -> Any:
    """Returns the identity of expressions, by the names that they produce. Unchanged columns do not count; None if
    nothing else is left.
    """
    found = {
        ", ".join(names): expression_identity(column)
        for column, names in zip(columns, gives, strict=True)
        if copied(column) != [*names]
    }
    return {"kind": kind, "columns": found} if found else None


def _read(columns: tuple[nw.Expr, ...]) -> frozenset[str]:
    return frozenset(chain.from_iterable(map(columns_read, columns)))


@attrs.frozen
class Step(Declared):
    """A stateless rewrite of rows. `name` is unique in the pipeline.

    Law: applying a step to the parts of a frame and concatenating the results equals applying it to the whole frame. So
    results do not depend on how the input is divided into chunks.
    """

    name: str

    kind: ClassVar[str]

    @property
    def python(self) -> bool:
        """True if the step needs rows in memory, for example to call a user's function."""
        return False

    @property
    def keeps_rows(self) -> bool:
        """True if the step emits at least one row whenever it receives a row that it can use."""
        return True

    @property
    def skew(self) -> int:
        """The greatest duration (us) by which this step can move an event time back."""
        return 0

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the rewritten frame, with the system columns of `frame`.

        If the step cannot use a row, it raises an error; the frame may be lazy, and then raises when it is collected.
        """
        raise NotImplementedError

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """Applies the step to the rows that it can use. All others become dead letters."""
        return Attempt(self.apply(frame))

    @property
    def everything(self) -> frozenset[str]:
        """The output columns that must be computed to find the rows that the step cannot use."""
        return frozenset()

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """Returns the input columns that are needed to compute the output columns `wanted`."""
        raise NotImplementedError

    def narrowed(self, wanted: frozenset[str]) -> Step:
        """Returns the step reduced to the columns `wanted`. Its input then has only the columns `needs(wanted)`."""
        return self

    def detail(self) -> str:
        """Returns a short text about the step's work, such as its expressions, its windows, or its function's name."""
        raise NotImplementedError

    def identity(self) -> Any:
        """Returns the kind and the declared fields, without the name, for comparisons with a checkpoint; None for a
        step that changes no row.
        """
        return {**fields_of(self, without=("name", *self.inferred)), "kind": self.kind}

    inferred: ClassVar[tuple[str, ...]] = ()
    """Fields that follow from earlier steps. They are not part of the identity."""


@attrs.frozen
class Relational(Step):
    """A step of expressions, which narwhals can execute."""

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Returns the rewritten narwhals frame."""
        raise NotImplementedError

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the rewritten frame, still lazy, so that a reader can skip columns that are removed."""
        native: pl.LazyFrame = self.rewrite(nw.from_native(frame)).to_native()
        return native

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """Finds the rows for which an expression fails by bisection, which is correct because steps are row-wise."""
        given = frame.collect()
        # Results are in the order of the rows, because the first half is on top of the stack.
        parts, wrong, errors = [self._collected(given.clear())], [given.clear()], []
        waiting = [given]
        while waiting:
            rows = waiting.pop()
            try:
                parts.append(self.apply(rows.lazy()).collect())
            except pl.exceptions.PolarsError as error:
                if rows.height == 1:
                    wrong.append(rows)
                    errors.append(error_text(error))
                else:
                    half = rows.height // 2
                    waiting += [rows[half:], rows[:half]]
        letters = dead_letters(self.name, pl.concat(wrong), errors) if errors else None
        return Attempt(pl.concat(parts).lazy(), letters, len(given))

    def _collected(self, empty: pl.DataFrame) -> pl.DataFrame:
        """Applies the step to an empty frame. If that fails, the step is wrong, not a row, and `StepError` is
        raised.
        """
        try:
            return self.apply(empty.lazy()).collect()
        except pl.exceptions.PolarsError as error:
            raise StepError(self.name, f"{self.kind} fails: {error_text(error)}") from error


@attrs.frozen
class Filter(Relational):
    """A step that keeps the rows for which all predicates are true. A null predicate removes the row."""

    kind: ClassVar[str] = "filter"
    predicates: tuple[nw.Expr, ...] = attrs.field(eq=_texts)

    def identity(self) -> Any:
        return {"kind": self.kind, "predicates": list(map(expression_identity, self.predicates))}

    @property
    def keeps_rows(self) -> bool:
        return False

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        return frame.filter(*self.predicates)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.union(*map(columns_read, self.predicates))

    def detail(self) -> str:
        return ", ".join(map(expression_text, self.predicates))


@attrs.frozen
class Select(Relational):
    """A step that computes columns, named `gives`, from expressions. It keeps the system columns `kept`, and
    no others.
    """

    kind: ClassVar[str] = "select"
    columns: tuple[nw.Expr, ...] = attrs.field(eq=_texts)
    gives: tuple[tuple[str, ...], ...]
    kept: tuple[str, ...]

    def identity(self) -> Any:
        return _computed(self.kind, self.columns, self.gives)

    @property
    def everything(self) -> frozenset[str]:
        return frozenset(chain(*self.gives))

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        return frame.select(*self.columns, *self.kept)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.intersection(self.kept) | _read(self.narrowed(wanted).columns)

    def narrowed(self, wanted: frozenset[str]) -> Select:
        columns, gives = _wanted(self.columns, self.gives, wanted)
        kept = tuple(column for column in self.kept if column in wanted)
        return attrs.evolve(self, columns=columns, gives=gives, kept=kept)

    def detail(self) -> str:
        return ", ".join(map(expression_text, self.columns))


@attrs.frozen
class WithColumns(Relational):
    """A step that adds or replaces columns, named `gives`, which are computed from expressions."""

    kind: ClassVar[str] = "with_columns"
    columns: tuple[nw.Expr, ...] = attrs.field(eq=_texts)
    gives: tuple[tuple[str, ...], ...]

    def identity(self) -> Any:
        return _computed(self.kind, self.columns, self.gives)

    @property
    def everything(self) -> frozenset[str]:
        return frozenset(chain(*self.gives))

    def rewrite(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        return frame.with_columns(*self.columns) if self.columns else frame

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.difference(*self.gives) | _read(self.narrowed(wanted).columns)

    def narrowed(self, wanted: frozenset[str]) -> WithColumns:
        columns, gives = _wanted(self.columns, self.gives, wanted)
        return attrs.evolve(self, columns=columns, gives=gives)

    def detail(self) -> str:
        return ", ".join(map(expression_text, self.columns))


@attrs.frozen
class WindowInto(Step):
    """A step that assigns windows to each element. An element in several windows becomes several rows."""

    kind: ClassVar[str] = "window_into"
    windowing: Windowing

    def identity(self) -> Any:
        """Returns the windows only. All other settings of a windowing are part of the stage's identity."""
        return {"kind": self.kind, "windows": self.windowing.windows.identity()}

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the frame with the bounds of new windows, which replace those of earlier windows."""
        return self.windowing.windows.assign(frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted.difference(WINDOW_COLUMNS, {PREVIOUS_END}) | {
            EVENT_TIME,
            *self.windowing.windows.columns,
        }

    @property
    def python(self) -> bool:
        return isinstance(self.windowing.windows, CustomWindows)

    @property
    def keeps_rows(self) -> bool:
        return not self.windowing.windows.gaps

    def detail(self) -> str:
        return describe(self.windowing.windows)


@attrs.frozen
class NotRetracted(Step):
    """A step that adds the flag of retracted panes, always False. It is for rows without the flag that are united with
    rows that have it.
    """

    kind: ClassVar[str] = "flatten"

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.with_columns(pl.lit(False).alias(PANE_RETRACTED))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        return wanted - {PANE_RETRACTED}

    def detail(self) -> str:
        return "pane_retracted() = False"
