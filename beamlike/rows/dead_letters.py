"""Dead letters of steps: rows that a step cannot use, with the step, the reason, and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final, Literal

import attrs
import polars as pl
from narwhals.exceptions import NarwhalsError

from beamlike.errors import StepError
from beamlike.rows.uses import Unused, Uses
from beamlike.rows.values import row_json

OnError = Literal["dead_letters", "fail"]
"""What becomes of a row that a step cannot use: it is set aside, or it fails the run."""

UNCLAIMED: Final = "@dead-letters"
"""Where dead letters go that no collection of the user's takes."""

EXPRESSION_ERRORS: Final = (pl.exceptions.PolarsError, NarwhalsError)
"""What expressions raise, lazily and at once."""

SHOWN: Final = 1000  # characters of an error; a value that it quotes may be of any length


def dead_letters(step: str, rows: pl.DataFrame, errors: Sequence[str]) -> pl.DataFrame:
    """Returns a dead letter for each row, with the columns of `beamlike.rows.event_time.DEAD_LETTERS`."""
    return rows.select(
        pl.lit(step).alias("step"),
        pl.Series("error", errors, dtype=pl.String),
        row_json(rows.schema).alias("row"),
    )


def error_text(error: Exception) -> str:
    """Returns an exception as the `error` of a dead letter, `ValueError: the text`, cut to `SHOWN` characters."""
    if isinstance(error, StepError):
        return str(error.args[1])[:SHOWN]
    text = reason(error) if isinstance(error, EXPRESSION_ERRORS) else str(error)
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:SHOWN]


def reason(error: Exception) -> str:
    """Returns the first line of an error, as polars appends its whole plan."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct names in alphabetic order."""
    return tuple(sorted({*names}))


@attrs.frozen
class DeadLetterCounts:
    """The number of dead letters of each step, with the last and the first error of each.

    `used`: the steps that are known to have used some row, in alphabetic order.
    """

    counts: Mapping[str, int] = attrs.field(factory=dict)
    errors: Mapping[str, str] = attrs.field(factory=dict)
    firsts: Mapping[str, str] = attrs.field(factory=dict)
    used: tuple[str, ...] = attrs.field(default=(), converter=_in_order)

    @classmethod
    def of(cls, frames: Iterable[pl.DataFrame], used: Iterable[str] = ()) -> DeadLetterCounts:
        """Counts frames of dead letters, given in order."""
        found = cls(used=used)
        for frame in frames:
            error = pl.col("error")
            each = frame.group_by("step", maintain_order=True).agg(
                pl.len(), error.last(), error.first().alias("first")
            )
            steps, *columns = each.get_columns()
            found = found.plus(cls(*(dict(zip(steps, column, strict=True)) for column in columns)))
        return found

    @property
    def uses(self) -> Uses:
        """The steps that used some row, as far as is known, and those that used none."""
        none = {name: Unused(count, self.firsts[name]) for name, count in self.counts.items() if count}
        return Uses(self.used).then(Uses((), none))

    @property
    def total(self) -> int:
        """The number of dead letters of all steps."""
        return sum(self.counts.values())

    def plus(self, other: DeadLetterCounts) -> DeadLetterCounts:
        """Returns the counts of two parts of a batch; `other` is the later one."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        firsts = {**other.firsts, **self.firsts}
        return DeadLetterCounts(
            dict(counts), {**self.errors, **other.errors}, firsts, (*self.used, *other.used)
        )

    def of_source(self, name: str) -> DeadLetterCounts:
        """Returns the counts with the last error also as one of the source.

        The source counts the dead letters of steps before its watermark.
        """
        *_, (step, why) = self.errors.items() or [(name, "")]
        told = why if step == name else f"in step {step!r}: {why}"
        return attrs.evolve(self, errors={**self.errors, name: told} if self.errors else {})

    @classmethod
    def of_all(cls, parts: Iterable[DeadLetterCounts]) -> DeadLetterCounts:
        """Returns the counts of all parts of a batch, given in order."""
        return reduce(cls.plus, parts, cls())


@attrs.frozen(eq=False)
class Attempt:
    """The output of a step for the rows that it can use, and dead letters for the others, if there are any.

    `given`: the number of rows that the step has evaluated; 0 for a step that can use any row.
    """

    rows: pl.LazyFrame
    dead_letters: pl.DataFrame | None = None
    given: int = 0

    @property
    def used(self) -> bool:
        """True if the step could use some row."""
        return self.given > (0 if self.dead_letters is None else len(self.dead_letters))

    @property
    def gives(self) -> bool:
        """True if the step has output rows."""
        return not self.rows.head(1).collect().is_empty()
