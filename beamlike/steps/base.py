"""Stateless steps between sources, stages and sinks: frozen declarations that rewrite lazy frames.

The system columns (event time, window, pane) travel through every step beside the user's columns.
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
    """Expressions compare as their text: their own == makes a new expression."""
    return tuple(map(expression_text, expressions))


def _wanted(
    columns: tuple[nw.Expr, ...], gives: tuple[tuple[str, ...], ...], wanted: frozenset[str]
) -> tuple[tuple[nw.Expr, ...], tuple[tuple[str, ...], ...]]:
    """The expressions, and the names that they give, of which some name is wanted."""
    kept = [(column, names) for column, names in zip(columns, gives, strict=True) if wanted & {*names}]
    return tuple(column for column, _ in kept), tuple(names for _, names in kept)


def _computed(kind: str, columns: Sequence[nw.Expr], gives: Sequence[tuple[str, ...]]) -> Any:
    """Expressions by the names that they give, without columns that stay as they are; None if all of them do."""
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
    def keeps_rows(self) -> bool:
        """Whether for rows that it can use there is some row after it, whatever they are."""
        return True

    @property
    def skew(self) -> int:
        """By how many microseconds it may set event times back."""
        return 0

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The rewritten frame; the system columns of `frame` are kept. A row that it cannot use is an error."""
        raise NotImplementedError

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """The same of the rows that it can use, and the others, if there are any, as dead letters."""
        return Attempt(self.apply(frame))

    @property
    def everything(self) -> frozenset[str]:
        """The columns that it makes, all of which it must make to find the rows for which it cannot."""
        return frozenset()

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The columns of its input from which it makes the columns `wanted` of its output."""
        raise NotImplementedError

    def narrowed(self, wanted: frozenset[str]) -> Step:
        """The step without what is not needed to make `wanted`; it runs on frames of only `needs(wanted)`."""
        return self

    def detail(self) -> str:
        """What it does, in a few words: the expressions, the windows, the function's name."""
        raise NotImplementedError

    def identity(self) -> Any:
        """The kind and the declared fields without the name; None for a step that leaves rows as they are."""
        return {**fields_of(self, without=("name", *self.inferred)), "kind": self.kind}

    inferred: ClassVar[tuple[str, ...]] = ()
    """Its fields that follow from the steps before it."""


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

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        """The rows for which its expressions fail are found by halving, as each row is looked at for itself."""
        given = frame.collect()
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
        """The step on no rows: what fails there is not the rows' fault."""
        try:
            return self.apply(empty.lazy()).collect()
        except pl.exceptions.PolarsError as error:
            raise StepError(self.name, f"{self.kind} fails: {error_text(error)}") from error


@attrs.frozen
class Filter(Relational):
    """Keeps the rows for which all predicates are true; null is not."""

    kind: ClassVar[str] = "filter"
    predicates: tuple[nw.Expr, ...] = attrs.field(eq=_texts)

    def identity(self) -> Any:
        """The expressions."""
        return {"kind": self.kind, "predicates": list(map(expression_identity, self.predicates))}

    @property
    def keeps_rows(self) -> bool:
        """It may leave all of them out."""
        return False

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

    def identity(self) -> Any:
        """The expressions by the names that they give."""
        return _computed(self.kind, self.columns, self.gives)

    @property
    def everything(self) -> frozenset[str]:
        """Those of its expressions."""
        return frozenset(chain(*self.gives))

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

    def identity(self) -> Any:
        """The expressions by the names that they give."""
        return _computed(self.kind, self.columns, self.gives)

    @property
    def everything(self) -> frozenset[str]:
        """Those of its expressions."""
        return frozenset(chain(*self.gives))

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

    def identity(self) -> Any:
        """The windows: all other choices are those of the stage."""
        return {"kind": self.kind, "windows": self.windowing.windows.identity()}

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """The frame with window start and end; windows that it had are replaced."""
        return self.windowing.windows.assign(frame)

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        """The event time, from which windows follow, and what windows of the user's own read."""
        return wanted.difference(WINDOW_COLUMNS, {PREVIOUS_END}) | {
            EVENT_TIME,
            *self.windowing.windows.columns,
        }

    @property
    def python(self) -> bool:
        """Where the windows are the user's own."""
        return isinstance(self.windowing.windows, CustomWindows)

    @property
    def keeps_rows(self) -> bool:
        """Unless all may be in gaps between windows."""
        return not self.windowing.windows.gaps

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
