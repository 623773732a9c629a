"""Logs as lines of JSON, and telemetry, on the command line."""

from __future__ import annotations

import json
import logging
import warnings
from io import StringIO

import pytest
from click.testing import CliRunner

from beamlike.cli.main import main
from beamlike.system.activity import ActivityTracker, tracked_by
from beamlike.system.json_logs import log_json, logs_json

MODULE = """
import warnings
import beamlike as bl

def pipeline(fails: bool = False) -> bl.Pipeline:
    p = bl.Pipeline("clicks", on_error="fail")
    rows = bl.Rows([{"at": second} for second in (1, 70, 2)], rows_per_batch=1)
    read = p.read("clicks", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())

    def own(row):
        warnings.warn("this is old")
        return {"at": 1 // 0} if fails else row

    mapped = read.map(own, schema=read.schema)
    mapped.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", bl.CSV("out"))
    return p
"""


@pytest.fixture
def logged():
    """The log as lines of JSON during a test."""
    root, ours, stream = logging.getLogger(), logging.getLogger("beamlike"), StringIO()
    before, level, own = root.handlers[:], root.level, ours.level
    log_json(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.captureWarnings(False)
    root.handlers[:] = before
    root.setLevel(level)
    ours.setLevel(own)


def test_a_message_is_an_object_on_a_line_with_its_run_and_batch(logged):
    assert logs_json()
    tracker = ActivityTracker(lambda: 0)
    tracker.run = "scores"
    tracker.begin(7)
    log = logging.getLogger("beamlike")
    with tracked_by(tracker):
        log.warning("late rows: %d\nof %s", 3, "ada")
    log.info("outside")
    first, second = logged()
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "logger": "beamlike",
        "message": "late rows: 3\nof ada",
        "run": "scores",
        "batch": 7,
    }
    assert second.keys() == {"time", "level", "logger", "message"}


def test_tracebacks_warnings_and_other_loggers_are_in_it_without_secrets(logged):
    try:
        raise ValueError("nothing at redis://:s3cret@cache")
    except ValueError:
        logging.getLogger("others").exception("failed")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn("this is old", stacklevel=1)
    failed, warned = logged()
    assert failed["exception"].endswith("ValueError: nothing at redis://***@cache")
    assert warned["logger"] == "py.warnings"
    assert "this is old" in warned["message"]


def test_the_command_logs_json_only_also_when_it_fails(logged, tmp_path, monkeypatch):
    (tmp_path / "logged_clicks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(
            main, ["run", "logged_clicks:pipeline", "--log-format", "json", "--set", "fails=yes"]
        )
    assert done.exit_code == 1
    first, *_, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert "this is old" in first["message"]
    assert (first["run"], first["batch"]) == ("clicks", 0)
    assert last["level"] == "ERROR"
    assert "ZeroDivisionError" in last["message"]
    assert "in own" in last["exception"]


def test_errors_of_the_command_line_are_messages_without_a_traceback(logged, capsys):
    for arguments in (["tests.nowhere:pipeline"], ["tests.nowhere:pipeline", "--shards", "none"]):
        done = CliRunner().invoke(main, ["run", *arguments])
        assert (done.exit_code, done.output) == (2, "")
    messages = [line["message"] for line in logged()]
    assert "tests.nowhere" in messages[0]
    assert messages[1] == "Invalid value for '--shards': 'none' is not a valid integer range."
    assert not any("exception" in line for line in logged())


def test_telemetry_is_switched_on_by_name(tmp_path, monkeypatch):
    pytest.importorskip("openlineage.client")
    pytest.importorskip("opentelemetry.proto")
    from tests.support.collectors import lineage_collector, otlp_http

    (tmp_path / "logged_clicks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with otlp_http() as (otlp, received), lineage_collector() as (lineage, events):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp)
        monkeypatch.setenv("OPENLINEAGE_URL", lineage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = ["--telemetry", "opentelemetry", "--telemetry", "openlineage"]
            done = CliRunner().invoke(
                main, ["run", "logged_clicks:pipeline", *options], catch_exceptions=False
            )
    assert done.exit_code == 0, done.output
    assert len(received.named("batch of clicks")) == 4
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]


def test_a_wrong_setting_of_telemetry_is_an_error_of_the_command(tmp_path, monkeypatch):
    pytest.importorskip("opentelemetry.sdk")
    (tmp_path / "logged_clicks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon")
    done = CliRunner().invoke(main, ["run", "logged_clicks:pipeline", "--telemetry", "opentelemetry"])
    assert done.exit_code == 1
    assert "OTEL_EXPORTER_OTLP_PROTOCOL must be 'grpc' or 'http/protobuf'" in done.output
