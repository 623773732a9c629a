"""Traces and metrics by OpenTelemetry, as collectors receive them."""

from __future__ import annotations

from itertools import count

import pytest

pytest.importorskip("opentelemetry.sdk")
prometheus_client = pytest.importorskip("prometheus_client")

from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402 -- after what may be missing
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402

import beamlike as bl  # noqa: E402
from tests.support.collectors import Received, attributes, otlp_grpc, otlp_http  # noqa: E402

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    """Hides the settings of the user who runs the tests; gives up at once on a missing collector."""
    for name in (
        "TRACES_EXPORTER",
        "METRICS_EXPORTER",
        "SERVICE_NAME",
        "RESOURCE_ATTRIBUTES",
        "SDK_DISABLED",
    ):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def pipeline(fn=None) -> bl.Pipeline:
    p = bl.Pipeline("scores", on_error="fail")
    times = (1, 70, 2)
    rows = bl.Rows([{"user": "ada", "at": second} for second in times], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read = read if fn is None else read.map(fn, schema=read.schema)
    read.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).named("counted").write(
        "out", bl.Memory()
    )
    return p


def clock():
    """Returns a clock that advances a millisecond with each reading."""
    ticks = count(1_767_225_600 * SECOND, 1_000)
    return lambda: next(ticks)


def sent_to(monkeypatch, address: str, received: Received, **options: object) -> Received:
    """Runs a pipeline and returns the data that a collector has received."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    pipeline().run(bl.LocalRunner(telemetry=bl.observe.OpenTelemetry(), clock=clock(), **options))
    return received


def test_a_batch_is_a_trace_with_spans_of_its_parts_and_a_link_to_the_run(monkeypatch):
    with otlp_http() as (address, received):
        sent_to(monkeypatch, address, received)
    (run,) = received.named("run of scores")
    batches = received.named("batch of scores")
    assert [attributes(span)["beamlike.batch"] for span in batches] == [0, 1, 2, 3]
    assert received.services == {"scores"}
    for span in batches:
        assert not span.parent_span_id
        assert span.trace_id != run.trace_id
        assert [link.span_id for link in span.links] == [run.span_id]
        inside = {one.name: one for one in received.spans if one.parent_span_id == span.span_id}
        wrote = attributes(span)["beamlike.rows_written"] > 0
        assert inside.keys() == {"source rows", "stage counted", *(["sink out"] if wrote else [])}
        for one in inside.values():
            assert one.trace_id == span.trace_id
            assert span.start_time_unix_nano <= one.start_time_unix_nano < one.end_time_unix_nano
            assert one.end_time_unix_nano <= span.end_time_unix_nano
        assert inside["source rows"].end_time_unix_nano <= inside["stage counted"].start_time_unix_nano
    stages = [attributes(span) for span in received.named("stage counted")]
    assert [stage.get("beamlike.panes.on_time", 0) for stage in stages] == [0, 1, 0, 1]
    assert [stage.get("beamlike.dropped.late", 0) for stage in stages] == [0, 0, 1, 0]
    assert [attributes(span)["beamlike.rows"] for span in received.named("sink out")] == [1, 1]
    assert attributes(run) == {
        "beamlike.pipeline": "scores",
        "beamlike.run": "scores",
        "beamlike.runner": "local",
        "beamlike.ending": "ended",
    }


def test_metrics_have_the_names_labels_and_values_that_prometheus_has(monkeypatch):
    registry = prometheus_client.CollectorRegistry()
    metrics = bl.observe.PrometheusMetrics("scores", registry)
    with otlp_http() as (address, received):
        sent_to(monkeypatch, address, received, on_batch=metrics)
    theirs = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }
    ours = {
        (name, tuple(sorted(attributes(point).items()))): received.value(
            name.removeprefix("beamlike_"), **attributes(point)
        )
        for name, metric in received.metrics.items()
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    }
    # Infinite watermarks, and lags that are no number, are left out.
    finite = {key: value for key, value in theirs.items() if abs(value) < float("inf")}
    assert ours == finite
    assert {
        "beamlike_sink_rows_total",
        "beamlike_stage_panes_total",
        "beamlike_batches_total",
    } <= received.metrics.keys()


def test_grpc_is_chosen_by_the_variable_of_the_specification(monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "games")
    with otlp_grpc() as (address, received):
        sent_to(monkeypatch, address, received)
    assert received.services == {"games"}
    assert len(received.named("batch of scores")) == 4
    assert received.value("sink_rows_total", sink="out") == 2


def test_headers_and_switches_of_the_specification_count(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    with otlp_http() as (address, received):
        sent_to(monkeypatch, address, received)
    assert {headers["authorization"] for headers in received.headers} == {"Bearer abc"}
    assert received.spans
    assert not received.metrics


def test_a_run_that_fails_has_spans_with_its_error_without_secrets(monkeypatch):
    def fails(row):
        if row["at"] == 70:
            raise ValueError("nothing at postgresql://ada:s3cret@db/plays")
        return row

    with otlp_http() as (address, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        with pytest.raises(ValueError, match="s3cret"):
            pipeline(fails).run(bl.LocalRunner(telemetry=bl.observe.OpenTelemetry()))
    failed = received.named("batch of scores")[-1]
    (run,) = received.named("run of scores")
    for span in (failed, run):
        assert span.status.code == span.status.STATUS_CODE_ERROR
        assert span.status.message == "nothing at postgresql://***@db/plays"
        assert attributes(span.events[0])["exception.type"] == "ValueError"
    assert attributes(failed)["beamlike.batch"] == 1
    assert attributes(run)["beamlike.ending"] == "failed"
    assert b"s3cret" not in b"".join(span.SerializeToString() for span in received.spans)


@pytest.mark.parametrize("status", [400, None])
def test_a_collector_that_refuses_or_is_not_there_is_reported_once_and_the_run_is_whole(
    monkeypatch, caplog, status
):
    if status is None:
        run = _run_at(monkeypatch, "http://127.0.0.1:9")
    else:
        with otlp_http(status) as (address, _):
            run = _run_at(monkeypatch, address)
    assert len(run.batches) == 4
    assert {record.name for record in caplog.records} == {"beamlike"}
    messages = [record.getMessage() for record in caplog.records]
    (message,) = [one for one in messages if "telemetry" in one]
    assert message.startswith("telemetry by OpenTelemetry fails, and the run continues without: ")


def _run_at(monkeypatch, address: str):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    return pipeline().run(bl.LocalRunner(telemetry=bl.observe.OpenTelemetry()))


def test_providers_of_the_caller_are_used_and_left_open():
    reader = InMemoryMetricReader()
    provider, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = bl.observe.OpenTelemetry(provider, meters)
    with provider.get_tracer("caller").start_as_current_span("nightly") as caller:
        for _ in range(2):
            pipeline().run(bl.LocalRunner(telemetry=telemetry))
    runs = [span for span in spans.get_finished_spans() if span.name == "run of scores"]
    assert [span.parent.span_id for span in runs] == [caller.get_span_context().span_id] * 2
    data = reader.get_metrics_data()
    names = [
        metric.name
        for of_resource in data.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
    ]
    assert len(names) == len(set(names))
    assert "beamlike_stage_pending_elements" in names
    provider.shutdown()
    meters.shutdown()


def test_a_current_batch_is_measured_while_it_runs():
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = bl.observe.OpenTelemetry(meter_provider=meters)
    seen: list[set[str]] = []

    def looks(row):
        data = reader.get_metrics_data()
        scopes = [scope for of in data.resource_metrics for scope in of.scope_metrics] if data else []
        seen.append({metric.name for scope in scopes for metric in scope.metrics})
        return row

    pipeline(looks).run(bl.LocalRunner(telemetry=telemetry))
    assert {"beamlike_batch_in_hand", "beamlike_work_in_hand_seconds"} <= seen[-1]
    meters.shutdown()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "OTEL_TRACES_EXPORTER",
            "oltp",
            r"OTEL_TRACES_EXPORTER: no exporter 'oltp' is installed.*did you mean 'otlp'\?",
        ),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "OTEL_EXPORTER_OTLP_PROTOCOL must be 'grpc' or 'http/protobuf', not 'http/json'",
        ),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "tcp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL must be"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(bl.PlanError, match=message):
        bl.observe.OpenTelemetry()
