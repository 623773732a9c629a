"""Dead letters of steps: rows that a step cannot use, with the name of the step, the reason, and counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Final, Literal

import attrs
import polars as pl
import polars.selectors as cs
from narwhals.exceptions import NarwhalsError

from beamlike.errors import StepError, text_of
from beamlike.rows.models import validation_text
from beamlike.rows.uses import StepUsage, UnusedRows
from beamlike.rows.values import row_json
from beamlike.system.secrets import without_secrets
from windowing.columns import PANE_RETRACTED

OnError = Literal["dead_letters", "fail"]
"""The handling of a row that a step cannot use: it becomes a dead letter, or it fails the run."""

UNCLAIMED: Final = "@dead-letters"
"""The target of dead letters that no collection of the user reads."""

EXPRESSION_ERRORS: Final = (pl.exceptions.PolarsError, NarwhalsError)
"""The errors that expressions raise, both lazily and immediately."""

_BEYOND: Final = re.compile(r"conversion from `i128` to `i64` failed in column .* values: \[(?P<values>.*)\]")
"""The error of polars for a whole number that has 128 bits in between."""

ROW_NOTE: Final = "for the row "
"""The beginning of the note with the row for which a step failed."""

_MOST_OF_ROW: Final = 300
"""The greatest number of characters of a row in a note."""

_NONE: Final[Mapping[str, int]] = MappingProxyType({})

_SEARCHED: Final = 20  # times as many characters are searched for secrets, however long the error is
SHOWN: Final = 1000  # Characters of an error; a value that it quotes may be of any length.


def dead_letters(step: str, rows: pl.DataFrame, errors: Sequence[str]) -> pl.DataFrame:
    """Returns a dead letter for each row, with the columns of `beamlike.rows.event_time.DEAD_LETTERS`.

    If rows may be retractions, the result also has their flag, which `once` reads.
    """
    return rows.select(
        pl.lit(step).alias("step"),
        pl.Series("error", errors, dtype=pl.String),
        row_json(rows.schema).alias("row"),
        cs.by_name(PANE_RETRACTED, require_all=False),
    )


def once(letters: pl.DataFrame) -> pl.DataFrame:
    """Removes the dead letters of retractions. If functions always give the same, the row that each of them retracts is
    a dead letter already.
    """
    if PANE_RETRACTED not in letters.columns:
        return letters
    return letters.filter(~pl.col(PANE_RETRACTED)).drop(PANE_RETRACTED)


def error_text(error: Exception) -> str:
    """Returns an exception as the `error` of a dead letter, such as `ValueError: the text`, without secrets and cut to
    `SHOWN` characters.
    """
    if isinstance(error, StepError):
        return without_secrets(str(error.args[1]))[:SHOWN]
    text = reason(error) if isinstance(error, EXPRESSION_ERRORS) else validation_text(error) or text_of(error)
    kind = type(error).__name__
    told = f"{kind}: {text}" if text else kind
    return without_secrets(told[: _SEARCHED * SHOWN])[:SHOWN]


def note_row(error: Exception, row: pl.DataFrame) -> Exception:
    """Adds a note to an error: the row for which it was raised."""
    (text,) = row.select(row_json(row.schema).alias("row"))["row"]
    error.add_note(f"{ROW_NOTE}{text[:_MOST_OF_ROW]}")
    return error


def reason(error: Exception) -> str:
    """Returns the first line of an error, without secrets. polars appends its whole plan in the following lines."""
    text = text_of(error)
    beyond = _BEYOND.search(text)
    if beyond:
        return f"{beyond['values']} does not fit into 64 bits"
    return without_secrets(text.strip().partition("\n")[0]) or type(error).__name__


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct names in alphabetic order."""
    return tuple(sorted({*names}))


@attrs.frozen
class DeadLetterCounts:
    """The number of dead letters of each step, with the last and the first error of each.

    `used`: the names of steps that could use a row, in alphabetic order. `retractions`: the number of retractions for
    which a step failed. They are no dead letters.
    """

    counts: Mapping[str, int] = attrs.field(factory=dict)
    errors: Mapping[str, str] = attrs.field(factory=dict)
    firsts: Mapping[str, str] = attrs.field(factory=dict)
    used: tuple[str, ...] = attrs.field(default=(), converter=_in_order)
    retractions: Mapping[str, int] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls, frames: Iterable[pl.DataFrame], used: Iterable[str] = (), retractions: Mapping[str, int] = _NONE
    ) -> DeadLetterCounts:
        """Counts the dead letters in these frames, which are in order."""
        found = cls(used=used, retractions=dict(retractions))
        for frame in frames:
            error = pl.col("error")
            each = frame.group_by("step", maintain_order=True).agg(
                pl.len(), error.last(), error.first().alias("first")
            )
            steps, *columns = each.get_columns()
            found = found.plus(cls(*(dict(zip(steps, column, strict=True)) for column in columns)))
        return found

    @property
    def uses(self) -> StepUsage:
        """The steps that could use at least one row, and the steps that could use none of their rows."""
        none = {name: UnusedRows(count, self.firsts[name]) for name, count in self.counts.items() if count}
        return StepUsage(self.used, retractions=self.retractions).then(StepUsage((), none))

    @property
    def total(self) -> int:
        """The number of dead letters of all steps."""
        return sum(self.counts.values())

    def plus(self, other: DeadLetterCounts) -> DeadLetterCounts:
        """Returns the counts of two parts of a batch; `other` is the later one."""
        if other == _NOTHING:  # as in most batches
            return self
        counts = Counter(self.counts)
        counts.update(other.counts)
        firsts = {**other.firsts, **self.firsts}
        return DeadLetterCounts(
            dict(counts),
            {**self.errors, **other.errors},
            firsts,
            (*self.used, *other.used),
            dict(Counter(self.retractions) + Counter(other.retractions)),
        )

    def of_source(self, name: str) -> DeadLetterCounts:
        """Adds an error of the source `name`, for its record: the last error among its steps.

        The counts of steps before a watermark are also those of their source.
        """
        *_, (step, why) = self.errors.items() or [(name, "")]
        error = why if step == name else f"in step {step!r}: {why}"
        return attrs.evolve(self, errors={**self.errors, name: error} if self.errors else {})

    @classmethod
    def of_all(cls, parts: Iterable[DeadLetterCounts]) -> DeadLetterCounts:
        """Returns the counts of all parts of a batch, given in order."""
        return reduce(cls.plus, parts, cls())


_NOTHING: Final = DeadLetterCounts()
"""The counts of a part without dead letters, in which no step used a row."""


@attrs.frozen(eq=False)
class Attempt:
    """The output of a step for the rows that it can use, and dead letters for the other rows, if there are any.

    `given`: the number of rows that the step has evaluated; 0 for a step that can use any row.
    """

    rows: pl.LazyFrame
    dead_letters: pl.DataFrame | None = None
    given: int = 0

    @property
    def used(self) -> bool:
        """True if the step could use at least one row."""
        return self.given > (0 if self.dead_letters is None else len(self.dead_letters))

    @property
    def gives(self) -> bool:
        """True if the step has output rows."""
        return not self.rows.head(1).collect().is_empty()
