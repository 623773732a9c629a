"""Metrics for Prometheus: watermarks, lags, state and counts of a run, set after each batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import attrs

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
    from prometheus_client.core import GaugeMetricFamily
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "metrics need prometheus-client: pip install 'beamlike[metrics]'", name=error.name
    ) from None

from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, is_a_time
from beamlike.records.present import Present
from beamlike.system.activity import ActivityTracker
from beamlike.system.fields import text
from windowing.time import MIN_TIME

_SECOND = 1_000_000


@attrs.define(eq=False)
class PrometheusMetrics:
    """Metrics of a run. Pass it to a runner as `on_batch`, and let Prometheus scrape the runner's process.

    All names begin with `beamlike_`. All metrics have the label `pipeline`; those of a source, stage or sink also have
    its name in a label `source`, `stage` or `sink`. Times and durations are in seconds.

    | gauge                                                | value                                           |
    |------------------------------------------------------|-------------------------------------------------|
    | source_watermark_timestamp_seconds                   | the source's watermark                          |
    | source_lag_seconds                                   | processing time - watermark                     |
    | source_idle                                          | 1 while the source is ignored downstream, else 0 |
    | source_percentile_watermark_timestamp_seconds        | by `percentile`                                 |
    | stage_input_watermark_timestamp_seconds, ..._output_ | the stage's watermarks                          |
    | stage_percentile_watermark_timestamp_seconds         | of its output, by `percentile`                  |
    | stage_input_lag_seconds, stage_output_lag_seconds    | processing time - watermark: the age of the data |
    | stage_input_system_lag_seconds, ..._output_          | duration of the batch up to the stage's input, output |
    | stage_pending_elements                               | elements that wait for a pane                   |
    | stage_live_windows, stage_live_keys                  | windows and keys in state                       |
    | stage_state_bytes                                    | size of the state                               |
    | stage_pending_timers                                 | set timers                                      |
    | last_batch_timestamp_seconds                         | processing time of the last batch               |
    | batch_in_hand, batch_in_hand_seconds                 | number and duration of the current batch        |
    | work_in_hand_seconds                                 | duration of the current source, step, stage or  |
    |                                                      | sink, by `kind` and `name`                      |

    | counter                                              | counts                                          |
    |------------------------------------------------------|-------------------------------------------------|
    | source_rows_total                                    | rows read                                       |
    | source_elements_total                                | rows that reached the watermark                 |
    | source_dead_letters_total                            | rows that could not be used                     |
    | step_dead_letters_total                              | rows that a step could not use, by `step`       |
    | stage_elements_total                                 | elements that arrived                           |
    | stage_placed_elements_total                          | these, once for each of their windows           |
    | stage_emitted_elements_total                         | these, once they are in a pane                  |
    | stage_fired_timers_total                             | timers that fired                               |
    | stage_panes_total                                    | by `timing`: early, on_time, late               |
    | stage_dropped_elements_total                         | by `reason`: late, closed, no window            |
    | sink_rows_total                                      | rows written                                    |
    | batches_total                                        |                                                 |

    Lags are measured when they are read, so they grow while a batch hangs; those of a finished run are constant.
    A watermark is -Inf before it is known and +Inf at the end of input; its lag is then NaN. Needs prometheus-client,
    from the extra `metrics`.

    Args:
        pipeline: The value of the label `pipeline`.
        registry: The registry; by default that of the process.
        clock: Returns the time in microseconds.

    Example, with the `plays` of `bl.Collection`:
        >>> from prometheus_client import CollectorRegistry, start_http_server
        >>> metrics = bl.observe.PrometheusMetrics("scores", registry=CollectorRegistry())
        >>> server = start_http_server(9000, registry=metrics.registry)  # doctest: +SKIP
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(on_batch=metrics))
        >>> metrics.registry.get_sample_value("beamlike_sink_rows_total", {"pipeline": "scores", "sink": "out"})
        3.0
    """

    pipeline: str = attrs.field(validator=text)
    registry: CollectorRegistry = REGISTRY
    clock: Callable[[], int] = attrs.field(default=lambda: time.time_ns() // 1000, repr=False)
    _tracker: ActivityTracker | None = attrs.field(default=None, init=False)
    _last: BatchRecord | None = attrs.field(default=None, init=False)

    def follow(self, tracker: ActivityTracker) -> None:
        self._tracker = tracker
        _metrics_of(self.registry).runs[self.pipeline] = self

    @property
    def present(self) -> Present:
        """The run as it is now."""
        if self._tracker is None or not self._tracker.going:
            return Present(self._last)
        return Present(self._last, self._tracker.in_hand, self.clock(), self._tracker.simulated)

    def __call__(self, record: BatchRecord) -> None:
        """Sets the metrics from the record of a batch."""
        self._last = record
        metrics = _metrics_of(self.registry)
        metrics.gauge("last_batch_timestamp_seconds", self.pipeline).set(record.processing_time / _SECOND)
        metrics.counter("batches", self.pipeline).inc()
        for name, source in record.sources.items():
            self._source(metrics, name, source)
        for name, stage in record.stages.items():
            self._stage(metrics, name, stage)
        for name, count in record.dead_letters.items():
            metrics.counter("step_dead_letters", self.pipeline, step=name).inc(count)
        for name, rows in record.sinks.items():
            metrics.counter("sink_rows", self.pipeline, sink=name).inc(rows)

    def _source(self, metrics: _Metrics, name: str, source: SourceRecord) -> None:
        gauges = {
            "source_watermark_timestamp_seconds": _timestamp(source.watermark),
            "source_idle": float(source.idle),
        }
        for metric, value in gauges.items():
            metrics.gauge(metric, self.pipeline, source=name).set(value)
        lag = metrics.gauge("source_lag_seconds", self.pipeline, source=name)
        _measure(lag, lambda: self.present.lag(source.watermark))
        for share, mark in source.percentiles.items():
            metrics.gauge(
                "source_percentile_watermark_timestamp_seconds",
                self.pipeline,
                source=name,
                percentile=str(share),
            ).set(_timestamp(mark))
        metrics.counter("source_rows", self.pipeline, source=name).inc(source.read or 0)
        metrics.counter("source_elements", self.pipeline, source=name).inc(source.elements)
        metrics.counter("source_dead_letters", self.pipeline, source=name).inc(source.dead_letters)

    def _stage(self, metrics: _Metrics, name: str, stage: StageRecord) -> None:
        gauges = {
            "stage_input_watermark_timestamp_seconds": _timestamp(stage.input),
            "stage_output_watermark_timestamp_seconds": _timestamp(stage.output),
            "stage_pending_elements": stage.pending or 0,
            "stage_live_windows": stage.live,
            "stage_live_keys": stage.keys,
            "stage_state_bytes": stage.bytes,
            "stage_pending_timers": stage.timers,
        }
        for metric, value in gauges.items():
            metrics.gauge(metric, self.pipeline, stage=name).set(value)
        lags: dict[str, Callable[[], int | None]] = {
            "stage_input_lag_seconds": lambda: self.present.lag(stage.input),
            "stage_output_lag_seconds": lambda: self.present.lag(stage.output),
            "stage_input_system_lag_seconds": lambda: self.present.input_system_lag(name),
            "stage_output_system_lag_seconds": lambda: self.present.output_system_lag(name),
        }
        for metric, lag in lags.items():
            _measure(metrics.gauge(metric, self.pipeline, stage=name), lag)
        for share, mark in stage.percentiles.items():
            metrics.gauge(
                "stage_percentile_watermark_timestamp_seconds",
                self.pipeline,
                stage=name,
                percentile=str(share),
            ).set(_timestamp(mark))
        metrics.counter("stage_fired_timers", self.pipeline, stage=name).inc(stage.fired)
        metrics.counter("stage_elements", self.pipeline, stage=name).inc(stage.elements)
        metrics.counter("stage_placed_elements", self.pipeline, stage=name).inc(stage.placed or 0)
        metrics.counter("stage_emitted_elements", self.pipeline, stage=name).inc(stage.emitted or 0)
        for timing, count in stage.panes.items():
            metrics.counter("stage_panes", self.pipeline, stage=name, timing=timing).inc(count)
        for reason, count in stage.dropped.items():
            metrics.counter("stage_dropped_elements", self.pipeline, stage=name, reason=reason).inc(count)


def _timestamp(watermark: int) -> float:
    if is_a_time(watermark):
        return watermark / _SECOND
    return -math.inf if watermark <= MIN_TIME else math.inf


def _measure(gauge: Gauge, length: Callable[[], int | None]) -> None:
    """Sets a gauge that computes its duration (us) whenever it is read."""
    gauge.set_function(lambda: _seconds(length()))


def _seconds(length: int | None) -> float:
    return math.nan if length is None else length / _SECOND


_HELP = {
    "batch_in_hand": "Number of the current batch.",
    "batch_in_hand_seconds": "Duration of the current batch.",
    "work_in_hand_seconds": "Duration of the current source, step, stage or sink.",
    "last_batch_timestamp_seconds": "Processing time of the last batch.",
    "batches": "Batches.",
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
    "stage_dropped_elements": "Elements that the stage dropped, by reason.",
    "sink_rows": "Rows that were written to the sink.",
}


@attrs.define(eq=False)
class _Metrics:
    """The metrics of this package in a registry, for any number of pipelines."""

    registry: CollectorRegistry
    gauges: dict[str, Gauge] = attrs.field(factory=dict)
    counters: dict[str, Counter] = attrs.field(factory=dict)
    runs: dict[str, PrometheusMetrics] = attrs.field(factory=dict)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Reports the current batch and activities when they are read; between batches there are none."""
        labels = {
            "batch_in_hand": ["pipeline"],
            "batch_in_hand_seconds": ["pipeline"],
            "work_in_hand_seconds": ["pipeline", "kind", "name"],
        }
        found = {
            name: GaugeMetricFamily(f"beamlike_{name}", _HELP[name], labels=of) for name, of in labels.items()
        }
        for pipeline, run in list(self.runs.items()):
            present = run.present
            if present.in_hand is None:
                continue
            found["batch_in_hand"].add_metric([pipeline], present.in_hand.batch)
            found["batch_in_hand_seconds"].add_metric([pipeline], _seconds(present.in_hand_for))
            for work in present.in_hand.works:
                labels_of = [pipeline, work.kind, work.name]
                found["work_in_hand_seconds"].add_metric(labels_of, _seconds(present.at_for(work)))
        yield from found.values()

    def gauge(self, name: str, pipeline: str, **labels: str) -> Gauge:
        labels = {"pipeline": pipeline, **labels}
        if name not in self.gauges:
            self.gauges[name] = Gauge(f"beamlike_{name}", _HELP[name], list(labels), registry=self.registry)
        return self.gauges[name].labels(**labels)

    def counter(self, name: str, pipeline: str, **labels: str) -> Counter:
        labels = {"pipeline": pipeline, **labels}
        if name not in self.counters:
            self.counters[name] = Counter(
                f"beamlike_{name}", _HELP[name], list(labels), registry=self.registry
            )
        return self.counters[name].labels(**labels)


_ALL: dict[CollectorRegistry, _Metrics] = {}


def _metrics_of(registry: CollectorRegistry) -> _Metrics:
    if registry not in _ALL:
        _ALL[registry] = _Metrics(registry)
        registry.register(_ALL[registry])
    return _ALL[registry]
