"""Counts the dead letters of a run, logs the first ones of each step, and fails the run if there are too many.

Without a limit there are too many if a step could use none of its rows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

import attrs

from beamlike.errors import TooManyDeadLetters
from beamlike.records.model import BatchRecord
from beamlike.rows.uses import StepUsage

_LOG = logging.getLogger("beamlike")

ENOUGH = 1_000
"""The least number of rows for judging a share before the end of the run: one bad row may be the first of few."""

FEW = 2
"""A step that received this many rows must have used one by the end of the run: a single row may just be bad."""


@attrs.frozen
class Counts:
    """The rows that the sources gave, the dead letters that each step made, and the steps that could use a row."""

    rows: int = 0
    letters: Mapping[str, int] = attrs.field(factory=dict)
    uses: StepUsage = attrs.field(factory=StepUsage)

    @classmethod
    def of(cls, record: BatchRecord) -> Counts:
        """The counts of a batch."""
        rows = sum(source.elements + source.dead_letters for source in record.sources.values())
        return cls(rows, dict(record.set_aside), record.uses)

    def plus(self, later: Counts) -> Counts:
        """The sum of both counts."""
        letters = Counter(self.letters) + Counter(later.letters)
        return Counts(self.rows + later.rows, dict(letters), self.uses.then(later.uses))


@attrs.frozen
class Counted:
    """The counts over the batches of consecutive runs: those `before` the last batch, and those of it.

    `batch` is the number of the last one, which may be run again.
    """

    batch: int | None = None
    before: Counts = attrs.field(factory=Counts)
    last: Counts = attrs.field(factory=Counts)

    @property
    def total(self) -> Counts:
        """The counts of all batches."""
        return self.before.plus(self.last)

    def then(self, record: BatchRecord) -> Counted:
        """The counts including one more batch. A replayed batch is counted once."""
        before = self.before if record.batch == self.batch else self.total
        return Counted(record.batch, before, Counts.of(record))


def _nobody(counted: Counted) -> None:
    """Stores nothing: no run can continue this one."""


@attrs.define
class DeadLetterLimit:
    """Counts dead letters over the batches of a run. `limit`: their greatest number, or their share of the rows read.

    Without a limit, each step must have used one of its first `ENOUGH` rows, and at the end, one of its rows. `counted`
    are the counts of earlier runs, which are not judged again; `keep` receives the counts that a later run needs.
    `exceeded` is the error that was raised.
    """

    limit: int | float | None = None
    counted: Counted = attrs.field(factory=Counted)
    keep: Callable[[Counted], object] = attrs.field(default=_nobody, kw_only=True, repr=False)
    exceeded: TooManyDeadLetters | None = attrs.field(default=None, init=False)
    _errors: Mapping[str, str] = attrs.field(factory=dict, init=False)

    @property
    def total(self) -> Counts:
        """The counts of all batches."""
        return self.counted.total

    def take(self, record: BatchRecord) -> None:
        """Adds a batch. A replayed batch is counted once. Raises `TooManyDeadLetters`."""
        self.counted = self.counted.then(record)
        # Each run logs its first ones. Those of a step before a watermark count, and are logged, as the source's.
        for step in sorted(record.errors.keys() & record.set_aside.keys() - self._errors.keys()):
            _LOG.warning(
                "step %r could not use %s in batch %d, the last one for this reason: %s; they are its dead letters",
                step,
                rows_text(record.set_aside[step]),
                record.batch,
                record.errors[step],
            )
        # Only dead letters of this batch can exceed the limit, so a run can continue with a new limit.
        self._errors = {**self._errors, **record.errors}
        try:
            self._require(record.errors, ENOUGH, ENOUGH)
        finally:
            if self.counted.last != Counts():  # a batch without rows changes nothing
                self.keep(self.counted)

    def end(self) -> None:
        """Judges the counts at the end of the run. Raises `TooManyDeadLetters`."""
        self._require(self._errors, 0, FEW)

    def _require(self, errors: Mapping[str, str], rows: int, of_a_step: int) -> None:
        """Raises `TooManyDeadLetters` for these counts, if the run or a step has that many rows."""
        if not errors:
            return
        try:
            self._judge(errors, enough=rows)
            self._require_uses(errors, enough=of_a_step)
        except TooManyDeadLetters as error:
            self.exceeded = error
            raise

    def _judge(self, errors: Mapping[str, str], *, enough: int) -> None:
        rows, letters = self.total.rows, Counter(self.total.letters)
        if self.limit is None or (isinstance(self.limit, float) and rows < enough):
            return
        if letters.total() > (self.limit if isinstance(self.limit, int) else self.limit * rows):
            worst = max(errors, key=lambda step: (letters[step], step))
            each = ", ".join(f"{step!r} {count:,}" for step, count in letters.most_common())
            raise TooManyDeadLetters(
                worst,
                f"{rows_text(letters.total())} of {rows:,} are dead letters, more than max_dead_letters={self.limit} "
                f"allows ({each}); the last one of this step: {errors[worst]}",
            )

    def _require_uses(self, errors: Mapping[str, str], *, enough: int) -> None:
        """Raises `TooManyDeadLetters` for a step that used none of that many rows, if there is no limit."""
        none = {step: unused for step, unused in self.total.uses.none.items() if step in errors}
        if self.limit is not None or not none:
            return
        step, unused = max(none.items(), key=lambda item: (item[1].rows, item[0]))
        if unused.rows >= enough:
            raise TooManyDeadLetters(
                step,
                f"it could use none of its {rows_text(unused.rows)}; the first error: {unused.error}; if that is "
                "expected, set a limit for dead letters: bl.Pipeline(..., max_dead_letters=...)",
            )


def rows_text(count: int) -> str:
    """`1 row`, `2,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"
