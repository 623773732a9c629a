"""Traces, metrics and lineage of a run on Spark: tasks run in other processes, and datasets are the user's."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("openlineage.client")
pytest.importorskip("opentelemetry.proto")

import beamlike as bl
from tests.support.collectors import attributes, lineage_collector, otlp_http

pytestmark = pytest.mark.spark


def test_a_run_on_spark_has_spans_metrics_and_lineage(spark, monkeypatch, tmp_path):
    pl.DataFrame({"user": ["ada", "bob"], "at": [1, 70]}).write_parquet(tmp_path / "plays.parquet")
    p = bl.Pipeline("scores")
    plays = p.read(
        "plays",
        bl.Parquet(str(tmp_path / "plays.parquet")),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    ages = p.read(
        "ages",
        bl.Rows([{"name": "ada", "at": 2}]),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    both = bl.flatten(plays, ages.select(user=bl.col("name"), at=bl.col("at")))
    counted = (
        both.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(n=bl.count()).named("counted")
    )
    counted.write("files", bl.JSONLines(str(tmp_path / "out")))
    counted.write("memory", bl.Memory())
    with otlp_http() as (otlp, received), lineage_collector() as (lineage, events):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp)
        monkeypatch.setenv("OPENLINEAGE_URL", lineage)
        telemetry = [bl.observe.OpenTelemetry(), bl.observe.OpenLineage()]
        run = p.run(bl.SparkRunner(session=spark, telemetry=telemetry))
    batches = received.named("batch of scores")
    assert len(batches) == len(run.batches)
    assert attributes(received.named("run of scores")[0])["beamlike.runner"] == "spark"
    for span in batches:
        inside = {one.name: one for one in received.spans if one.parent_span_id == span.span_id}
        for one in inside.values():
            assert span.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano
            assert one.end_time_unix_nano <= span.end_time_unix_nano
        assert "stage counted" in inside
    written = [attributes(span)["beamlike.rows"] for span in received.named("sink files")]
    assert sum(written) == received.value("sink_rows_total", sink="memory") == 2
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    end = events[-1]
    assert end["run"]["facets"]["processing_engine"]["name"] == "spark"
    assert [one["name"] for one in end["inputs"]] == [str(tmp_path / "plays.parquet")]
    (out,) = end["outputs"]
    assert out["name"] == str(tmp_path / "out")
    assert out["outputFacets"]["outputStatistics"]["rowCount"] == 2
    (user,) = out["facets"]["columnLineage"]["fields"]["user"]["inputFields"]
    assert (user["name"], user["field"]) == (str(tmp_path / "plays.parquet"), "user")
