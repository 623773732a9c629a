"""Completeness: the share of the rows of a window that sources have read, as their learned lateness expects it.

lateness of a row     how far it is behind the newest event time of all earlier batches of its source
learned lateness      the weights of rows by lateness; a weight halves with each hour of event time
share of a window     the mean, over the event times t in the window and over the learned lateness l,
                      of whether t + l is at or before the newest event time
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs
import polars as pl

from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

PROVED: Final = 1.0
"""The share of a window of which no row can be missing. An estimate is always less."""


@attrs.frozen(eq=False)
class Expected:
    """The knowledge of one source after a batch.

    Attributes:
        newest: The newest event time (us) of the source; None before its first rows.
        lateness: The learned values of lateness (us), in order.
        weights: The weight of the rows of each.
        watermark: The watermark of the source (us).
        proved: True if no row can be behind the watermark: the strategy is perfect, or the input has ended, and no row
            was ever late.
        idle: True if the source does not count.
    """

    newest: int | None
    lateness: Sequence[int]
    weights: Sequence[float]
    watermark: int
    proved: bool = False
    idle: bool = False

    @cached_property
    def _known(self) -> tuple[Numbers, Numbers, Numbers]:
        """The learned lateness (us) in order; the weight of all rows before each, and their weight times lateness."""
        import numpy as np

        values, counts = np.array(self.lateness, np.float64), np.array(self.weights, np.float64)
        return values, _sums(counts), _sums(counts * values)

    @property
    def reached(self) -> int:
        """The newest event time (us); the beginning of time before the first rows."""
        return MIN_TIME if self.newest is None else self.newest

    def shares(self, starts: Numbers, ends: Numbers) -> Numbers:
        """Returns the estimated share of the rows of windows (us); NaN if nothing has been learned."""
        import numpy as np

        if self.newest is None or not self.weights:
            return np.full(len(starts), np.nan)
        late, weight, moment = self._known
        since_end, since_start = self.newest - ends, self.newest - starts
        # Rows of a lateness up to `since_end` have all arrived. Of those of a greater lateness, the earliest have.
        whole = np.searchsorted(late, since_end, side="right")
        some = np.maximum(whole, np.searchsorted(late, since_start, side="left"))
        part = since_start * (weight[some] - weight[whole]) - (moment[some] - moment[whole])
        arrived = weight[whole] + part / (ends - starts)
        # One more row is expected, which has not arrived, so that no estimate is 1.
        shares: Numbers = np.clip(arrived, 0.0, weight[-1]) / (weight[-1] + 1.0)
        return shares

    def complete_until(self, share: float) -> int:
        """Returns the event time (us) such that of the rows at any time before it, this share has arrived."""
        if self.watermark >= MAX_TIME:
            return MAX_TIME
        if self.proved:
            return self.watermark
        import numpy as np

        if self.newest is None or not self.weights:
            return MIN_TIME
        late, weight, _ = self._known
        place = int(np.searchsorted(weight[1:], share * (weight[-1] + 1.0)))
        return self.newest - int(late[place]) if place < len(late) else MIN_TIME


@attrs.frozen(eq=False)
class Completeness:
    """The completeness of the windows of a stage after a batch, from the knowledge of all sources before the stage.

    The share of a window is the least of the sources that are not idle and have had rows, as a watermark is.
    """

    sources: Sequence[Expected] = ()

    @property
    def _counted(self) -> list[Expected]:
        """The sources that count: all with rows that are not idle, or all with rows if the others have none."""
        heard = [source for source in self.sources if source.newest is not None]
        return [source for source in heard if not source.idle] or heard

    @property
    def newest(self) -> int | None:
        """The event time (us) that all sources have reached; None before their first rows."""
        return min((source.reached for source in self._counted), default=None)

    def shares(self, starts: pl.Series, ends: pl.Series, watermark: int) -> pl.Series:
        """Returns the share of the rows of windows that have been read; null if nothing has been learned.

        It is `PROVED` for a window that is over at this input watermark (us) of the stage, if no source can have a
        further row of it. The share of a global window, whose rows are of all times, is null unless it is proved.
        """
        import numpy as np

        begin, end = (times.to_numpy().astype(np.float64) for times in (starts, ends))
        shares = np.full(len(starts), np.nan)
        if counted := self._counted:
            shares = np.min([source.shares(begin, end) for source in counted], axis=0)
            shares[ends.to_numpy() >= GLOBAL_WINDOW_END] = np.nan
        if self.sources and all(source.proved for source in self.sources):
            shares[ends.to_numpy() <= watermark] = PROVED
        return pl.Series(shares, dtype=pl.Float64).fill_nan(None)

    def gate(self, watermark: int, share: float, within: int) -> int:
        """Returns the input watermark (us) of a stage that waits until this share of rows has arrived.

        It never waits for longer than `within` (us) of event time after the end of a window.
        """
        if not self._counted:
            return watermark
        return min(
            watermark,
            *(max(source.complete_until(share), source.reached - within) for source in self._counted),
        )


def _sums(values: Numbers) -> Numbers:
    """Returns the sums of the first 0, 1, 2, ... values, added in order, so that every machine gets the same ones."""
    import numpy as np

    return np.concatenate([[0.0], np.cumsum(values)])
