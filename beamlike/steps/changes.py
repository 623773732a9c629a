"""The step that turns the rows of a log of changes into the changes: rows that arrive, and rows that are retracted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from beamlike.errors import StepError, listed
from beamlike.rows.dead_letters import Attempt, dead_letters, once
from beamlike.steps.base import Step
from beamlike.steps.timestamps import WithTimestamps
from stages.process.newest_of_key import NOT_SENT
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import GLOBAL_WINDOW_END

_NEW: Final = ("c", "r", "u", "insert", "update")
_OLD: Final = ("u", "d", "update", "delete")
"""The operations of rows of a log that have a new row, and of those that have an old row."""
_DELETED: Final = ("d", "delete")

_ARRIVES: Final = ("c", "r", "+I", "+U", "insert")
_RETRACTED: Final = ("d", "-U", "-D", "delete")
"""The operations of changes: a row that arrives, and a row that is retracted."""

_REMEDY: Final = (
    "; the database must log it (in PostgreSQL, ALTER TABLE ... REPLICA IDENTITY FULL), or give key=, by which it is "
    "found"
)
_SHOWN: Final = 100  # characters of an operation in an error
_NUMBER: Final = "__row"

Reasons = Iterator[tuple[pl.Expr, pl.Expr]]
"""Conditions of rows that cannot be used, each with the reason as text."""


@attrs.frozen
class ChangesOfLog(Step):
    """A step that emits the changes of each row of a log of changes.

    A row has the structs `old` and `new`: an update retracts the old row, before the new row arrives. Without the names
    of such columns, each row is one change, and the column `op` says which.

    Without `timestamp`, the event time of each change is the last instant of the global window, so a row and its
    retraction have the same time.

    With a `key`, a later operator finds the rows that are retracted: a retraction is emitted for deleted keys only.
    """

    kind: ClassVar[str] = "changes"
    inferred: ClassVar[tuple[str, ...]] = ("columns",)
    op: str
    old: str | None
    new: str | None
    timestamp: str | None
    unit: str | None
    allowed_skew: int
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    def identity(self) -> Any:
        found = super().identity()
        return found if self.key else {name: fact for name, fact in found.items() if name != "key"}

    @property
    def python(self) -> bool:
        return True  # each row is checked before any is emitted

    @property
    def keeps_rows(self) -> bool:
        return False

    @property
    def skew(self) -> int:
        return self.allowed_skew

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that a row may have, as text."""
        return tuple(dict.fromkeys((*_NEW, *_OLD) if self.old else (*_ARRIVES, *_RETRACTED)))

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        """Returns the changes. Raises `StepError` for a row with an unknown operation, without its old or new row, or
        without a valid time.
        """
        attempt = self.attempt(frame)
        if attempt.dead_letters is not None:
            raise StepError(self.name, attempt.dead_letters["error"][0])
        return attempt.rows

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        rows = frame.collect()
        why = rows.select(self._why(rows.schema)).to_series()
        wrong = why.is_not_null()
        found = (
            [dead_letters(self.name, rows.filter(wrong), why.drop_nulls().to_list())] if wrong.any() else []
        )
        changes = self._changes(rows.filter(~wrong) if found else rows)
        timed = self._timed(changes)
        if timed.dead_letters is not None:
            found.append(once(timed.dead_letters))
        return Attempt(timed.rows, pl.concat(found) if found else None, len(changes) + int(wrong.sum()))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        columns = self.columns if self.old is None else (self.old, self.new)
        return frozenset(name for name in (self.op, EVENT_TIME, *columns) if name)

    def detail(self) -> str:
        rows = f"{self.old} -> {self.new} by {self.op}" if self.old else f"by {self.op}"
        return rows if self.timestamp is None else f"{rows}, at {self.timestamp}"

    def _changes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns the changes of usable rows, in order. In each row, the retraction is first."""
        op = pl.col(self.op)
        if self.old is None or self.new is None:
            back = op if rows.schema[self.op] == pl.Boolean else op.is_in(_RETRACTED)
            return rows.select(*self.columns, EVENT_TIME, back.alias(PANE_RETRACTED))
        numbered = rows.with_row_index(_NUMBER)
        back = op.is_in(_DELETED) | self._moved() if self.key else op.is_in(_OLD)
        parts = [
            numbered.filter(chosen).select(
                *(pl.col(row).struct.field(name) for name in self.columns),
                EVENT_TIME,
                pl.lit(retracted).alias(PANE_RETRACTED),
                _NUMBER,
            )
            for row, chosen, retracted in ((self.old, back, True), (self.new, op.is_in(_NEW), False))
        ]
        return pl.concat(parts).sort(_NUMBER, maintain_order=True).drop(_NUMBER)

    def _moved(self) -> pl.Expr:
        """Returns an expression that is true for an update of the key, whose old row has the old key."""
        old, new = ([_field(row, name) for name in self.key] for row in (self.old, self.new))
        changed = pl.any_horizontal(before != after for before, after in zip(old, new, strict=True))
        return pl.col(self.op).is_in(_OLD) & changed.fill_null(False)

    def _timed(self, changes: pl.DataFrame) -> Attempt:
        never_final = pl.lit(GLOBAL_WINDOW_END - 1, pl.Int64).alias(EVENT_TIME)
        if self.timestamp is None:
            return Attempt(changes.lazy().with_columns(never_final))
        timestamps = WithTimestamps(self.name, self.timestamp, self.unit, self.allowed_skew)
        if not self.key:
            return timestamps.attempt(changes.lazy())
        # A deleted row has the time of the row that is stored for its key.
        numbered = changes.with_row_index(_NUMBER)
        timed = timestamps.attempt(numbered.filter(~pl.col(PANE_RETRACTED)).lazy())
        back = numbered.filter(PANE_RETRACTED).lazy().with_columns(never_final)
        rows = pl.concat([timed.rows.select(numbered.columns), back]).sort(_NUMBER, maintain_order=True)
        return attrs.evolve(timed, rows=rows.drop(_NUMBER))

    def _why(self, schema: pl.Schema) -> pl.Expr:
        """Returns the reason, as text, why a row cannot be used; null for a row that can be used."""
        why = pl.lit(None, pl.String)
        for condition, reason in reversed([*self._reasons(schema)]):
            why = pl.when(condition).then(reason).otherwise(why)
        return why

    def _reasons(self, schema: pl.Schema) -> Reasons:
        op, none = pl.col(self.op), pl.lit(False)
        if self.old is not None and self.new is not None:
            # A tombstone, which follows a delete in a compacted topic, says nothing new.
            none = pl.all_horizontal(pl.col(self.old, self.new).is_null())
        yield op.is_null() & ~none, pl.lit(f"{self.op!r} is null; it must be {_either(self.operations)}")
        if schema[self.op] != pl.Boolean:
            text = pl.concat_str(
                pl.lit(f"{self.op!r} is '"), op.cast(pl.String).str.head(_SHOWN), pl.lit("'")
            )
            gone = "; the rows of a table that was emptied are not in the log, so read it again, with a new checkpoint"
            yield op == "t", pl.concat_str(text, pl.lit(gone))
            known = pl.lit(f"; it must be {_either(self.operations)}")
            yield ~op.is_in(self.operations), pl.concat_str(text, known)
        if self.old is None or self.new is None:
            for name in self.key:
                yield pl.col(name).is_null(), pl.lit(f"the key {name!r} is null")
            return
        for condition, reason in self._reasons_of_rows(self.old, self.new, schema):
            yield condition, pl.concat_str(text, pl.lit(f", but {reason}"))

    def _reasons_of_rows(self, old: str, new: str, schema: pl.Schema) -> Iterator[tuple[pl.Expr, str]]:
        """Yields conditions of the old and the new row that cannot be used, each with the reason."""
        op, remedy = pl.col(self.op), "" if self.key else _REMEDY
        back, arrives = op.is_in(_DELETED if self.key else _OLD), op.is_in(_NEW)
        yield back & pl.col(old).is_null(), f"{old!r}, the old row that it retracts, is null{remedy}"
        yield arrives & pl.col(new).is_null(), f"{new!r}, its new row, is null"
        for name in self.key:
            for row, there in ((old, back), (new, arrives)):
                yield there & _field(row, name).is_null(), f"the key {name!r} is null in {row!r}"
        if self.key:
            return
        values = [_field(old, name).is_not_null() for name in self.columns]
        only = pl.sum_horizontal(values) == 1 if len(values) > 1 else pl.lit(False)
        yield (
            back & only,
            f"all columns of {old!r} but one are null: the log has only the key of that row{remedy}",
        )
        texts = [name for name in self.columns if dict(schema[new])[name] == pl.String]  # type: ignore[call-overload]
        for row, there in ((old, back), (new, arrives)):
            for name in texts:
                yield there & (_field(row, name) == NOT_SENT), f"{name!r} in {row!r} was not sent{remedy}"


def _either(words: Collection[str]) -> str:
    return f"one of {listed(map(repr, words))}"


def _field(row: str | None, name: str) -> pl.Expr:
    assert row is not None
    return pl.col(row).struct.field(name)
