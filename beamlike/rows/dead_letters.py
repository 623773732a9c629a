"""Dead letters of steps: rows that a step cannot use, with the step and the reason, and how many there were."""

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
    """One dead letter for each row, of the columns of `beamlike.rows.event_time.DEAD_LETTERS`."""
    return rows.select(
        pl.lit(step).alias("step"),
        pl.Series("error", errors, dtype=pl.String),
        row_json(rows.schema).alias("row"),
    )


def error_text(error: Exception) -> str:
    """An exception as the `error` of a dead letter: `ValueError: the text`, cut where it is long."""
    if isinstance(error, StepError):
        return str(error.args[1])[:SHOWN]
    text = reason(error) if isinstance(error, EXPRESSION_ERRORS) else str(error)
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:SHOWN]


def reason(error: Exception) -> str:
    """The first line of what went wrong: polars appends its whole plan."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each once."""
    return tuple(sorted({*names}))


@attrs.frozen
class DeadLetterCounts:
    """How many dead letters each step made, and the error of the last and of the first one of each.

    `used`: the steps that are known to have used some row, in the order of the alphabet.
    """

    counts: Mapping[str, int] = attrs.field(factory=dict)
    errors: Mapping[str, str] = attrs.field(factory=dict)
    firsts: Mapping[str, str] = attrs.field(factory=dict)
    used: tuple[str, ...] = attrs.field(default=(), converter=_in_order)

    @classmethod
    def of(cls, frames: Iterable[pl.DataFrame], used: Iterable[str] = ()) -> DeadLetterCounts:
        """Of frames of dead letters, in order."""
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
        """Which steps could use some row, as far as is known, and which none."""
        none = {name: Unused(count, self.firsts[name]) for name, count in self.counts.items() if count}
        return Uses(self.used).then(Uses((), none))

    @property
    def total(self) -> int:
        """Of all steps together."""
        return sum(self.counts.values())

    def plus(self, other: DeadLetterCounts) -> DeadLetterCounts:
        """Those of two parts of a batch, the later one last."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        firsts = {**other.firsts, **self.firsts}
        return DeadLetterCounts(
            dict(counts), {**self.errors, **other.errors}, firsts, (*self.used, *other.used)
        )

    def of_source(self, name: str) -> DeadLetterCounts:
        """The same, with the last error also as one of the source, which counts those of steps before its watermark."""
        *_, (step, why) = self.errors.items() or [(name, "")]
        told = why if step == name else f"in step {step!r}: {why}"
        return attrs.evolve(self, errors={**self.errors, name: told} if self.errors else {})

    @classmethod
    def of_all(cls, parts: Iterable[DeadLetterCounts]) -> DeadLetterCounts:
        """Of all parts of a batch, the latest last."""
        return reduce(cls.plus, parts, cls())


@attrs.frozen(eq=False)
class Attempt:
    """What a step gives for the rows that it can use, and as dead letters the others, if there are any.

    `given`: how many rows it has looked at; 0 for a step that can use any.
    """

    rows: pl.LazyFrame
    dead_letters: pl.DataFrame | None = None
    given: int = 0

    @property
    def used(self) -> bool:
        """Whether there was a row that it could use."""
        return self.given > (0 if self.dead_letters is None else len(self.dead_letters))

    @property
    def gives(self) -> bool:
        """Whether rows come out of the step."""
        return not self.rows.head(1).collect().is_empty()
