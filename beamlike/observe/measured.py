"""The measurements of a run that monitoring systems export, by the names of their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, is_a_time
from beamlike.records.present import Present
from stages.dropped import CLOSED_WINDOW, LATE, NO_WINDOW
from windowing.time import MIN_TIME

_SECOND = 1_000_000


@attrs.frozen
class Measured:
    """A value of the metric `name`. `labels` has all labels except `pipeline`. Times are in seconds."""

    name: str
    value: float
    labels: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Lag:
    """A duration that is computed when the metric is read; NaN at the ends of time."""

    name: str
    labels: Mapping[str, str]
    length: Callable[[Present], int | None]

    def seconds(self, present: Present) -> float:
        """Returns the current duration in seconds."""
        return seconds(self.length(present))


def gauges(record: BatchRecord) -> Iterator[Measured]:
    """Yields the values of the gauges that are set after a batch."""
    yield Measured("last_batch_timestamp_seconds", record.processing_time / _SECOND)
    for name, source in record.sources.items():
        yield from _of_source(source, {"source": name})
    for name, stage in record.stages.items():
        yield from _of_stage(stage, {"stage": name})


def _of_source(source: SourceRecord, labels: Mapping[str, str]) -> Iterator[Measured]:
    yield Measured("source_watermark_timestamp_seconds", _timestamp(source.watermark), labels)
    yield Measured("source_idle", float(source.idle), labels)
    yield from _percentiles("source_percentile_watermark_timestamp_seconds", source.percentiles, labels)


def _of_stage(stage: StageRecord, labels: Mapping[str, str]) -> Iterator[Measured]:
    values: dict[str, float] = {
        "stage_input_watermark_timestamp_seconds": _timestamp(stage.input),
        "stage_output_watermark_timestamp_seconds": _timestamp(stage.output),
        "stage_pending_elements": stage.pending or 0,
        "stage_live_windows": stage.live,
        "stage_live_keys": stage.keys,
        "stage_state_bytes": stage.bytes,
        "stage_pending_timers": stage.timers,
    }
    for name, value in values.items():
        yield Measured(name, value, labels)
    yield from _percentiles("stage_percentile_watermark_timestamp_seconds", stage.percentiles, labels)


def _percentiles(name: str, marks: Mapping[int, int], labels: Mapping[str, str]) -> Iterator[Measured]:
    for share, mark in marks.items():
        yield Measured(name, _timestamp(mark), {**labels, "percentile": str(share)})


def lags(record: BatchRecord) -> Iterator[Lag]:
    """Yields the lags of the sources and stages in a batch."""
    for name, source in record.sources.items():
        yield Lag("source_lag_seconds", {"source": name}, _behind(source.watermark))
    for name, stage in record.stages.items():
        labels = {"stage": name}
        yield Lag("stage_input_lag_seconds", labels, _behind(stage.input))
        yield Lag("stage_output_lag_seconds", labels, _behind(stage.output))
        yield Lag("stage_input_system_lag_seconds", labels, _input_system_lag(name))
        yield Lag("stage_output_system_lag_seconds", labels, _output_system_lag(name))


def _behind(watermark: int) -> Callable[[Present], int | None]:
    return lambda present: present.lag(watermark)


def _input_system_lag(stage: str) -> Callable[[Present], int | None]:
    return lambda present: present.input_system_lag(stage)


def _output_system_lag(stage: str) -> Callable[[Present], int | None]:
    return lambda present: present.output_system_lag(stage)


_DROPPED: Final = (LATE, CLOSED_WINDOW, NO_WINDOW)


def counts(record: BatchRecord) -> Iterator[Measured]:
    """Yields the numbers that a batch adds to the counters."""
    yield Measured("batches", record.batches)
    yield Measured("retries", record.retries)
    for name, source in record.sources.items():
        labels = {"source": name}
        yield Measured("source_rows", source.read or 0, labels)
        yield Measured("source_elements", source.elements, labels)
        yield Measured("source_dead_letters", source.dead_letters, labels)
    for name, stage in record.stages.items():
        yield from _counts_of_stage(stage, {"stage": name})
    for name, count in record.dead_letters.items():
        yield Measured("step_dead_letters", count, {"step": name})
    for name, rows in record.sinks.items():
        yield Measured("sink_rows", rows, {"sink": name})


def _counts_of_stage(stage: StageRecord, labels: Mapping[str, str]) -> Iterator[Measured]:
    yield Measured("stage_fired_timers", stage.fired, labels)
    yield Measured("stage_elements", stage.elements, labels)
    yield Measured("stage_placed_elements", stage.placed or 0, labels)
    yield Measured("stage_emitted_elements", stage.emitted or 0, labels)
    for timing, count in stage.panes.items():
        yield Measured("stage_panes", count, {**labels, "timing": timing})
    for outcome, count in stage.promised.items():
        yield Measured("stage_promised_panes", count, {**labels, "outcome": outcome})
    # From the first batch on, since a monitor does not see the increase with which a counter appears.
    for reason, count in {**dict.fromkeys(_DROPPED, 0), **stage.dropped}.items():
        yield Measured("stage_dropped_elements", count, {**labels, "reason": reason})


def in_hand(present: Present) -> Iterator[Measured]:
    """Yields that the run goes on, the number of its current batch, and the durations of the batch and of its
    activities. Between batches there is no number, and after the run there is nothing.
    """
    if present.now is not None:
        yield Measured("running", 1.0)
    if present.in_hand is None:
        return
    yield Measured("batch_in_hand", present.in_hand.batch)
    yield Measured("batch_in_hand_seconds", seconds(present.in_hand_for))
    for work in present.in_hand.works:
        labels = {"kind": work.kind, "name": work.name}
        yield Measured("work_in_hand_seconds", seconds(present.at_for(work)), labels)


IN_HAND: Mapping[str, tuple[str, ...]] = {
    "running": (),
    "batch_in_hand": (),
    "batch_in_hand_seconds": (),
    "work_in_hand_seconds": ("kind", "name"),
}
"""The metrics of a run that goes on and of its current batch, with their labels except `pipeline`."""


def _timestamp(watermark: int) -> float:
    if is_a_time(watermark):
        return watermark / _SECOND
    return -math.inf if watermark <= MIN_TIME else math.inf


def seconds(length: int | None) -> float:
    """Converts a duration (us) to seconds. None becomes NaN."""
    return math.nan if length is None else length / _SECOND


HELP = {
    "running": "1 while the run goes on.",
    "batch_in_hand": "Number of the current batch.",
    "batch_in_hand_seconds": "Duration of the current batch.",
    "work_in_hand_seconds": "Duration of the current source, step, stage or sink.",
    "last_batch_timestamp_seconds": "Processing time of the last batch.",
    "batches": "Batches.",
    "retries": "Requests that were repeated, as a service was briefly unwell.",
    "source_watermark_timestamp_seconds": "Watermark of the source.",
    "source_lag_seconds": "Processing time less the watermark of the source.",
    "source_idle": "1 while the source is silent and ignored downstream, else 0.",
    "source_percentile_watermark_timestamp_seconds": "Percentile watermarks of the source.",
    "source_rows": "Rows that were read.",
    "source_elements": "Rows that reached the watermark.",
    "source_dead_letters": "Rows that reader, event time or a step before the watermark could not use.",
    "step_dead_letters": "Rows that the step could not use.",
    "stage_input_watermark_timestamp_seconds": "Input watermark of the stage.",
    "stage_output_watermark_timestamp_seconds": "Output watermark of the stage.",
    "stage_percentile_watermark_timestamp_seconds": "Percentile watermarks of the stage's output.",
    "stage_input_lag_seconds": "Processing time less the input watermark of the stage.",
    "stage_output_lag_seconds": "Processing time less the output watermark of the stage.",
    "stage_input_system_lag_seconds": "Duration of the batch up to the end of all upstream stages.",
    "stage_output_system_lag_seconds": "Duration of the batch up to the end of the stage.",
    "stage_live_windows": "Windows of keys in state.",
    "stage_live_keys": "Keys in state.",
    "stage_state_bytes": "Bytes of state.",
    "stage_elements": "Elements that arrived at the stage.",
    "stage_placed_elements": "Elements of the stage, once for each of their windows.",
    "stage_emitted_elements": "Elements, once for each window, that are in a pane.",
    "stage_pending_timers": "Timers that are set.",
    "stage_fired_timers": "Timers that fired.",
    "stage_pending_elements": "Elements, once for each window, that wait for a pane.",
    "stage_panes": "Panes that the stage emitted, by timing.",
    "stage_promised_panes": "On-time panes of a stage with a promise, by outcome.",
    "stage_dropped_elements": "Elements that the stage dropped, by reason.",
    "sink_rows": "Rows that were written to the sink.",
}
"""A description of each metric."""


COUNTERS: frozenset[str] = frozenset(
    {
        "batches",
        "retries",
        "sink_rows",
        "source_dead_letters",
        "source_elements",
        "source_rows",
        "stage_dropped_elements",
        "stage_elements",
        "stage_emitted_elements",
        "stage_fired_timers",
        "stage_panes",
        "stage_placed_elements",
        "stage_promised_panes",
        "step_dead_letters",
    }
)
"""The metrics that are counters: each batch adds to them. Their exported names end with `_total`. All others
are gauges.
"""
