"""Telemetry for OpenTelemetry: a trace of each batch, and the metrics that Prometheus has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from beamlike.errors import missing_package

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

    from beamlike.observe import otlp
except ModuleNotFoundError as error:
    raise missing_package("OpenTelemetry needs its SDK", "opentelemetry", error) from None

from beamlike.observe import measured
from beamlike.observe.measured import HELP, Measured
from beamlike.observe.spans import Facts, facts_of_batch, parts_of
from beamlike.records.model import BatchRecord
from beamlike.records.present import Present
from beamlike.runtime.run.telemetry import PATIENCE, EndOfRun, FinishedBatch, FollowedRun, report_once
from beamlike.system.secrets import without_secrets
from beamlike.version import version

_SCOPE = "beamlike"


@attrs.frozen(eq=False)
class OpenTelemetry:
    """Telemetry by OpenTelemetry. Pass it to a runner as `telemetry`.

    Each batch is a trace: a span of the batch, and in it a span of each source, stage and sink. It has a link to the
    span of the run, which is exported at the end of the run. So a run without an end has no endless trace, and a
    sampler keeps or drops whole batches. A run that is started inside of a span of the caller is a child of that span.

    The metrics have the names and labels of `bl.observe.PrometheusMetrics`, those of counters with `_total`. A
    watermark that is not known, or has reached the end of input, is not reported.

    Without arguments, the providers of the process are used, if it has set some. Otherwise each run has providers of
    its own, which the standard variables configure: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`,
    `OTEL_EXPORTER_OTLP_PROTOCOL` (by default `http/protobuf`), `OTEL_SERVICE_NAME` (by default the name of the
    pipeline), `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_TRACES_SAMPLER`, `OTEL_METRIC_EXPORT_INTERVAL` and
    `OTEL_SDK_DISABLED`. Needs OpenTelemetry's SDK, from the extra `opentelemetry`.

    Args:
        tracer_provider: The provider of tracers. If only this one is given, there are no metrics.
        meter_provider: The provider of meters. If only this one is given, there are no traces.

    Raises:
        PlanError: A variable names an exporter or a protocol that is not installed.

    Example, with the `plays` of `bl.Collection`:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> spans, provider = InMemorySpanExporter(), TracerProvider()
        >>> provider.add_span_processor(SimpleSpanProcessor(spans))
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(telemetry=bl.observe.OpenTelemetry(tracer_provider=provider)))
        >>> [span.name for span in spans.get_finished_spans()][:3]
        ['source plays', 'sink out', 'batch of scores']
    """

    tracer_provider: trace.TracerProvider | None = None
    meter_provider: metrics.MeterProvider | None = None

    def __attrs_post_init__(self) -> None:
        # An error here, for a variable with a wrong value, is raised before anything runs.
        if self._is_given:
            return
        for signal, provider in (("traces", self._tracers), ("metrics", self._meters)):
            if provider is None:
                otlp.exporter_classes(signal)

    @property
    def _is_given(self) -> bool:
        return self.tracer_provider is not None or self.meter_provider is not None

    @property
    def _tracers(self) -> trace.TracerProvider | None:
        """The provider that was given or, without any, that of the process; None if the process has none."""
        if self._is_given:
            return self.tracer_provider or trace.NoOpTracerProvider()
        found = trace.get_tracer_provider()
        return None if isinstance(found, trace.ProxyTracerProvider) else found

    @property
    def _meters(self) -> metrics.MeterProvider | None:
        if self._is_given:
            return self.meter_provider or metrics.NoOpMeterProvider()
        found = metrics.get_meter_provider()
        # If the process has set no provider, the class of its placeholder is private, so it is recognized by
        # its name.
        return None if type(found).__name__ == "_ProxyMeterProvider" else found

    def exporter(self, run: FollowedRun) -> _Exporter:
        """Returns the exporter of a run that begins."""
        own = otlp.Providers(run.plan.name, report_once(type(self).__name__))
        tracers, meters = self._tracers or own.tracers(), self._meters or own.meters()
        return _Exporter(
            run, tracers.get_tracer(_SCOPE, version()), _RunMetrics(run, _instruments_of(meters)), own
        )


@attrs.define(eq=False)
class _Exporter:
    """The exporter of a run: its spans and metrics."""

    run: FollowedRun
    tracer: trace.Tracer
    metrics: _RunMetrics
    own: otlp.Providers
    _span: trace.Span = attrs.field(init=False)

    def begin(self) -> None:
        facts = {"pipeline": self.run.plan.name, "run": self.run.run, "runner": self.run.engine}
        # Started in the context of the caller, whose own span may be current.
        self._span = self.tracer.start_span(
            f"run of {self.run.plan.name}",
            attributes=_attributes(facts),
            start_time=_ns(self.run.started),
        )

    def batch(self, done: FinishedBatch) -> None:
        span = self._batch(done.started, facts_of_batch(done.record))
        inside = trace.set_span_in_context(span, context.Context())
        for part in parts_of(self.run.plan, done):
            child = self.tracer.start_span(
                f"{part.kind} {part.name}",
                inside,
                attributes=_attributes({part.kind: part.name, **part.facts}),
                start_time=_ns(part.since),
            )
            child.end(_ns(part.until))
        span.end(_ns(done.ended))
        self.metrics.take(done.record)

    def _batch(self, started: int, facts: Facts) -> trace.Span:
        facts = {"pipeline": self.run.plan.name, "run": self.run.run, **facts}
        return self.tracer.start_span(
            f"batch of {self.run.plan.name}",
            context.Context(),
            attributes=_attributes(facts),
            links=[trace.Link(self._span.get_span_context())],
            start_time=_ns(started),
        )

    def end(self, end: EndOfRun) -> None:
        if end.error is not None and end.unfinished is not None:
            span = self._batch(end.unfinished.started, {"batch": end.unfinished.batch})
            _fail(span, end.error)
            span.end(_ns(end.at))
        self._span.set_attribute("beamlike.ending", end.ending)
        if end.error is not None:
            _fail(self._span, end.error)
        self._span.end(_ns(end.at))
        self.own.shut_down(PATIENCE - 1)


def _fail(span: trace.Span, error: BaseException) -> None:
    text = without_secrets(str(error))
    span.set_status(trace.Status(trace.StatusCode.ERROR, text))
    span.add_event("exception", {"exception.type": type(error).__name__, "exception.message": text})


def _ns(us: int) -> int:
    return us * 1_000


def _attributes(facts: Facts) -> dict[str, Any]:
    return {f"beamlike.{name}": value for name, value in facts.items() if value is not None}


@attrs.define(eq=False)
class _RunMetrics:
    """The metrics of a run: its last batch, and the counters to which its batches add."""

    run: FollowedRun
    instruments: _Instruments
    last: BatchRecord | None = None

    def __attrs_post_init__(self) -> None:
        self.instruments.runs[self.run.plan.name] = self

    def take(self, record: BatchRecord) -> None:
        self.last = record
        for one in measured.counts(record):
            self.instruments.count(one, self._labels(one.labels))

    def values(self, name: str) -> Iterable[Observation]:
        """Returns the current values of a gauge."""
        tracker = self.run.tracker
        present = Present(self.last)
        if tracker.going:
            present = Present(self.last, tracker.in_hand, tracker.clock(), tracker.simulated)
        found = [*measured.in_hand(present)]
        if self.last is not None:
            found += measured.gauges(self.last)
            found += [
                Measured(lag.name, lag.seconds(present), lag.labels) for lag in measured.lags(self.last)
            ]
        for one in found:
            if one.name == name and math.isfinite(one.value):
                yield Observation(one.value, self._labels(one.labels))

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {"pipeline": self.run.plan.name, **labels}


@attrs.define(eq=False)
class _Instruments:
    """The instruments of a meter, which all pipelines and runs of a process share.

    They are observed when the SDK collects them, since a call for each number of a batch would take long.
    """

    meter: Meter
    runs: dict[str, _RunMetrics] = attrs.field(factory=dict)
    _totals: dict[str, dict[tuple[str, ...], Observation]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, text in HELP.items():
            if name in measured.COUNTERS:
                self._totals[name] = {}
                read = partial(self._counted, name)
                self.meter.create_observable_counter(f"beamlike_{name}_total", [read], description=text)
            else:
                unit = "s" if name.endswith("_seconds") else "By" if name.endswith("_bytes") else ""
                measure = partial(self._measured, name)
                self.meter.create_observable_gauge(f"beamlike_{name}", [measure], unit=unit, description=text)

    def count(self, one: Measured, labels: dict[str, str]) -> None:
        """Adds a value to a counter."""
        totals, key = self._totals[one.name], tuple(labels.values())
        before = totals[key].value if key in totals else 0
        totals[key] = Observation(before + one.value, labels)

    def _counted(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        return list(self._totals[name].values())

    def _measured(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        return [one for run in list(self.runs.values()) for one in run.values(name)]


_ALL: WeakKeyDictionary[metrics.MeterProvider, _Instruments] = WeakKeyDictionary()


def _instruments_of(provider: metrics.MeterProvider) -> _Instruments:
    if provider not in _ALL:
        _ALL[provider] = _Instruments(provider.get_meter(_SCOPE, version()))
    return _ALL[provider]
