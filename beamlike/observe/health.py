"""Judges a run by its lags: it is healthy, data wait, or the system is stuck or slow.

The rules are from Streaming Systems, figures 3-12 to 3-15. If the lags of event time and processing time both grow,
operations are stuck or slow. If only the event-time lag grows, data wait. A saw-tooth is healthy.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from beamlike.observe.charts.axes import Numbers
from beamlike.observe.charts.layers import Frame
from beamlike.observe.charts.series import RunSeries
from beamlike.observe.totals import Losses
from beamlike.observe.waiting.blocking import BlockingChain
from beamlike.observe.waiting.explain import output_text, run_state
from beamlike.observe.words import clock, current_texts, failure_texts, in_hand_text, length, rows
from beamlike.records.history import History
from beamlike.records.model import furthest_behind
from beamlike.records.present import Present
from windowing.time import MAX_TIME

_SECOND = 1_000_000
_LATELY = 60  # the number of latest batches that are examined
_ENOUGH = 6  # the number of batches needed to say that a lag grows
_MUCH = 3  # a batch is stuck after so many times the usual duration
_GROWN = 1.25  # batches are slow if they grow to so many times the usual duration
_NEVER_LONG = 10.0  # seconds; a shorter batch is never stuck
_SILENT = 30.0  # seconds; after a shorter silence, a source does not count as silent
_FEW = 0.01  # a run is healthy if it has lost at most this share of its latest rows


@attrs.frozen(eq=False)
class Health:
    """The health of a run, judged by its lags."""

    history: History
    present: Present
    series: RunSeries
    frame: Frame

    def verdict(self) -> list[str]:
        """Returns the verdict in one or two sentences."""
        batch = self.present.batch
        first = failure_texts(self.history, self.present)
        if batch is None:
            return [*first, "No batch is complete yet", *current_texts(self.history, self.present)]
        if self.history.closed == "failed" or self.history.alive is False:
            return [*first, f"{run_state(self.history)}, after batch {batch.batch}"]
        in_hand = in_hand_text(self.present)
        if self._is_stuck() and in_hand:
            return [f"Stuck: {in_hand}", self._usual()]
        if self.history.closed is None and self._is_slow():
            return list(self._slow())
        return [*self._ended(), *(self._waits() or self._healthy())]

    def _durations(self) -> Numbers:
        """Returns the durations of the latest batches, in seconds."""
        took = [
            (one.finished - one.processing_time) / _SECOND
            for one in self.history.batches[-_LATELY:]
            if one.finished is not None
        ]
        return np.array(took or [0.0])

    def _is_stuck(self) -> bool:
        lasts = (self.present.in_hand_for or 0) / _SECOND
        return lasts > max(_NEVER_LONG, _MUCH * float(self._durations().max()))

    def _usual(self) -> str:
        longest = length(round(float(self._durations().max()) * _SECOND))
        return f"The longest of the last batches took {longest}; until this one is done, both lags grow"

    def _is_slow(self) -> bool:
        """True if the processing-time lag grows (figures 3-12 and 3-13)."""
        took = self._durations()
        return _grows(took) and took[-1] > max(1.0, _GROWN * float(np.median(took)))

    def _slow(self) -> Iterator[str]:
        took = self._durations()
        first, last = (length(round(float(one) * _SECOND)) for one in (took[0], took[-1]))
        behind = any(_grows(self._lag(name)) for name in self.series.stages)
        yield (
            f"The system is slow: batches take longer and longer, {first} {len(took) - 1} batches ago and {last} the "
            f"last one{', and event time falls behind' if behind else ''}"
        )
        spent = {name: float(own[-1]) for name, own in self.series.own_times().items()}
        slowest = max(spent, key=lambda name: spent[name], default=None)
        if slowest is not None and spent[slowest] > float(took[-1]) / 2:
            before = any(one in self.series.stages for one in self.history.plan.stages[slowest].inputs)
            where = "in stage" if before else "before or in stage"
            yield f"Most of that is spent {where} `{slowest}`"

    def _lag(self, stage: str) -> Numbers:
        """Returns the lag of a stage's output watermark after each of the latest batches, in seconds."""
        _, lags = self.frame.lag(self.series.stages[stage].output)
        return lags[::2][-_LATELY:]

    def _ended(self) -> list[str]:
        if self.history.closed is None:
            return []
        batch = self.present.batch
        assert batch is not None
        marks = [stage.output for stage in batch.stages.values()] or [MAX_TIME]
        if min(marks) >= MAX_TIME:
            return [f"{run_state(self.history)}, and all windows are closed"]
        return [f"{run_state(self.history)} after batch {batch.batch}, with windows open"]

    def _waits(self) -> list[str]:
        """Returns sentences about the most downstream stage whose lag grows in event time only (figure 3-14)."""
        batch = self.present.batch
        assert batch is not None
        if self.history.closed is not None:
            return []
        quiet = self.present.time - batch.processing_time
        if quiet > _SECOND * max(_SILENT, _MUCH * self._interval()) and self.present.in_hand is None:
            return [f"Waits for input: no batch for {length(quiet)}, since {clock(batch.processing_time)}"]
        chain = BlockingChain(self.history.plan, self.present, batch)
        for name in reversed(list(self.history.plan.stages)):
            silent = self._silent(chain, name)
            if chain.output(name) < MAX_TIME and (silent or _grows(self._lag(name))):
                waits = [link for link in chain.output_waits(name) if link.waits is not None]
                shown = [link for link in waits if link.waits == "source"] if silent else waits[:1]
                return [f"Data waits: {output_text(chain, name)}", *map(str, shown)]
        return []

    def _silent(self, chain: BlockingChain, name: str) -> bool:
        """True if the source that a stage waits for has been silent for much longer than the time between batches."""
        while name not in chain.plan.sources:
            name = furthest_behind(chain.upstream(name))
        source = chain.source(name)
        if source.since is None or source.idle or source.watermark >= MAX_TIME:
            return False
        return self.present.time - source.since > _SECOND * max(_SILENT, _MUCH * self._interval())

    def _interval(self) -> float:
        """Returns the median time between batches, in seconds."""
        times = self.series.times[-_LATELY:]
        return float(np.median(np.diff(times))) / _SECOND if len(times) > 1 else 0.0

    def _healthy(self) -> list[str]:
        """Returns the sentences for a healthy run (figure 3-15), with its dropped elements and dead letters."""
        every = Losses.of(self.history, self.history.batches)
        losses = [f"On the way, {every} dropped or set aside"] if every.total else []
        if self.history.closed is not None:
            return losses
        took = length(round(float(np.median(self._durations())) * _SECOND))
        lately = Losses.of(self.history, self.history.batches[-_LATELY:])
        if lately.total > _FEW * lately.read:
            return [
                f"Loses rows: of the last {rows(lately.read)}, {lately} dropped or set aside, most of them by "
                f"{lately.most}; no lag grows, and a batch takes {took}",
                *losses,
            ]
        return [f"Healthy: no lag grows; a batch takes {took}", *losses]


def _grows(lags: Numbers) -> bool:
    """True if the last third of the values is above all earlier ones. A saw-tooth falls back, but a growing lag does
    not.
    """
    third = len(lags) // 3
    return len(lags) >= _ENOUGH and float(lags[-third:].min()) > float(lags[:-third].max())
