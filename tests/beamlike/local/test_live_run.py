"""Runs in process with a checkpoint: where they resume, how they end, and refused ones."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.plan.manifest import MANIFEST
from beamlike.records.history import History
from beamlike.records.model import BatchRecord
from beamlike.runtime.loop.live_run import LiveRun
from beamlike.system.seals import sealed, unsealed

SCHEMA = {"user": str, "at": int}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()


def add(number: int, *times: int, user: str = "ada") -> None:
    """Writes a file of plays, atomically, which is read after files of lower numbers."""
    path = Path("data", f".{number:03d}.jsonl")
    path.write_text("".join(f'{{"user": "{user}", "at": {at}}}\n' for at in times))
    os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    path.rename(path.with_name(path.name[1:]))


def minutes(sink: Any = None, **read: Any) -> bl.Pipeline:
    """Declares counts of the plays of each minute."""
    p = bl.Pipeline("minutes", max_dead_letters=read.pop("max_dead_letters", None))
    source = bl.JSONLines("data", SCHEMA, max_files_per_trigger=1)
    watermark = read.pop("watermark", bl.MonotonousTimestamps())
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    counted = plays.window_into(bl.FixedWindows("1m"), **read).aggregate(n=bl.count())
    counted.write("out", sink or bl.JSONLines("out"))
    return p


def written() -> list[int]:
    """Returns the counts of the minutes that are over, in order."""
    files = list(Path("out").glob("*.jsonl"))
    frames = [pl.read_ndjson(file, schema={"window_start": pl.String, "n": pl.Int64}) for file in files]
    return pl.concat(frames).sort("window_start")["n"].to_list() if frames else []


def runner(**options: Any) -> bl.LocalRunner:
    return bl.LocalRunner(checkpoint="checkpoint", **options)


def numbers(run: LiveRun) -> list[int]:
    return [record.batch for record in run.batches]


def test_a_run_goes_on_with_what_is_new_and_is_drained_at_last() -> None:
    add(0, 0, 10)
    add(1, 70)
    assert numbers(minutes().run(runner())) == [0, 1]
    assert written() == [2]
    assert numbers(minutes().run(runner())) == []
    add(2, 80, 130)
    assert numbers(minutes().run(runner())) == [2]
    assert written() == [2, 2]
    last = minutes().run(runner(drain=True))
    assert numbers(last) == [3]
    assert written() == [2, 2, 1]
    assert repr(last) == "<LiveRun of 'minutes': 1 batch>"
    with pytest.raises(bl.CheckpointError, match="was drained: all its windows are closed"):
        minutes().run(runner(drain=True))


def test_an_interval_goes_on_with_files_that_come_until_it_is_stopped() -> None:
    came = [threading.Event(), threading.Event()]
    live = runner(trigger="1 millisecond", on_batch=lambda record: came[record.batch].set()).start(
        minutes().plan()
    )
    add(0, 0, 10)
    assert came[0].wait(60)
    add(1, 70)
    assert came[1].wait(60)
    live.stop()
    live.stop()  # changes nothing
    live.wait()
    assert written() == [2]
    assert History.open("checkpoint").closed == "stopped"
    add(2, 130)
    assert numbers(minutes().run(runner())) == [2]


def test_with_an_interval_processing_time_passes_also_when_nothing_comes() -> None:
    now = [1_000_000]
    fired = threading.Event()

    def on_batch(record: BatchRecord) -> None:
        now[0] += 600_000_000
        if record.sinks.get("out"):
            fired.set()

    early = bl.AfterWatermark(early=bl.AfterProcessingTime("5m"))
    pipeline = minutes(trigger=early)
    add(0, 0, 10)
    live = runner(trigger="1 millisecond", on_batch=on_batch, clock=lambda: now[0]).start(pipeline.plan())
    assert fired.wait(60)
    live.stop()
    assert written() == [2]


@pytest.mark.parametrize("options", [{"drain": True}, {"trigger": "1 millisecond"}, {}])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_between_two_batches(
    number: signal.Signals, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    for file in range(4):
        add(file, 60 * file)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def interrupt(record: BatchRecord) -> None:
        if record.batch == 1:
            signal.raise_signal(number)

    run = minutes().run(runner(on_batch=interrupt, **options))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert numbers(run) == [0, 1]
    assert "minutes: stopping after the current batch; a second signal abandons it" in capfd.readouterr().err
    assert numbers(minutes().run(runner(drain=True))) == [2, 3, 4]
    assert written() == [1, 1, 1, 1]


def test_a_second_signal_gives_the_batch_up_and_the_next_run_does_it_again() -> None:
    for file in range(3):
        add(file, 60 * file)

    def interrupt_twice(record: BatchRecord) -> None:
        if record.batch == 1:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    minutes().run(runner(on_batch=interrupt_twice))
    assert History.open("checkpoint").closed == "stopped"
    assert numbers(minutes().run(runner())) == [1, 2]
    assert written() == [1, 1]


def test_what_fails_is_raised_where_the_run_is_waited_for_and_its_batch_done_again() -> None:
    add(0, 0)
    add(1, 60)

    def fail(record: BatchRecord) -> None:
        raise ZeroDivisionError

    live = runner(on_batch=fail).start(minutes().plan())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            live.wait()
    assert History.open("checkpoint").closed == "failed"
    assert numbers(minutes().run(runner())) == [0, 1]
    assert written() == [1]


def test_a_checkpoint_has_one_run_and_a_batch_may_ask_for_its_end() -> None:
    add(0, 0)
    refused = threading.Event()

    def stop(record: BatchRecord) -> None:
        assert refused.wait(60)
        live.stop()

    live = runner(trigger="1 millisecond", on_batch=stop).start(minutes().plan())
    with pytest.raises(bl.CheckpointError, match=r"checkpoint is in use by the run of 'minutes' in process"):
        minutes().run(runner())
    refused.set()
    live.wait()
    assert numbers(minutes().run(runner())) == []


def test_the_records_are_in_the_checkpoint_and_are_looked_at_as_on_spark() -> None:
    add(0, 0, 10)
    minutes().run(runner())
    history = History.open("checkpoint")
    assert [record.batch for record in history.batches] == [0]
    assert history.closed == "ended"
    told = CliRunner().invoke(main, ["why", "checkpoint", "--window", "1970-01-01T00:00Z"])
    assert "waits for the input watermark" in told.stdout, told.output
    assert CliRunner().invoke(main, ["watch", "checkpoint"]).exit_code == 0


def test_the_command_line_runs_and_continues_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(
        "import beamlike as bl\n"
        "p = bl.Pipeline('counted')\n"
        "p.read('plays', bl.JSONLines('data', {'user': str, 'at': int})).write('out', bl.JSONLines('out'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    add(0, 0, 10)
    for drain in ([], ["--drain"]):
        done = CliRunner().invoke(main, ["run", "counted:p", "--checkpoint", "checkpoint", *drain])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["run", "counted:p", "--checkpoint", "checkpoint"])
    assert done.exit_code == 1
    assert "was drained" in done.stderr
    assert sum(len(file.read_text().splitlines()) for file in Path("out").glob("*.jsonl")) == 2


def test_dead_letters_are_counted_over_all_runs() -> None:
    add(0, 0)
    Path("data/001.jsonl").write_text("bad\n")
    assert len(minutes(max_dead_letters=1).run(runner()).batches) == 2
    assert len(list(Path("checkpoint/beamlike/dead-letters").iterdir())) == 1
    Path("data/002.jsonl").write_text("bad\n")
    with pytest.raises(bl.TooManyDeadLetters):
        minutes(max_dead_letters=1).run(runner())
    assert numbers(minutes(max_dead_letters=2).run(runner())) == [2]


def test_test_streams_are_played_a_step_a_batch_and_drained() -> None:
    stream = bl.TestStream({"at": int}).add_elements([{"at": 10}]).advance_watermark_to(60)
    stream = stream.add_elements([{"at": 20}]).advance_watermark_to_infinity()
    out = bl.Memory()

    def played(stream: bl.TestStream) -> bl.Pipeline:
        p = bl.Pipeline("played")
        read = p.read("stream", stream, timestamp="at", timestamp_unit="s")
        read.window_into(bl.FixedWindows("1m"), allowed_lateness="1m").aggregate(n=bl.count()).write(
            "out", out
        )
        return p

    def interrupt(record: BatchRecord) -> None:
        if record.batch == 1:
            signal.raise_signal(signal.SIGTERM)

    assert numbers(played(stream).run(runner(on_batch=interrupt))) == [0, 1]
    other = bl.TestStream({"at": int}).add_elements([{"at": 11}])
    with pytest.raises(bl.CheckpointError, match="the test streams are not those of the checkpoint"):
        played(other).run(runner())
    assert numbers(played(stream).run(runner())) == [2, 3, 4]
    assert out.frame()["pane_timing"].to_list() == ["on_time", "late"]
    with pytest.raises(bl.CheckpointError, match="was drained"):
        played(stream).run(runner())


def counted(rows: bl.Rows) -> bl.Pipeline:
    p = bl.Pipeline("counted")
    p.read("rows", rows).write("out", bl.Memory())
    return p


def test_other_rows_in_memory_are_refused() -> None:
    counted(bl.Rows([{"n": 1}])).run(runner())
    with pytest.raises(
        bl.CheckpointError, match="source 'rows' has other rows than the run of the checkpoint"
    ):
        counted(bl.Rows([{"n": 2}])).run(runner())


class Once:
    """A source that can be read from its beginning only."""

    bounded = True

    def schema(self) -> pl.Schema:
        return pl.Schema({"n": pl.Int64()})

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        yield pl.LazyFrame({"n": [1]})


def test_a_source_that_cannot_be_read_on_is_refused_before_anything_is_made() -> None:
    p = bl.Pipeline("once")
    p.read("rows", Once()).write("out", bl.Memory())
    with pytest.raises(
        bl.PlanError, match=r"step 'rows': Once cannot be read on .* no resume\(position, rows\)"
    ):
        p.run(runner())
    assert not Path("checkpoint").exists()


def test_a_plan_that_does_not_fit_is_refused_with_a_remedy() -> None:
    add(0, 0)
    minutes().run(runner())
    with pytest.raises(bl.CheckpointError) as caught:
        minutes(allowed_lateness="1m").run(runner())
    assert "allowed lateness was 0s, now 1m" in str(caught.value)
    assert "start again with another checkpoint" in str(caught.value)


def test_a_checkpoint_of_spark_is_refused_with_the_way_to_bring_it_along() -> None:
    add(0, 0)
    minutes().run(runner())
    manifest = Path("checkpoint/beamlike/manifest.json")
    facts = unsealed(manifest.read_text(), MANIFEST)
    assert (facts["runner"], facts["shards"]) == ("local", 1)
    manifest.write_text(json.dumps(sealed({**facts, "runner": "spark"}, MANIFEST)))
    with pytest.raises(bl.CheckpointError) as caught:
        minutes().run(runner())
    assert "runner: it has spark, this run local" in str(caught.value)
    assert "beamlike restore SAVEPOINT CHECKPOINT MODULE:PIPELINE --runner local" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"trigger": "1 second"}, "trigger= and drain= need checkpoint="),
        ({"drain": True}, "trigger= and drain= need checkpoint="),
        (
            {"checkpoint": "c", "trigger": "often"},
            "LocalRunner: trigger must be 'available_now' or an interval",
        ),
        ({"checkpoint": "c", "trigger": "1 second", "drain": True}, "an interval has no end"),
        ({"checkpoint": "c", "records": "r.jsonl"}, "records= is for runs without a checkpoint"),
        ({"checkpoint": "c", "run_id": "r"}, "run_id= is for runs without a checkpoint"),
        ({"checkpoint": "s3://bucket/c"}, "has its checkpoint on this machine, not at 's3://bucket/c'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        bl.LocalRunner(**options)


def test_only_a_run_with_a_checkpoint_is_started() -> None:
    with pytest.raises(ValueError, match="needs checkpoint="):
        bl.LocalRunner().start(minutes().plan())


def test_a_source_that_runs_ahead_waits_and_is_read_later() -> None:
    p = bl.Pipeline("two")
    rows = {
        "slow": [{"at": at} for at in range(0, 400, 100)],
        "fast": [{"at": at} for at in range(0, 4_000, 1_000)],
    }
    for name, given in rows.items():
        watermark = bl.MonotonousTimestamps(max_drift="5m")
        source = bl.Rows(given, rows_per_batch=1)
        p.read(name, source, timestamp="at", timestamp_unit="s", watermark=watermark).write(
            f"{name} out", bl.Memory()
        )
    run = p.run(runner(drain=True))
    read = [{name: source.read for name, source in record.sources.items()} for record in run.batches]
    assert read[1] == {"slow": 1, "fast": 1}
    assert read[2] == {"slow": 1, "fast": 0}
    assert {name: sum(one[name] for one in read) for name in rows} == {"slow": 4, "fast": 4}
