"""A chart as numbers for the browser: values over processing time, few enough to be drawn at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
import numpy as np

from beamlike.observe.charts.axes import Numbers, Times, finite

_SECOND: Final = 1_000_000
_MOST: Final = 800
"""The greatest number of points of a line; of a longer run, consecutive batches are merged."""


@attrs.frozen(eq=False)
class Line:
    """A line, or marks, of a chart: a value for each point, and the style, which is a class of the style sheet.

    `shape`: "step", "line", "bar", or "mark" for single points.
    """

    label: str
    style: str
    values: Sequence[float | None]
    shape: str = "step"


@attrs.frozen(eq=False)
class Chart:
    """A chart. `kind` says what its values are: "event" times or a "duration" in seconds, "count", "ratio" or "bytes".

    `times` has the processing time of each point, in seconds. `caption` says how to read it. `window_ends` are event
    times, in seconds. A chart `asks` if a choice of an event time asks about its window.
    """

    title: str
    kind: str
    times: Sequence[float]
    lines: Sequence[Line]
    caption: str = ""
    window_ends: Sequence[float] = ()
    stacked: bool = False
    asks: bool = False

    def facts(self) -> dict[str, Any]:
        """Returns the chart for JSON."""
        return attrs.asdict(self)


@attrs.frozen(eq=False)
class Points:
    """The points of all charts of a run: each stands for one batch or several consecutive ones.

    `starts` has the index of the first batch of each point, `ends` that of the last.
    """

    times: Times
    starts: Times
    ends: Times

    @classmethod
    def of(cls, times: Times) -> Points:
        """Creates the points for batches at these processing times (us)."""
        count = len(times)
        each = max(1, -(-count // _MOST))
        starts = np.arange(0, count, each)
        return cls(times, starts, np.minimum(starts + each, count) - 1)

    @property
    def batches(self) -> int:
        """The number of batches of a point."""
        return int(self.ends[0] - self.starts[0]) + 1 if len(self.starts) else 1

    def seconds(self) -> list[float]:
        """Returns the processing time of each point, in seconds."""
        return [time / _SECOND for time in self.times[self.ends].tolist()]

    def marks(self, watermark: Times) -> list[float | None]:
        """Returns a watermark (us) at each point, in seconds; None where it is no time."""
        last = watermark[self.ends]
        known = finite(last)
        return [
            value / _SECOND if there else None
            for value, there in zip(last.tolist(), known.tolist(), strict=True)
        ]

    def sums(self, counts: Times) -> list[float]:
        """Returns the sum of counts in the batches of each point."""
        return [float(one) for one in np.add.reduceat(counts, self.starts).tolist()] if len(counts) else []

    def rates(self, counts: Times, spans: Numbers) -> list[float | None]:
        """Returns counts per second, for batches that lasted so long (s); None where no time passed."""
        if not len(counts):
            return []
        added, lasted = np.add.reduceat(counts, self.starts), np.add.reduceat(spans, self.starts)
        return [
            count / span if span else None
            for count, span in zip(added.tolist(), lasted.tolist(), strict=True)
        ]

    def largest(self, values: Numbers) -> Times:
        """Returns, for each point, the index of its batch with the greatest value."""
        known = np.where(np.isnan(values), -math.inf, values)
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return np.array(
            [first + int(np.argmax(known[first : last + 1])) for first, last in spans], dtype=np.int64
        )

    def most(self, values: Numbers) -> list[float | None]:
        """Returns the greatest value in the batches of each point; None where there is none."""
        if not len(values):
            return []
        known = np.where(np.isnan(values), -math.inf, values)
        greatest = np.maximum.reduceat(known, self.starts).tolist()
        return [None if one == -math.inf else one for one in greatest]

    def last(self, values: Iterable[int]) -> list[float]:
        """Returns the value after the last batch of each point."""
        every = np.fromiter(values, np.int64)
        return [float(one) for one in every[self.ends].tolist()]

    def lag(self, watermark: Times, reference: Times) -> list[float | None]:
        """Returns the greatest lag (s) of a watermark behind the reference; None where one of them is no time."""
        known = finite(watermark) & finite(reference)
        return self.most(np.where(known, (reference - watermark) / _SECOND, math.nan))

    @property
    def each(self) -> str:
        """The batches that a point of a chart stands for, in words."""
        return "a batch" if self.batches == 1 else f"{self.batches} batches"
