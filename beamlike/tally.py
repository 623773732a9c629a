"""The dead letters of a run so far: the first ones of each step are told, and too many fail the run.

Where nobody has said how many are too many, they are if a step could use no row at all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from beamlike.errors import TooManyDeadLetters
from beamlike.records import BatchRecord
from beamlike.uses import Uses

_LOG = logging.getLogger("beamlike")

ENOUGH = 1_000
"""Of so many rows a share is judged; of fewer only at the end of the run, as one bad row may be the first of them."""

FEW = 2
"""Of so many rows a step must have used one at the end of the run: a single one may just be bad."""


@attrs.define
class Tally:
    """Counts over the batches of a run. `limit`: how many dead letters it may have, or which share of the rows read.

    Without it, each step must have used one of its first `ENOUGH` rows; at the end, one of those that it had.
    """

    limit: int | float | None = None
    rows: int = 0
    letters: Counter[str] = attrs.field(factory=Counter)
    _last: BatchRecord | None = None
    _errors: Mapping[str, str] = attrs.field(factory=dict)
    _uses: Uses = attrs.field(factory=Uses)
    _uses_before: Uses = attrs.field(factory=Uses)  # the last batch, which may be run again

    @classmethod
    def of(cls, limit: int | float | None, batches: Iterable[BatchRecord]) -> Tally:
        """Of a run that goes on after these batches, which are not judged again."""
        tally = cls(limit)
        for record in batches:
            tally._count(record)
        return tally

    def take(self, record: BatchRecord) -> None:
        """One more batch; one that is run again counts once. Raises `TooManyDeadLetters`."""
        self._count(record)
        # Each run tells of its first ones. Those of a step before a watermark count, and are told, as the source's.
        for step in sorted(record.errors.keys() & record.set_aside.keys() - self._errors.keys()):
            _LOG.warning(
                "step %r could not use %s in batch %d, the last one for this reason: %s; they are its dead letters",
                step,
                rows_text(record.set_aside[step]),
                record.batch,
                record.errors[step],
            )
        # Only what this batch adds can be too much: a run that goes on with a new limit is not stuck at the old one.
        self._errors = {**self._errors, **record.errors}
        if record.errors:
            self._judge(record.errors, enough=ENOUGH)
            self._require_uses(record.errors, enough=ENOUGH)

    def end(self) -> None:
        """No more batches are to come. Raises `TooManyDeadLetters`."""
        if self._last is not None and self._errors:
            self._judge(self._errors, enough=0)
            self._require_uses(self._errors, enough=FEW)

    def _count(self, record: BatchRecord) -> None:
        if self._last is not None and self._last.batch == record.batch:
            self.rows -= _read(self._last)
            self.letters.subtract(self._last.set_aside)
            self._uses = self._uses_before
        self._uses_before, self._uses = self._uses, self._uses.then(record.uses)
        self.rows += _read(record)
        self.letters.update(record.set_aside)
        self._last = record

    def _judge(self, errors: Mapping[str, str], *, enough: int) -> None:
        total = self.letters.total()
        if self.limit is None or (isinstance(self.limit, float) and self.rows < enough):
            return
        if total > (self.limit if isinstance(self.limit, int) else self.limit * self.rows):
            worst = max(errors, key=lambda step: (self.letters[step], step))
            each = ", ".join(f"{step!r} {count:,}" for step, count in self.letters.most_common() if count)
            raise TooManyDeadLetters(
                worst,
                f"{rows_text(total)} of {self.rows:,} are dead letters, more than max_dead_letters={self.limit} allows "
                f"({each}); the last one of this step: {errors[worst]}",
            )

    def _require_uses(self, errors: Mapping[str, str], *, enough: int) -> None:
        """Raises `TooManyDeadLetters` for a step that could use none of so many rows, if nobody has set a limit."""
        none = {step: unused for step, unused in self._uses.none.items() if step in errors}
        if self.limit is not None or not none:
            return
        step, unused = max(none.items(), key=lambda item: (item[1].rows, item[0]))
        if unused.rows >= enough:
            raise TooManyDeadLetters(
                step,
                f"it could use none of its {rows_text(unused.rows)}; the first error: {unused.error}; if that is as it "
                "should be, say how many dead letters a run may have: bl.Pipeline(..., max_dead_letters=...)",
            )


def _read(record: BatchRecord) -> int:
    """The rows that its sources gave."""
    return sum(source.elements + source.dead_letters for source in record.sources.values())


def rows_text(count: int) -> str:
    """`1 row`, `2,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"
