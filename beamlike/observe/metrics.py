"""Metrics for Prometheus: watermarks, lags, state and counts of a run. They are set after each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import attrs

from beamlike.errors import missing_package
from beamlike.system.texts import label_value

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
    from prometheus_client.core import GaugeMetricFamily
except ModuleNotFoundError as error:
    raise missing_package("metrics need prometheus-client", "metrics", error) from None

from beamlike.observe import measured
from beamlike.observe.measured import HELP, Lag
from beamlike.records.model import BatchRecord
from beamlike.records.present import Present
from beamlike.system.activity import ActivityTracker
from beamlike.system.fields import text


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
    | running                                              | 1 from the start of the run to its end          |
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
    | stage_placed_elements_total                          | elements, counted in each of their windows      |
    | stage_emitted_elements_total                         | the same, once they are in a pane               |
    | stage_fired_timers_total                             | timers that fired                               |
    | stage_panes_total                                    | by `timing`: early, on_time, late               |
    | stage_promised_panes_total                           | by `outcome`: kept, incomplete, delayed         |
    | stage_dropped_elements_total                         | by `reason`: late, closed, no window            |
    | sink_rows_total                                      | rows written                                    |
    | batches_total                                        |                                                 |
    | retries_total                                        | repeated requests to services that were briefly unwell |

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
        """The current state of the run."""
        if self._tracker is None or not self._tracker.going:
            return Present(self._last)
        return Present(self._last, self._tracker.in_hand, self.clock(), self._tracker.simulated)

    def __call__(self, record: BatchRecord) -> None:
        """Sets the metrics from the record of a batch."""
        self._last = record
        metrics = _metrics_of(self.registry)
        for one in measured.gauges(record):
            metrics.gauge(one.name, self.pipeline, **one.labels).set(one.value)
        for lag in measured.lags(record):
            self._measure(metrics.gauge(lag.name, self.pipeline, **lag.labels), lag)
        for one in measured.counts(record):
            metrics.counter(one.name, self.pipeline, **one.labels).inc(one.value)

    def _measure(self, gauge: Gauge, lag: Lag) -> None:
        """Sets a gauge to compute its duration (us) each time it is read."""
        gauge.set_function(lambda: lag.seconds(self.present))


@attrs.define(eq=False)
class _Metrics:
    """The metrics of this package in a registry, for any number of pipelines."""

    registry: CollectorRegistry
    gauges: dict[str, Gauge] = attrs.field(factory=dict)
    counters: dict[str, Counter] = attrs.field(factory=dict)
    runs: dict[str, PrometheusMetrics] = attrs.field(factory=dict)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields gauges of the current batch and its activities when they are read. Between batches there are none."""
        found = {
            name: GaugeMetricFamily(f"beamlike_{name}", HELP[name], labels=["pipeline", *labels])
            for name, labels in measured.IN_HAND.items()
        }
        for pipeline, run in list(self.runs.items()):
            for one in measured.in_hand(run.present):
                labels = _encodable({"pipeline": pipeline, **one.labels})
                found[one.name].add_metric([*labels.values()], one.value)
        yield from found.values()

    def gauge(self, name: str, pipeline: str, **labels: str) -> Gauge:
        labels = _encodable({"pipeline": pipeline, **labels})
        if name not in self.gauges:
            self.gauges[name] = Gauge(f"beamlike_{name}", HELP[name], list(labels), registry=self.registry)
        return self.gauges[name].labels(**labels)

    def counter(self, name: str, pipeline: str, **labels: str) -> Counter:
        labels = _encodable({"pipeline": pipeline, **labels})
        if name not in self.counters:
            self.counters[name] = Counter(
                f"beamlike_{name}", HELP[name], list(labels), registry=self.registry
            )
        return self.counters[name].labels(**labels)


def _encodable(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: label_value(value) for name, value in labels.items()}


# A registry accepts each metric only once, so all pipelines and runs of a process share the metrics.
_ALL: dict[CollectorRegistry, _Metrics] = {}


def _metrics_of(registry: CollectorRegistry) -> _Metrics:
    if registry not in _ALL:
        _ALL[registry] = _Metrics(registry)
        registry.register(_ALL[registry])
    return _ALL[registry]
