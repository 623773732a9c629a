"""Counts the dead letters of a run, logs the first one of each step, and fails the run if there are too many.

If no limit is set, there are too many if a step could use none of its rows.
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
"""The number of rows from which a share is checked before the end of the run. In fewer rows, a single bad one counts
too much.
"""

FEW = 2
"""The number of rows from which a step must have used at least one by the end of the run. A single row may
just be bad.
"""


@attrs.frozen
class Counts:
    """The number of rows that sources read, the dead letters of each step, and the steps that could use a row."""

    rows: int = 0
    letters: Mapping[str, int] = attrs.field(factory=dict)
    uses: StepUsage = attrs.field(factory=StepUsage)

    @classmethod
    def of(cls, record: BatchRecord) -> Counts:
        """Returns the counts of a batch."""
        rows = sum(source.elements + source.dead_letters for source in record.sources.values())
        return cls(rows, dict(record.set_aside), record.uses)

    def plus(self, later: Counts) -> Counts:
        """Returns the sums of both counts."""
        letters = Counter(self.letters) + Counter(later.letters)
        return Counts(self.rows + later.rows, dict(letters), self.uses.then(later.uses))


@attrs.frozen
class Counted:
    """The counts over consecutive runs, divided into those `before` the last batch and those of the last batch.

    `batch` is the number of the last batch. It may be replayed, and its counts are then replaced.
    """

    batch: int | None = None
    before: Counts = attrs.field(factory=Counts)
    last: Counts = attrs.field(factory=Counts)

    @property
    def total(self) -> Counts:
        """The counts of all batches."""
        return self.before.plus(self.last)

    def then(self, record: BatchRecord) -> Counted:
        """Returns the counts including one more batch. A replayed batch is counted once."""
        before = self.before if record.batch == self.batch else self.total
        return Counted(record.batch, before, Counts.of(record))


def _nobody(counted: Counted) -> None:
    """Stores nothing. It is used for a run that no later run can continue."""


@attrs.define
class DeadLetterLimit:
    """A limit for the dead letters of a run: their greatest number, or as a float their share of the rows read.

    Without a limit, each step must have used one of its first `ENOUGH` rows and, at the end, one of its rows. `counted`
    has the counts of earlier runs. They never fail a run again. `keep` receives the counts that a later run needs.
    `exceeded` is the error that was raised.
    """

    limit: int | float | None = None
    counted: Counted = attrs.field(factory=Counted)
    keep: Callable[[Counted], object] = attrs.field(default=_nobody, kw_only=True, repr=False)
    exceeded: TooManyDeadLetters | None = attrs.field(default=None, init=False)
    _errors: Mapping[str, str] = attrs.field(factory=dict, init=False)
    _not_retracted: set[str] = attrs.field(factory=set, init=False)

    @property
    def total(self) -> Counts:
        """The counts of all batches."""
        return self.counted.total

    def take(self, record: BatchRecord) -> None:
        """Adds the record of a batch; a replayed batch counts once. Raises `TooManyDeadLetters` if the limit is
        exceeded.
        """
        self.counted = self.counted.then(record)
        # Each run logs the first dead letters of each step. Steps before a watermark count as their source.
        for step in sorted(record.errors.keys() & record.set_aside.keys() - self._errors.keys()):
            _LOG.warning(
                "step %r could not use %s in batch %d, the last one for this reason: %s; they are its dead letters",
                step,
                rows_text(record.set_aside[step]),
                record.batch,
                record.errors[step],
            )
        self._report_retractions(record)
        # Checked only in a batch with dead letters. So a run whose earlier runs were over the limit can
        # continue with a new one.
        self._errors = {**self._errors, **record.errors}
        try:
            self._require(record.errors, ENOUGH, ENOUGH)
        finally:
            if self.counted.last != Counts():  # a batch without rows changes nothing
                self.keep(self.counted)

    def _report_retractions(self, record: BatchRecord) -> None:
        """Logs steps that failed for more retractions than rows, so that some rows were not retracted."""
        # If a function gives the same for a row and for its retraction, the row is a dead letter before.
        failed, letters = self.total.uses.retractions, self.total.letters
        for step in sorted(record.uses.retractions.keys() - self._not_retracted):
            lost = failed.get(step, 0) - letters.get(step, 0)
            if lost > 0:
                self._not_retracted.add(step)
                _LOG.warning(
                    "step %r failed for %s in batch %d or before, but not for the rows that they retract, which "
                    "stay in the results: functions must return the same for a row and for its retraction",
                    step,
                    "1 retraction" if lost == 1 else f"{lost:,} retractions",
                    record.batch,
                )

    def end(self) -> None:
        """Checks the limit at the end of the run. Raises `TooManyDeadLetters` if it is exceeded."""
        self._require(self._errors, 0, FEW)

    def _require(self, errors: Mapping[str, str], rows: int, of_a_step: int) -> None:
        """Raises `TooManyDeadLetters` if the limit is exceeded. A limit as a share is checked from `rows` rows of the
        run on, and unused steps from `of_a_step` rows of a step on.
        """
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
        """Raises `TooManyDeadLetters` for a step that used none of at least `enough` rows, if no limit is set."""
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
    """Formats a count: `1 row`, `2,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"
