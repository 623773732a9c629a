"""Warns about event times in January 1970, which are often seconds that were declared as milliseconds."""

from __future__ import annotations

import logging
from typing import Final

import attrs

from beamlike.plan.model import Plan, SourcePlan
from beamlike.records.model import BatchRecord
from windowing.time import DAY

_LOG = logging.getLogger("beamlike")

_JANUARY: Final = range(-31 * DAY, 31 * DAY)  # a watermark may be behind the event times
_COARSER: Final = {"ms": "'s'", "us": "'ms' or 's'", "ns": "'us', 'ms' or 's'"}
"""For each declared unit, the units that whole numbers may really have. Seconds have none."""


@attrs.define
class EarlyTimes:
    """Checks the watermark of each source after the first batch with elements of it."""

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
