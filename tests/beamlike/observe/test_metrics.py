"""The metrics of a run for Prometheus."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from tests.support.places import ROOT

prometheus_client = pytest.importorskip("prometheus_client")

import beamlike as bl  # noqa: E402 -- after what may be missing
from beamlike.observe.metrics import PrometheusMetrics  # noqa: E402
from tests.support.histories import at, batch, source_record, stage_record, waiting  # noqa: E402
from windowing.time import MAX_TIME, MIN_TIME  # noqa: E402


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


def value(registry: prometheus_client.CollectorRegistry, name: str, pipeline: str = "scores", **labels: str):
    return registry.get_sample_value(f"beamlike_{name}", {"pipeline": pipeline, **labels})


def test_gauges_say_where_the_watermarks_stand_after_the_last_batch(registry):
    metrics = PrometheusMetrics("scores", registry)
    metrics(waiting())
    assert value(registry, "source_watermark_timestamp_seconds", source="console") == at(43) / 1e6
    assert value(registry, "source_lag_seconds", source="console") == 257
    assert value(registry, "source_idle", source="console") == 0
    assert value(registry, "last_batch_timestamp_seconds") == at(300) / 1e6
    stage = stage_record(
        43, 5, live=3, keys=2, bytes=100, finished=at(301.5), percentiles={66: at(60)}, upstream={"s": 1}
    )
    metrics(batch(8, 300, {"console": source_record(43, idle=True)}, {"sessions": stage}))
    expected = {
        "stage_input_watermark_timestamp_seconds": at(43) / 1e6,
        "stage_output_watermark_timestamp_seconds": at(5) / 1e6,
        "stage_input_lag_seconds": 257,
        "stage_output_lag_seconds": 295,
        "stage_input_system_lag_seconds": 0,
        "stage_output_system_lag_seconds": 1.5,
        "stage_live_windows": 3,
        "stage_live_keys": 2,
        "stage_state_bytes": 100,
    }
    assert {name: value(registry, name, stage="sessions") for name in expected} == expected
    percentile = value(
        registry, "stage_percentile_watermark_timestamp_seconds", stage="sessions", percentile="66"
    )
    assert percentile == at(60) / 1e6
    assert value(registry, "source_idle", source="console") == 1


def test_the_ends_of_time_are_infinite_and_have_no_lag(registry):
    stage = stage_record(MAX_TIME, MIN_TIME)
    PrometheusMetrics("scores", registry)(batch(0, 1, {}, {"n": stage}))
    assert value(registry, "stage_input_watermark_timestamp_seconds", stage="n") == math.inf
    assert value(registry, "stage_output_watermark_timestamp_seconds", stage="n") == -math.inf
    assert math.isnan(value(registry, "stage_input_lag_seconds", stage="n"))


def test_counters_add_up_what_batches_had(registry):
    metrics = PrometheusMetrics("scores", registry)
    stage = stage_record(1, 1, elements=5, panes={"early": 2, "on_time": 1}, dropped={"late": 3})
    record = batch(0, 1, {"rows": source_record(1, elements=5, dead_letters=1)}, {"n": stage})
    metrics(record)
    metrics(record)
    assert value(registry, "source_elements_total", source="rows") == 10
    assert value(registry, "source_dead_letters_total", source="rows") == 2
    assert value(registry, "stage_elements_total", stage="n") == 10
    assert value(registry, "stage_panes_total", stage="n", timing="early") == 4
    assert value(registry, "stage_panes_total", stage="n", timing="on_time") == 2
    assert value(registry, "stage_dropped_elements_total", stage="n", reason="late") == 6
    assert value(registry, "batches_total") == 2


def test_counters_of_losses_and_retries_begin_at_zero_with_the_first_batch(registry):
    metrics = PrometheusMetrics("scores", registry)
    metrics(batch(0, 300, {"console": source_record(43)}, {"sessions": stage_record(43, 5)}))
    for reason in ("late", "closed", "no window"):
        assert value(registry, "stage_dropped_elements_total", stage="sessions", reason=reason) == 0
    assert value(registry, "retries_total") == 0


def test_pipelines_of_one_process_share_a_registry(registry):
    PrometheusMetrics("scores", registry)(waiting())
    PrometheusMetrics("others", registry)(waiting())
    for pipeline in ("scores", "others"):
        assert value(registry, "stage_live_windows", pipeline, stage="sessions") == 4


def test_a_run_gives_its_metrics_batch_by_batch(registry):
    p = bl.Pipeline("p")
    rows = bl.Rows([{"at": second} for second in (1, 70, 2)], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named("n").write("out", bl.Memory())
    bl.LocalRunner(on_batch=PrometheusMetrics("p", registry)).run(p.plan())
    assert value(registry, "source_elements_total", "p", source="rows") == 3
    assert value(registry, "stage_panes_total", "p", stage="n", timing="on_time") == 2
    assert value(registry, "stage_dropped_elements_total", "p", stage="n", reason="late") == 1
    text = prometheus_client.generate_latest(registry).decode()
    assert 'beamlike_stage_output_watermark_timestamp_seconds{pipeline="p",stage="n"} +Inf' in text


def test_without_the_library_it_says_how_to_install_it():
    code = "import sys; sys.modules['prometheus_client'] = None; import beamlike.observe.metrics"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert "metrics need prometheus-client: pip install 'beamlike[metrics]'" in done.stderr
