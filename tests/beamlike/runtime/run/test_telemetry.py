"""Telemetry follows a run: it receives all events, and can neither stop a run nor slow it down."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import beamlike as bl
from beamlike.runtime.run import telemetry
from beamlike.runtime.run.telemetry import EndOfRun, FinishedBatch, FollowedRun


@attrs.define(eq=False)
class Told:
    """Records its events. Calls `wait` before each batch."""

    wait: Callable[[], object] = lambda: None
    fails: bool = False
    run: FollowedRun | None = None
    batches: list[FinishedBatch] = attrs.field(factory=list)
    ends: list[EndOfRun] = attrs.field(factory=list)
    threads: set[str] = attrs.field(factory=set)

    def exporter(self, run: FollowedRun) -> Told:
        self.run = run
        return self

    def begin(self) -> None:
        self.threads.add(threading.current_thread().name)

    def batch(self, done: FinishedBatch) -> None:
        self.wait()
        self.batches.append(done)
        if self.fails:
            raise OSError("no collector at http://ada:s3cret@localhost")

    def end(self, end: EndOfRun) -> None:
        self.ends.append(end)


def pipeline(fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None, on_error: str = "dead_letters"):
    p = bl.Pipeline("scores", on_error=on_error)
    rows = bl.Rows([{"n": n, "at": n} for n in range(4)], rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    read = read if fn is None else read.map(fn, schema=read.schema)
    read.window_into(bl.FixedWindows("2s")).aggregate(n=bl.count()).named("counted").write("out", bl.Memory())
    return p


def test_an_exporter_gets_each_batch_with_the_times_of_its_parts_and_the_end():
    told = Told()
    run = pipeline().run(bl.LocalRunner(telemetry=told))
    assert [done.record for done in told.batches] == run.batches
    assert told.threads == {"telemetry Told"}
    last = told.batches[-1]
    times = {(one.kind, one.name): one for one in last.activities}
    assert times.keys() >= {("source", "rows"), ("stage", "counted"), ("sink", "out")}
    assert all(last.started <= one.since <= one.until <= last.ended for one in times.values())
    (end,) = told.ends
    assert (end.ending, end.error, end.unfinished) == ("ended", None, None)
    assert told.run is not None
    assert (told.run.run, told.run.engine, told.run.endless) == ("scores", "local", False)


def test_a_run_with_a_checkpoint_is_followed_under_the_id_of_its_checkpoint(tmp_path):
    told, again = Told(), Told()
    checkpoint = str(tmp_path / "checkpoint")
    pipeline().run(bl.LocalRunner(checkpoint=checkpoint, telemetry=[told]))
    pipeline().run(bl.LocalRunner(checkpoint=checkpoint, telemetry=[again], drain=True))
    assert told.run is not None
    assert again.run is not None
    assert told.run.run == again.run.run != "scores"
    assert [end.ending for end in told.ends + again.ends] == ["ended", "ended"]


def test_a_run_that_fails_is_told_with_its_error_and_the_batch_that_it_did_not_finish():
    told = Told()
    with pytest.raises(ZeroDivisionError):
        pipeline(lambda row: {**row, "n": 1 // (2 - row["n"])}, "fail").run(bl.LocalRunner(telemetry=told))
    (end,) = told.ends
    assert end.ending == "failed"
    assert isinstance(end.error, ZeroDivisionError)
    assert end.unfinished is not None
    assert end.unfinished.batch == len(told.batches) == 2


def test_a_batch_that_was_exported_is_not_the_unfinished_one():
    told = Told()

    def on_batch(record: bl.observe.BatchRecord) -> None:
        raise RuntimeError("after the batch")

    with pytest.raises(RuntimeError, match="after the batch"):
        pipeline().run(bl.LocalRunner(telemetry=told, on_batch=on_batch))
    assert [done.record.batch for done in told.batches] == [0]
    (end,) = told.ends
    assert (end.ending, end.unfinished) == ("failed", None)


def test_an_exporter_that_fails_is_reported_once_without_secrets_and_the_run_goes_on(caplog):
    broken, whole = Told(fails=True), Told()
    run = pipeline().run(bl.LocalRunner(telemetry=[broken, whole]))
    assert len(broken.batches) == len(whole.batches) == len(run.batches)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "telemetry by Told fails, and the run continues without: OSError: no collector at http://***@localhost (later "
        "failures are not logged)"
    )


def test_a_slow_exporter_does_not_slow_the_run_and_loses_no_count(caplog, monkeypatch):
    monkeypatch.setattr(telemetry, "WAITING", 1)
    over, known = threading.Event(), list[int]()
    told = Told(wait=over.wait)

    def on_batch(record: bl.observe.BatchRecord) -> None:
        known.append(len(told.batches))
        if record.batch == 4:  # the last one, at the end of input
            over.set()

    run = pipeline().run(bl.LocalRunner(telemetry=told, on_batch=on_batch))
    assert known == [0] * 5  # no batch waited for the exporter
    assert sum(done.record.batches for done in told.batches) == len(run.batches) == 5
    assert sum(done.record.sources["rows"].elements for done in told.batches) == 4
    assert len(told.batches) < 5
    assert "was slower than the run" in caplog.text


def test_an_exporter_that_hangs_at_the_end_is_left_alone(caplog, monkeypatch):
    monkeypatch.setattr(telemetry, "PATIENCE", 0.01)
    over = threading.Event()
    told = Told(wait=over.wait)
    pipeline().run(bl.LocalRunner(telemetry=told))
    over.set()
    assert "has not sent everything" in caplog.text


def test_a_run_that_is_stopped_is_told_as_stopped(tmp_path):
    told = Told()
    runner = bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), trigger="1 second", telemetry=told)
    run = runner.start(pipeline().plan())
    run.stop()
    (end,) = told.ends
    assert (end.ending, end.error) == ("stopped", None)
    assert told.run is not None
    assert told.run.endless


@pytest.mark.parametrize(
    "wrong", ["openlineage", Told, [print], None, bl.observe.PrometheusMetrics("scores")]
)
def test_what_is_no_telemetry_is_refused(wrong):
    with pytest.raises(bl.errors.WrongType, match=r"telemetry= takes bl\.observe\.OpenTelemetry"):
        bl.LocalRunner(telemetry=wrong)


def test_messages_about_a_run_that_is_not_followed_stay_as_they_are(caplog):
    with caplog.at_level(logging.WARNING):
        pipeline().run()
    assert not caplog.records
