"""Warnings about the input of a run: event times in January 1970, and files in an order that makes their rows late.

Event times in January 1970 are often seconds that were declared as milliseconds.
"""

from __future__ import annotations

import logging
from typing import Final

import attrs

from beamlike.io.sources import ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.records.model import BatchRecord
from beamlike.runtime.batch.ingested import Newest
from beamlike.runtime.run.dead_letter_limit import rows_text
from windowing.time import DAY, format_time

_LOG = logging.getLogger("beamlike")

_JANUARY: Final = range(-31 * DAY, 31 * DAY)  # wide, because a watermark may be earlier than the event times
_COARSER: Final = {"ms": "'s'", "us": "'ms' or 's'", "ns": "'us', 'ms' or 's'"}
"""For each declared unit, the coarser units that whole numbers may really have. No unit is coarser than seconds."""


@attrs.define
class EarlyTimes:
    """A check of each source's watermark, after the first batch in which the source has elements."""

    plan: Plan
    _looked: set[str] = attrs.field(factory=set)

    def take(self, record: BatchRecord) -> None:
        """Checks the sources of a batch."""
        for name, source in record.sources.items():
            if source.elements and name not in self._looked:
                self._looked.add(name)
                if source.watermark in _JANUARY:
                    _hint(self.plan.sources[name])


def _hint(source: SourcePlan) -> None:
    unit = None if source.time is None else source.time.unit
    if source.time is not None and unit in _COARSER:
        _LOG.warning(
            "source %r: its event times, column %r with timestamp_unit=%r, are in January 1970; are they in %s?",
            source.name,
            source.time.column,
            unit,
            _COARSER[unit],
        )


NO_ORDER: Final = "docs/watermarks.md#files-in-no-order says which watermark suits files in no order"


@attrs.define
class FileOrder:
    """A check that files are read in the order of their events. Only the first problem of each source is logged."""

    reported: set[str] = attrs.field(factory=set)
    before: dict[str, frozenset[str]] = attrs.field(factory=dict)
    """The files of the previous batch, by source."""

    def check(self, name: str, source: object, newest: Newest, watermark: int) -> None:
        """Checks the files of a batch against the watermark that their source had before the batch.

        If all rows of a file are late, other files were probably read too early. If only some rows are late, the events
        themselves may be late.
        """
        before = self.before.get(name, frozenset())
        if newest:
            self.before[name] = frozenset(newest)
        late = {file: found for file, found in newest.items() if found[1] < watermark}
        if not late or name in self.reported:
            return
        advice = source.order_advice if isinstance(source, ReadInFiles) else ""
        if not advice:
            return
        self.reported.add(name)
        file, (rows, last) = max(late.items(), key=lambda item: (item[1][0], item[0]))
        others, last_time, reached = _others(len(late) - 1), format_time(last), format_time(watermark)
        if file in before:
            _LOG.warning(
                "source %r: %s of %s %s late: the newest is from %s, and earlier rows of that file have advanced the "
                "watermark to %s, so its rows are not in order of time; %s",
                *(name, rows_text(rows), file, others, last_time, reached, NO_ORDER),
            )
            return
        _LOG.warning(
            "source %r: all %s of %s %s late: the newest is from %s, and files that were read before have advanced the "
            "watermark to %s; %s",
            *(name, rows_text(rows), file, others, last_time, reached, advice),
        )


def _others(count: int) -> str:
    return "are" if not count else f"(and of {count:,} more {'file' if count == 1 else 'files'}) are"
