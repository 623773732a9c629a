"""A hint for event times that seem to be in another unit than was said: seconds as milliseconds are in January 1970."""

from __future__ import annotations

import logging
from typing import Final

import attrs

from beamlike.plan.model import Plan, SourcePlan
from beamlike.records.model import BatchRecord
from windowing.time import DAY

_LOG = logging.getLogger("beamlike")

_JANUARY: Final = range(-31 * DAY, 31 * DAY)  # a watermark may be behind the times
_COARSER: Final = {"ms": "'s'", "us": "'ms' or 's'", "ns": "'us', 'ms' or 's'"}
"""The units that whole numbers may be in where they are said to be in this one; of seconds there is none."""


@attrs.define
class EarlyTimes:
    """Looks at the watermark of each source after the first batch in which something has come of it."""

    plan: Plan
    _looked: set[str] = attrs.field(factory=set)

    def take(self, record: BatchRecord) -> None:
        """One more batch."""
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
