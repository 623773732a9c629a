"""A changed stage is rebuilt from the recorded input, and the run resumes with the state of all others."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import CheckpointError, InputGone, UnknownStage
from beamlike.replaying.rebuilding import seam
from beamlike.runtime.loop import journal
from beamlike.runtime.savepoint.savepoint import Savepoint
from beamlike.system.path_names import file_name
from tests.beamlike.replaying.test_inputs import SCHEMA, Days
from tests.beamlike.replaying.test_replay import Streak, fill
from tests.support.examples import share

FILES = ["abca", "bca", "aab", "ccb", "abc", "cab", "bba"]
BUILT = ("sessions out", "totals out")


def pipeline(
    folder: Path,
    out: dict[str, bl.Memory],
    *,
    gap: int = 3,
    minutes: int = 20,
    keys: tuple[str, ...] = ("user",),
    bound: Any = None,
    source: Any = None,
) -> bl.Pipeline:
    """Declares two consecutive groupings, and a process beside them."""
    p = bl.Pipeline("p")
    rows = source or bl.JSONLines(folder / "in", SCHEMA, order="path", max_files_per_trigger=1)
    strategy = bound or bl.BoundedOutOfOrderness("3s")
    plays = p.read("plays", rows, timestamp="at", timestamp_unit="s", watermark=strategy)
    starts = plays.window_into(bl.FixedWindows("2s")).group_by("user").aggregate(n=bl.count()).named("starts")
    sessions = starts.window_into(bl.Sessions(f"{gap}s"))
    grouped = sessions.group_by(*keys) if keys else sessions
    counts = grouped.aggregate(n=bl.sum("n")).named("sessions")
    counts.write("sessions out", out.setdefault("sessions out", bl.Memory()))
    totals = counts.window_into(bl.FixedWindows(f"{minutes}s")).aggregate(n=bl.sum("n")).named("totals")
    totals.write("totals out", out.setdefault("totals out", bl.Memory()))
    streaks = plays.group_by("user", name="streaks").process(Streak(), {"user": str, "n": int})
    streaks.write("streaks out", out.setdefault("streaks out", bl.Memory()))
    return p


def run(folder: Path, checkpoint: str, rows: int = 1000, **changes: Any) -> dict[str, list[str]]:
    """Runs the pipeline over the existing files. Returns its rows by sink, as text."""
    out = dict[str, bl.Memory]()
    runner = bl.LocalRunner(checkpoint=str(folder / checkpoint), chunk_rows=rows, quiet=True)
    pipeline(folder, out, **changes).run(runner)
    return {name: sorted(map(str, memory.rows())) for name, memory in out.items()}


def rebuilt(folder: Path, stage: Any = "sessions", **named: Any) -> Any:
    changes = {
        name: named.pop(name) for name in ("gap", "minutes", "keys", "bound", "source") if name in named
    }
    return bl.rebuild(
        folder / "checkpoint", folder / "new", pipeline(folder, {}, **changes), stage=stage, **named
    )


def restore(folder: Path, **changes: Any) -> None:
    bl.savepoint.restore(folder / "new", folder / "after", pipeline(folder, {}, **changes), runner="local")


def parts(folder: Path) -> dict[str, list[str]]:
    """Returns the rows that a rebuild wrote, as text."""
    return {
        name: sorted(
            str(row)
            for file in (folder / "past" / file_name(name)).glob("*.parquet")
            for row in pl.read_parquet(file).to_dicts()
        )
        for name in BUILT
    }


@share(6)
@given(
    st.lists(st.text("abc", min_size=1, max_size=6), min_size=2, max_size=6),
    st.integers(1, 5),
    st.integers(1, 9),
    st.sampled_from([10, 20]),
)
def test_a_run_goes_on_as_if_the_stage_had_always_been_so(
    files: list[str], before: int, gap: int, minutes: int
) -> None:
    before = min(before, len(files) - 1)
    changes = {"gap": gap, "minutes": minutes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, files[:before])
        run(folder, "checkpoint")
        past = run(folder, "always", **changes)
        found = rebuilt(folder, into=folder / "past", **changes)
        assert found.read == {"plays": sum(map(len, files[:before]))}
        assert (found.stages, found.kept) == (("sessions", "totals"), ("starts", "streaks"))
        written = parts(folder)
        restore(folder, **changes)
        fill(folder, files[before:], before)
        went_on, always = (run(folder, checkpoint, **changes) for checkpoint in ("after", "always"))
        assert went_on == always
        assert went_on["streaks out"] == run(folder, "checkpoint")["streaks out"]
        assert written == {name: past[name] for name in BUILT}


@pytest.mark.parametrize("known", [1, 2, 4])
def test_files_of_batches_that_are_not_known_any_more_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", known)
    fill(tmp_path, FILES[:5])
    run(tmp_path, "checkpoint")
    run(tmp_path, "always", gap=7)
    found = rebuilt(tmp_path, gap=7)
    assert found.read == {"plays": sum(map(len, FILES[:5]))}
    assert f"the batches of {5 - known} earlier files are not known any more" in str(found)
    restore(tmp_path, gap=7)
    fill(tmp_path, FILES[5:], 5)
    assert run(tmp_path, "after", gap=7) == run(tmp_path, "always", gap=7)


@pytest.mark.parametrize("known", [1, 2, 3, 100])
def test_files_that_were_read_in_pieces_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", known)
    pieces: dict[str, Any] = {"source": bl.JSONLines(tmp_path / "in", SCHEMA, order="path"), "rows": 2}
    fill(tmp_path, FILES[:5])
    run(tmp_path, "checkpoint", **pieces)
    run(tmp_path, "always", gap=1, **pieces)
    found = rebuilt(tmp_path, gap=1, source=pieces["source"])
    assert found.read == {"plays": sum(map(len, FILES[:5]))}
    restore(tmp_path, gap=1, source=pieces["source"])
    fill(tmp_path, FILES[5:], 5)
    assert run(tmp_path, "after", gap=1, **pieces) == run(tmp_path, "always", gap=1, **pieces)


def test_a_rebuilt_run_can_be_rebuilt(tmp_path: Path) -> None:
    fill(tmp_path, FILES[:3])
    run(tmp_path, "checkpoint")
    run(tmp_path, "always", gap=5)
    rebuilt(tmp_path, gap=7)
    restore(tmp_path, gap=7)
    fill(tmp_path, FILES[3:5], 3)
    run(tmp_path, "after", gap=7)
    run(tmp_path, "always", gap=5)
    again = pipeline(tmp_path, {}, gap=5)
    found = bl.rebuild(tmp_path / "after", tmp_path / "again", again, stage="sessions")
    assert found.read == {"plays": sum(map(len, FILES[:5]))}
    bl.savepoint.restore(tmp_path / "again", tmp_path / "last", again, runner="local")
    fill(tmp_path, FILES[5:], 5)
    assert run(tmp_path, "last", gap=5) == run(tmp_path, "always", gap=5)


def test_rows_before_a_time_are_left_out_and_counted(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    found = rebuilt(tmp_path, since=30, into=tmp_path / "past", gap=1)
    assert found.before["sessions"] > 0
    everything = bl.rebuild(
        tmp_path / "checkpoint",
        tmp_path / "all",
        pipeline(tmp_path, {}, gap=1),
        stage="sessions",
        into=tmp_path / "all past",
    )
    assert everything.before == {}
    rows = pl.read_parquet(tmp_path / "past" / file_name("sessions out"))
    assert rows["window_start"].dt.epoch("s").min() >= 30
    assert len(rows) < everything.rows["sessions out"]


def test_another_part_that_has_changed_is_refused_by_name(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    with pytest.raises(CheckpointError, match=r"stage 'sessions'.*\n.*name it in stage="):
        rebuilt(tmp_path, "totals", gap=7, minutes=10)
    with pytest.raises(CheckpointError, match="source 'plays': watermark"):
        rebuilt(tmp_path, gap=7, bound=bl.MonotonousTimestamps())
    with pytest.raises(UnknownStage, match="did you mean 'sessions'"):
        rebuilt(tmp_path, "session", gap=7)
    assert not (tmp_path / "new").exists()


def test_other_keys_are_no_reason_to_start_anew(tmp_path: Path) -> None:
    fill(tmp_path, FILES[:4])
    run(tmp_path, "checkpoint")
    run(tmp_path, "always", keys=())
    rebuilt(tmp_path, keys=())
    restore(tmp_path, keys=())
    fill(tmp_path, FILES[4:], 4)
    assert run(tmp_path, "after", keys=()) == run(tmp_path, "always", keys=())


def test_a_file_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    os.remove(tmp_path / "in" / "2.jsonl")
    with pytest.raises(InputGone, match=r"2\.jsonl"):
        rebuilt(tmp_path, gap=7, into=tmp_path / "past")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "checkpoint"}


def test_a_file_of_a_batch_that_the_position_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    places = seam.places
    monkeypatch.setattr(seam, "places", lambda name, saved: [*places(name, saved)][1:])
    with pytest.raises(CheckpointError, match=r"rows would be missing or there twice.*0\.jsonl"):
        rebuilt(tmp_path, gap=7)
    assert not (tmp_path / "new").exists()


KILLED = """
import os, sys
from pathlib import Path
from beamlike.replaying.rebuilding import rebuild
from tests.beamlike.replaying.rebuilding.test_rebuild import rebuilt

write = rebuild.in_process.write_state
calls = []

def killed(saved, values):
    calls.append(1)
    write(saved, values)
    if len(calls) == int(sys.argv[2]):
        os._exit(9)

rebuild.in_process.write_state = killed
rebuilt(Path(sys.argv[1]), gap=7)
"""


@pytest.mark.parametrize("call", [1, 2])
def test_a_rebuild_that_was_killed_leaves_no_savepoint_and_can_be_repeated(tmp_path: Path, call: int) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(call)], check=False)
    assert killed.returncode == 9
    assert not (tmp_path / "new").exists()
    assert isinstance(bl.savepoint.save(tmp_path / "checkpoint", tmp_path / "plain"), Savepoint)
    assert rebuilt(tmp_path, gap=7).stages == ("sessions", "totals")
    restore(tmp_path, gap=7)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "checkpoint", "plain", "new", "after"}


class Hours(Days):
    """A source whose positions do not refer to files, but have the number of batches so far."""

    def __init__(self, number: int) -> None:
        self.number = number

    def plan(self, position: dict[str, int], rows: int) -> bl.PlannedBatch | None:
        hour = position.get("next", 0)
        known = self.number
        return bl.PlannedBatch([hour], {"next": hour + 1}, more=hour + 1 < known) if hour < known else None


def test_a_source_with_positions_is_played_from_its_beginning(tmp_path: Path) -> None:
    run(tmp_path, "checkpoint", source=Hours(3))
    run(tmp_path, "always", source=Hours(3), gap=1)
    assert rebuilt(tmp_path, source=Hours(5), gap=1).read == {"plays": 12}
    restore(tmp_path, source=Hours(5), gap=1)
    after, always = (run(tmp_path, name, source=Hours(5), gap=1) for name in ("after", "always"))
    assert after == always


def test_a_source_with_positions_is_refused_if_its_first_batches_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "KEPT_BATCHES", 2)
    run(tmp_path, "checkpoint", source=Hours(3))
    with pytest.raises(CheckpointError, match="source 'plays': what it gave before batch 1 is no longer"):
        rebuilt(tmp_path, source=Hours(3), gap=1)


MODULE = """
from pathlib import Path
import beamlike as bl
from tests.beamlike.replaying.rebuilding.test_rebuild import pipeline

p = pipeline(Path(__file__).parent, {}, gap=1)


def made(gap: float, password: str = "") -> bl.Pipeline:
    return pipeline(Path(__file__).parent, {}, gap=gap)
"""


def test_the_command_prints_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    (tmp_path / "of_rebuild.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    command = ["rebuild", "checkpoint", "new", "of_rebuild:p", "--stage", "sessions"]
    wrong = CliRunner().invoke(main, [*command, "--since", "soon"])
    assert (wrong.exit_code, "--since 'soon'" in wrong.output) == (2, True)
    wrong = CliRunner().invoke(main, [*command[:-1], "session"])
    assert (wrong.exit_code, "did you mean 'sessions'" in wrong.output) == (1, True)
    done = CliRunner().invoke(main, [*command, "--since", "1970-01-01T00:00:30Z", "--into", "past"])
    assert done.exit_code == 0, done.output
    # The first three files are before that time, and each of their rows is a window of its own.
    early = sum(map(len, FILES[:3]))
    assert f"  stage sessions: {early} rows before the given time left out" in done.output
    *_, last = done.output.splitlines()
    told = "continue with beamlike "
    assert last == f"{told}restore new NEW_CHECKPOINT of_rebuild:p --runner local"
    restored = CliRunner().invoke(main, last.removeprefix(told).split())
    assert restored.exit_code == 0, restored.output
    run(tmp_path, "NEW_CHECKPOINT", gap=1)


def test_the_command_to_go_on_is_one_of_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, FILES)
    run(tmp_path, "checkpoint")
    (tmp_path / "of_settings.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    command = ["rebuild", "checkpoint", "a new", "of_settings:made", "--set", "gap=1", "--stage", "sessions"]
    done = CliRunner().invoke(main, [*command, "--set", "password=apple"])
    assert (done.exit_code, "apple" in done.output) == (0, False), done.output
    *_, last = done.output.splitlines()
    _, restore, *words = shlex.split(last.removeprefix("continue with "))
    assert words[:5] == ["a new", "NEW_CHECKPOINT", "of_settings:made", "--set", "gap=1"]
    restored = CliRunner().invoke(main, [restore, words[0], "check 2", *words[2:]])
    assert restored.exit_code == 0, restored.output
    assert restored.output.endswith("--runner local --checkpoint 'check 2'\n")
