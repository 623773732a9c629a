"""A batch is replayed: the same panes byte for byte, stage by stage, without writes to the sinks."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import InputGone, UnknownKey, UnknownStage
from beamlike.replaying.as_test import as_test
from beamlike.replaying.opening import open_run
from beamlike.replaying.replay import player_before
from beamlike.replaying.scratch import plan_of_run
from beamlike.runtime.loop import journal_tables, undo
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.system.file_digests import files_below, size_and_digest
from tests.beamlike.replaying.test_inputs import SCHEMA
from tests.support.examples import share

USERS = ["abca", "bca", "aab", "ccb", "abc", "cab"]


class Streak(bl.Process):
    """Emits the running number of a user's rows, and a row when the user is silent."""

    n = bl.Value(int, default=0)
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        self.quiet.after("15s")
        yield {"user": row["user"], "n": self.n}

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"user": self.key.user, "n": -self.n}


def pipeline(folder: Path, process: type[bl.Process] = Streak, source: Any = None) -> bl.Pipeline:
    p = bl.Pipeline("p")
    rows = source or bl.JSONLines(folder / "in", SCHEMA, max_files_per_trigger=1)
    bound = bl.BoundedOutOfOrderness("3s")
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=bound)
    counts = plays.window_into(bl.Sessions("4s")).group_by("user").aggregate(n=bl.count()).named("counts")
    counts.write("out", bl.JSONLines(folder / "out"))
    totals = counts.window_into(bl.FixedWindows("20s")).aggregate(n=bl.sum("n")).named("totals")
    totals.write("all", bl.Parquet(folder / "all"))
    streaks = plays.group_by("user", name="streaks").process(process(), {"user": str, "n": int})
    streaks.write("streaks out", bl.CSV(folder / "streaks"))
    return p


def fill(folder: Path, files: list[str], first: int = 0) -> None:
    """Writes files of ten seconds each, with a row every two seconds."""
    (folder / "in").mkdir(exist_ok=True)
    for number, users in enumerate(files, start=first):
        file = folder / "in" / f"{number}.jsonl"
        at = range(10 * number, 10 * number + 2 * len(users), 2)
        pl.DataFrame({"user": list(users), "at": at}).write_ndjson(file)
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))


def run(folder: Path, process: type[bl.Process] = Streak) -> Path:
    """Makes two runs on one checkpoint: the second reads the last file."""
    fill(folder, USERS[:-1])
    checkpoint = folder / "checkpoint"
    pipeline(folder, process).run(bl.LocalRunner(checkpoint=str(checkpoint), quiet=True))
    fill(folder, USERS[-1:], len(USERS) - 1)
    pipeline(folder, process).run(bl.LocalRunner(checkpoint=str(checkpoint), quiet=True))
    return checkpoint


def content(folder: Path) -> dict[str, Any]:
    """Returns the files of the run."""
    return {name: size_and_digest(str(folder / name)) for name in files_below(str(folder))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    run(folder)
    return folder


def test_each_batch_has_the_same_panes_and_nothing_is_written(folder: Path) -> None:
    before = content(folder)
    rows = 0
    for number in range(len(USERS)):
        replay = bl.replay(folder / "checkpoint", pipeline(folder), batch=number)
        assert replay.comparison.differences == ()
        assert any("byte for byte" in line for line in replay.comparison.compared)
        rows += len(replay.rows("out")) + len(replay.rows("streaks out"))
    assert rows > len(USERS)
    assert content(folder) == before


@share(6)
@given(
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(2, 6),
    st.sampled_from([0, 9000, undo.MOST_BYTES]),
    st.integers(0, 9),
)
def test_any_batch_is_the_same_from_any_state(files: list[str], rows: int, most: int, number: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(undo, "MOST_BYTES", most)
        folder = Path(name)
        fill(folder, files)
        p = pipeline(folder, source=bl.JSONLines(folder / "in", SCHEMA))
        runner = bl.LocalRunner(
            checkpoint=str(folder / "checkpoint"), chunk_rows=rows, drain=True, quiet=True
        )
        done = p.run(runner)
        replay = bl.replay(folder / "checkpoint", p, batch=number % len(done.batches))
        assert replay.comparison.differences == ()


def test_a_replay_stops_before_and_after_a_stage(folder: Path) -> None:
    replay = bl.replay(folder / "checkpoint", pipeline(folder), batch=2)
    assert replay.left == ["counts", "streaks", "totals"]
    before = replay.go(before="streaks").state("streaks", {"user": "a"})
    assert len(replay.arrivals("streaks")) == 3
    assert replay.step() == "streaks"
    after = replay.state("streaks", {"user": "a"})
    assert (before["s.n"].item(), after["s.n"].item()) == (2, 4)  # rows wait for the watermark
    assert replay.rows("streaks")["n"].to_list() == [3, 4, 2]
    assert replay.go(after="totals").left == []
    assert "stage `counts`" in " ".join(replay.why("counts", "a"))
    with pytest.raises(ValueError, match="have run"):
        replay.step()


def test_names_that_are_wrong_are_refused(folder: Path) -> None:
    replay = bl.replay(folder / "checkpoint", pipeline(folder), batch=2)
    with pytest.raises(UnknownStage, match=r"no stage 'cuonts'.*did you mean 'counts'"):
        replay.go(before="cuonts")
    with pytest.raises(UnknownKey, match="no key column 'usr'; it has user; did you mean 'user'"):
        replay.state("counts", {"usr": "a"})
    with pytest.raises(ValueError, match="stage 'counts' has not run yet"):
        replay.rows("counts")
    with pytest.raises(bl.CheckpointError, match="it has batches 0 to 5"):
        bl.replay(folder / "checkpoint", pipeline(folder), batch=99)


def test_a_pipeline_that_does_not_fit_is_refused(folder: Path) -> None:
    p = bl.Pipeline("p")
    source = bl.JSONLines(folder / "in", SCHEMA)
    bound = bl.BoundedOutOfOrderness("3s")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bound)
    plays.window_into(bl.FixedWindows("4s")).group_by("user").aggregate(n=bl.count()).named("counts").write(
        "out", bl.Memory()
    )
    with pytest.raises(bl.CheckpointError, match="counts"):
        bl.replay(folder / "checkpoint", p)


def test_a_batch_that_failed_is_played_to_the_row_that_fails(tmp_path: Path) -> None:
    class Fails(Streak):
        def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
            if (row["user"], self.n) == ("c", 2):
                breakpoint()
                raise KeyError("c")
            yield from super().element(row)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    fill(tmp_path, USERS)
    p = pipeline(tmp_path, Fails)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "breakpointhook", dies)
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), quiet=True))
    stops = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_locals["row"]))
        replay = bl.replay(tmp_path / "checkpoint", p)
        assert not replay.batch.done
        replay.go(after="streaks")
    # The calls of a key are repeated one by one after one of them has raised.
    assert stops == [{"user": "c", "at": 30}] * 2


def test_impure_functions_differ_and_are_named(tmp_path: Path) -> None:
    calls = []

    class Counts(Streak):
        def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
            calls.append(row)
            yield {"user": row["user"], "n": len(calls)}

    checkpoint = run(tmp_path, Counts)
    comparison = bl.replay(checkpoint, pipeline(tmp_path, Counts), batch=1).comparison
    assert any("sink 'streaks out': only in the run" in line for line in comparison.differences)
    assert any("'streaks'" in reason and "a clock" in reason for reason in comparison.reasons)


def test_a_savepoint_is_where_a_replay_can_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "MOST_BYTES", 0)
    fill(tmp_path, USERS[:2])
    checkpoint = str(tmp_path / "checkpoint")
    runner = bl.LocalRunner(checkpoint=checkpoint, quiet=True)
    pipeline(tmp_path).run(runner)
    bl.savepoint.save(checkpoint, tmp_path / "saved" / "one")
    fill(tmp_path, USERS[2:5], 2)
    pipeline(tmp_path).run(runner)
    plain = bl.replay(checkpoint, pipeline(tmp_path), batch=3)
    assert plain.origin == "from the first batch, then batches 0 to 2"
    (tmp_path / "in" / "0.jsonl").unlink()
    with pytest.raises(InputGone, match="batch 0") as gone:
        bl.replay(checkpoint, pipeline(tmp_path), batch=3)
    assert "is played from the first batch" in gone.value.__notes__[0]
    saved = bl.replay(checkpoint, pipeline(tmp_path), batch=3, savepoint=tmp_path / "saved")
    assert "saved/one, then batch 2" in saved.origin
    assert saved.comparison.differences == ()
    with pytest.raises(bl.CheckpointError, match="no savepoint in"):
        bl.replay(checkpoint, pipeline(tmp_path), batch=3, savepoint=tmp_path / "in")


def test_a_run_from_a_savepoint_needs_it_for_its_first_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, USERS[:2])
    pipeline(tmp_path).run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), quiet=True))
    bl.savepoint.save(tmp_path / "checkpoint", tmp_path / "saved")
    monkeypatch.setattr(undo, "MOST_BYTES", 0)
    bl.savepoint.restore(tmp_path / "saved", tmp_path / "next", pipeline(tmp_path).plan(), runner="local")
    fill(tmp_path, USERS[2:5], 2)
    pipeline(tmp_path).run(bl.LocalRunner(checkpoint=str(tmp_path / "next"), quiet=True))
    with pytest.raises(bl.CheckpointError, match=r"state before batch 2 .* is not known any more"):
        bl.replay(tmp_path / "next", pipeline(tmp_path), batch=2)
    replay = bl.replay(tmp_path / "next", pipeline(tmp_path), batch=2, savepoint=str(tmp_path / "saved"))
    assert replay.comparison.differences == ()


def test_a_recording_has_the_rows_of_a_key(folder: Path, tmp_path: Path) -> None:
    p, checkpoint = pipeline(folder), folder / "checkpoint"
    found = bl.record(checkpoint, p, tmp_path / "a", batches=(2, 3), key={"user": "a"})
    assert found.notes == [
        "only the rows of user=a of 'plays'",
        "not the panes of 'totals', which need the rows of other keys",
        "not the rows of sink 'all'",
    ]
    bl.record(checkpoint, p, tmp_path / "whole", batches=(2, 3))
    for number in (2, 3):
        of_key = bl.replay(tmp_path / "a", p, batch=number)
        whole = bl.replay(tmp_path / "whole", p, batch=number)
        assert of_key.comparison.differences == whole.comparison.differences == ()
        for sink in ("out", "streaks out"):
            rows = whole.rows(sink).filter(pl.col("user") == "a")
            assert of_key.rows(sink).equals(rows)
    with pytest.raises(FileExistsError):
        bl.record(checkpoint, p, tmp_path / "a", batches=2)
    with pytest.raises(
        UnknownKey, match="no stage has the key 'usr': their keys are user; did you mean 'user'"
    ):
        bl.record(checkpoint, p, batches=2, key={"usr": "a"})
    with pytest.raises(bl.CheckpointError, match="the recording has no batch 1: it has batches 2 to 3"):
        bl.replay(tmp_path / "a", p, batch=1)
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-100])
    with pytest.raises(bl.CheckpointError):
        bl.replay(tmp_path / "a", p)


def test_a_recording_becomes_a_test_that_passes(folder: Path, tmp_path: Path) -> None:
    p, checkpoint = pipeline(folder), folder / "checkpoint"
    found = bl.record(checkpoint, p, batches=(0, 5), key={"user": "a"})
    file = tmp_path / "test_recorded.py"
    file.write_text(as_test(found, p, "recorded_plays:made"))
    module = type(sys)("recorded_plays")
    module.made = p  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("test_recorded", file)
    assert spec is not None
    assert spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "recorded_plays", module)
        spec.loader.exec_module(written)
        written.test_batches_0_to_5()
        module.made = pipeline(folder, type("Other", (Streak,), {"element": lambda self, row: []}))  # type: ignore[attr-defined]
        spec.loader.exec_module(written)
        with pytest.raises(AssertionError, match="missing"):
            written.test_batches_0_to_5()
    later = bl.record(checkpoint, p, batches=(3, 5))
    with pytest.raises(bl.CheckpointError, match=r"batch 3 begins with .* rows of it in stage 'counts'"):
        as_test(later, p, "recorded_plays:made")


def test_the_commands_replay_and_record(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replayed_job.py").write_text(
        "from pathlib import Path\nfrom tests.beamlike.replaying.test_replay import pipeline\n"
        f"p = pipeline(Path({str(folder)!r}))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        found = CliRunner().invoke(main, words)
        return found.exit_code, found.output

    checkpoint, job = str(folder / "checkpoint"), "replayed_job:p"
    code, text = call("replay", checkpoint, job, "--batch", "3", "--key", "user=a")
    assert (code, "no difference" in text, "state of stage streaks" in text) == (0, True, True)
    code, text = call("replay", checkpoint, job, "--batch", "3", "--before", "counts")
    assert (code, "arrivals at stage counts:" in text) == (0, True)
    for stop in ["--before", "--after"]:
        code, text = call("replay", checkpoint, job, "--batch", "3", stop, "streaks", "--key", "user=c")
        assert (code, "\u2502 c " in text, "\u2502 b " in text) == (0, True, False)
        code, text = call("replay", checkpoint, job, "--batch", "3", stop, "streaks", "--key", "usr=c")
        assert (code, text.startswith("Error: stage 'streaks' has no key column 'usr'")) == (1, True)
    code, text = call("replay", checkpoint, job, "--batch", "3", "--key", "usr=c")
    assert (code, text.startswith("Usage:"), "no stage has the key usr" in text) == (2, True, True)
    code, text = call("replay", checkpoint, job, "--batch", "3", "--step", "--key", "user=c")
    assert (code, "\u2502 c " in text, "\u2502 b " in text) == (0, True, False)
    assert "panes of stage totals, of all keys, as they have no column 'user':" in text
    code, text = call(
        "record", checkpoint, job, "--batches", "0..5", "--key", "user=a", "--into", "a.recording"
    )
    assert (code, text.splitlines()[-1]) == (0, "a.recording")
    assert call("replay", "a.recording", job)[0] == 0
    code, text = call("record", checkpoint, job, "--batches", "0..5", "--into", "test_a.py", "--as-test")
    assert "from replayed_job import p\n" in (tmp_path / "test_a.py").read_text()
    code, text = call("replay", checkpoint, job, "--batch", "77")
    assert (code, "it has batches 0 to 5" in text) == (1, True)
    code, text = call("record", checkpoint, job, "--batches", "3-5", "--into", "b")
    assert (code, "write a number, or FIRST..LAST" in text) == (2, True)


def test_players_of_a_plan_begin_where_the_state_is_known(folder: Path) -> None:
    run = open_run(folder / "checkpoint")
    _, origin = player_before(run, plan_of_run(run, pipeline(folder).plan()), 4)
    assert origin == "from the state in the journal"


def test_a_checkpoint_in_use_or_of_no_run_is_refused(folder: Path, tmp_path: Path) -> None:
    with (
        LocalCheckpoint.of(str(folder / "checkpoint")).lock("the run of 'plays'"),
        pytest.raises(bl.CheckpointError, match="is in use by the run of 'plays'"),
    ):
        bl.replay(folder / "checkpoint", pipeline(folder))
    records = tmp_path / "plays.jsonl"
    pipeline(folder, source=bl.Rows([{"user": "a", "at": 1}])).run(
        bl.LocalRunner(records=records, quiet=True)
    )
    with pytest.raises(
        bl.CheckpointError, match=r"no run in .*plays.jsonl: .* name the checkpoint= of a run"
    ):
        bl.replay(records, pipeline(folder))


def test_damaged_values_of_earlier_batches_are_noticed(tmp_path: Path) -> None:
    checkpoint = run(tmp_path)
    connection = sqlite3.connect(checkpoint / "beamlike" / "journal.sqlite")
    with connection:
        connection.execute("UPDATE undo SET value = x'00' WHERE value IS NOT NULL AND stage = 'streaks'")
    connection.close()
    with pytest.raises(
        bl.CheckpointError, match=r"of stage 'streaks' in .* before batch 2 is not what was written"
    ):
        bl.replay(checkpoint, pipeline(tmp_path), batch=2)
    pipeline(tmp_path).run(bl.LocalRunner(checkpoint=str(checkpoint), quiet=True))


def test_missing_values_of_earlier_batches_are_noticed(tmp_path: Path) -> None:
    checkpoint = run(tmp_path)
    connection = sqlite3.connect(checkpoint / "beamlike" / "journal.sqlite")
    with connection:
        connection.execute("DELETE FROM undo WHERE batch = 3 AND stage = 'streaks'")
    connection.close()
    with pytest.raises(
        bl.CheckpointError, match=r"the values that batch 3 has replaced in .* is not what was written"
    ):
        bl.replay(checkpoint, pipeline(tmp_path), batch=2)


def test_a_value_that_is_missing_in_the_state_is_not_kept() -> None:
    """The journal detects it when it replaces the value."""
    names = [("streaks", str(number)) for number in range(9)]
    with sqlite3.connect(":memory:") as memory:
        journal_tables.make_tables(memory)
        undo.make_tables(memory)
        memory.execute("INSERT INTO state VALUES ('streaks', '1', 7, x'0102')")
        undo.keep_before(memory, 0, names, [("new", "a")], 100)
        assert memory.execute("SELECT * FROM undone").fetchall() == [(0, 2, 2)]
        kept = memory.execute("SELECT batch, stage, key FROM undo ORDER BY stage").fetchall()
        assert kept == [(0, "new", "a"), (0, "streaks", "1")]
