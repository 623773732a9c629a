"""A history as arrays for charts: the values of each source and stage, by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from beamlike.observe.charts.axes import Numbers, Times, finite
from beamlike.records.history import History
from beamlike.records.model import SourceRecord, StageRecord
from windowing.time import MAX_TIME, MIN_TIME

_SECOND: Final = 1_000_000
_MOST_POINTS: Final = 1_000
_PARTS: Final = 250  # parts into which a longer line is divided


@attrs.frozen(eq=False)
class SourceSeries:
    """The values of a source after each batch: its watermark (us) and its counts."""

    watermark: Times
    elements: Times
    dead_letters: Times


@attrs.frozen(eq=False, kw_only=True)
class StageSeries:
    """The values of a stage after each batch: watermarks (us), processing-time lags (s), and counts by name.

    `upstream` has the watermarks of its inputs. `slowest` is the least watermark of all sources upstream. `percentiles`
    has the percentile watermarks of its output.
    """

    input: Times
    output: Times
    input_system_lag: Numbers
    output_system_lag: Numbers
    panes: Mapping[str, Times]
    dropped: Mapping[str, Times]
    upstream: Mapping[str, Times]
    slowest: Times
    percentiles: Mapping[int, Times]


@attrs.frozen(eq=False)
class RunSeries:
    """The values of a run: the processing time (us) of each batch, and the sources and stages by name."""

    times: Times
    sources: Mapping[str, SourceSeries]
    stages: Mapping[str, StageSeries]

    def event_times(self) -> list[Times]:
        """Returns all watermarks."""
        stages = (marks for one in self.stages.values() for marks in (one.input, one.output))
        return [*(one.watermark for one in self.sources.values()), *stages]

    def own_times(self) -> dict[str, Numbers]:
        """Returns the time (s) of each batch that each stage took itself: since the stage that was done before it.

        Stages of one level have the same inputs, and run one after the other. The sum of all is at most the time of the
        batch. The time of the first one includes reading.
        """
        done = np.array([one.output_system_lag for one in self.stages.values()]).reshape(-1, len(self.times))
        order = np.argsort(done, axis=0, kind="stable")
        since = np.diff(np.take_along_axis(done, order, axis=0), axis=0, prepend=0.0)
        own = np.empty_like(done)
        np.put_along_axis(own, order, since, axis=0)
        return dict(zip(self.stages, own, strict=True))

    @property
    def newest(self) -> Times:
        """The most advanced watermark of all sources. It is plus infinity only when all sources have ended."""
        marks = [one.watermark for one in self.sources.values()]
        known = [np.where(finite(one), one, MIN_TIME) for one in marks]
        return np.where(np.minimum.reduce(marks) == MAX_TIME, MAX_TIME, np.maximum.reduce(known))


_NO_SOURCE: Final = SourceRecord(MIN_TIME)
_NO_STAGE: Final = StageRecord(MIN_TIME, MIN_TIME, "")
"""Records for batches of an older plan that does not have the source or stage."""


def run_series(history: History) -> RunSeries:
    """Converts a history to arrays."""
    plan, batches = history.plan, history.batches
    times = _times(batch.processing_time for batch in batches)
    sources = {
        name: _source([batch.sources.get(name, _NO_SOURCE) for batch in batches]) for name in plan.sources
    }
    marks = {name: source.watermark for name, source in sources.items()}
    slowest = dict(marks)
    stages: dict[str, StageSeries] = {}
    for name, plan_of_stage in plan.stages.items():
        records = [batch.stages.get(name, _NO_STAGE) for batch in batches]
        inputs = [one for one in plan_of_stage.inputs if one in marks]
        slowest[name] = np.minimum.reduce([slowest[one] for one in inputs])
        before = [stages[one].output_system_lag for one in inputs if one in stages]
        upstream = {one: marks[one] for one in inputs}
        stages[name] = _stage(records, times, upstream, slowest[name], before)
        marks[name] = stages[name].output
    return RunSeries(times, sources, stages)


def _source(records: Sequence[SourceRecord]) -> SourceSeries:
    return SourceSeries(
        _times(record.watermark for record in records),
        _times(record.elements for record in records),
        _times(record.dead_letters for record in records),
    )


def _stage(
    records: Sequence[StageRecord],
    times: Times,
    upstream: Mapping[str, Times],
    slowest: Times,
    lags_before: Sequence[Numbers],
) -> StageSeries:
    """Returns the values of a stage. `lags_before` has the lags of its input stages."""
    known = _times(MIN_TIME if record.finished is None else record.finished for record in records)
    own = np.where(known > MIN_TIME, (known - times) / _SECOND, 0.0)
    input_lag = np.maximum.reduce([np.zeros(len(times)), *lags_before])
    return StageSeries(
        input=_times(record.input for record in records),
        output=_times(record.output for record in records),
        input_system_lag=input_lag,
        output_system_lag=np.maximum(own, input_lag),
        panes=_counts([record.panes for record in records]),
        dropped=_counts([record.dropped for record in records]),
        upstream=upstream,
        slowest=slowest,
        percentiles=_percentiles([record.percentiles for record in records]),
    )


def _percentiles(records: Sequence[Mapping[int, int]]) -> dict[int, Times]:
    numbers = sorted({number for record in records for number in record})
    return {number: _times(record.get(number, MIN_TIME) for record in records) for number in numbers}


def _times(values: Iterable[int]) -> Times:
    return np.fromiter(values, np.int64)


def _counts(records: Sequence[Mapping[str, int]]) -> dict[str, Times]:
    names = sorted({name for record in records for name in record})
    return {name: _times(record.get(name, 0) for record in records) for name in names}


def lag_behind(newest: Times, times: Times, watermark: Times) -> tuple[Times, Numbers]:
    """Returns times and the lag (s) of a watermark behind another one. Both are constant between batches."""
    known = finite(watermark) & finite(newest)
    lags = (newest[known] - watermark[known]) / _SECOND
    return np.repeat(times[known], 2)[1:], np.repeat(lags, 2)[: max(0, 2 * len(lags) - 1)]


def event_time_lag(times: Times, watermark: Times) -> tuple[Times, Numbers]:
    """Returns times and the lag (s) of a watermark, which grows until the next batch advances the watermark."""
    known = finite(watermark)
    at, marks = times[known], watermark[known]
    before = np.stack([at[1:], at[1:]], axis=1).ravel()
    lags = np.stack([at[1:] - marks[:-1], at[1:] - marks[1:]], axis=1).ravel()
    return np.concatenate([at[:1], before]), np.concatenate([at[:1] - marks[:1], lags]) / _SECOND


def steps(times: Times, watermark: Times) -> tuple[Times, Times]:
    """Returns times and watermarks of a line that is constant between batches."""
    return np.repeat(times, 2)[1:], np.repeat(watermark, 2)[: max(0, 2 * len(watermark) - 1)]


def thinned(values: Numbers | Times) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the indices of the points to draw: all or, for a long line, enough to keep every peak and valley."""
    if len(values) <= _MOST_POINTS:
        return np.arange(len(values))
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(values)), _PARTS):
        own = values[part]
        kept |= {int(part[0]), int(part[-1]), int(part[own.argmin()]), int(part[own.argmax()])}
    return np.array(sorted(kept))
