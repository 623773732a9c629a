"""Two versions of a pipeline over the recorded input of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import CheckpointError, InputGone
from beamlike.replaying.diffing.diff import Diff

ROWS = [{"user": "ab"[number % 2], "points": number % 5, "at": number * 7} for number in range(40)]
OUT = "window_start", "user", "n"


def version(
    folder: Path,
    *,
    limit: int = 0,
    windows: str = "1m",
    name: str = "counts",
    sink: Any = None,
    add: Any = (0,),
) -> bl.Pipeline:
    """Declares counts of users with at least `limit` points, after a function has added `add` to them."""
    source = bl.JSONLines(
        str(folder / "in"), schema={"user": str, "points": int, "at": int}, max_files_per_trigger=1
    )
    p = bl.Pipeline("p")
    strategy = bl.BoundedOutOfOrderness("5s")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=strategy)
    kept = plays.filter(bl.col("points") >= limit)
    columns = {"user": str, "points": int}
    more = kept.map(lambda row: {"user": row["user"], "points": row["points"] + add[0]}, schema=columns)
    minutes = more.window_into(bl.FixedWindows(windows)).group_by("user", name=name)
    minutes.aggregate(n=bl.count(), total=bl.sum("points")).write("out", sink or bl.Memory())
    return p


def ran(folder: Path, sink: Any = None, runner: Any = None) -> str:
    """Writes four files, runs the first version over them, and returns the checkpoint."""
    (folder / "in").mkdir(parents=True)
    for number in range(4):
        part = pl.DataFrame(ROWS[10 * number : 10 * number + 10])
        part.write_ndjson(folder / "in" / f"{number}.jsonl")
    checkpoint = str(folder / "checkpoint")
    version(folder, sink=sink).run(
        runner(checkpoint) if runner else bl.LocalRunner(checkpoint=checkpoint, drain=True, quiet=True)
    )
    return checkpoint


def test_a_version_with_a_source_that_is_read_again_is_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "1.csv").write_text("user,rate\na,2\nb,3\n")

    def rated() -> bl.Pipeline:
        p = version(tmp_path)
        (counts,) = [call.made for call in p.calls if call.name == "aggregate"]
        rates = p.read(
            "rates", bl.Refreshed(bl.CSV(tmp_path / "rates", {"user": str, "rate": int}), every="1h")
        )
        found = bl.lookup(rates, on="user")
        bl.Collection(p, counts).with_columns(rate=found["rate"]).write("rated", bl.Memory())
        return p

    (tmp_path / "in").mkdir()
    pl.DataFrame(ROWS).write_ndjson(tmp_path / "in" / "0.jsonl")
    checkpoint = str(tmp_path / "checkpoint")
    rated().run(bl.LocalRunner(checkpoint=checkpoint, drain=True, quiet=True))
    found = bl.diff(rated(), rated(), checkpoint)
    assert not found
    assert [(one.stage, one.effect) for one in found.effects if one.effect == "refused"] == []
    assert found.parts


def counts(found: Diff) -> dict[str, tuple[int, int, int, int]]:
    return {
        one.name: (one.rows.same, len(one.rows.changed), len(one.rows.new), len(one.rows.gone))
        for one in found.parts
    }


def test_the_version_of_the_run_has_the_panes_of_the_run(tmp_path: Path) -> None:
    out = bl.Memory()
    checkpoint = ran(tmp_path, out)
    rows = len(out.frame())
    again = bl.Memory()
    found = bl.diff(version(tmp_path, sink=again), version(tmp_path, sink=again), checkpoint)
    assert not found
    assert counts(found) == {"counts": (rows, 0, 0, 0), "out": (rows, 0, 0, 0)}
    assert again.frame().is_empty()
    assert "No pane and no row of a sink differs." in str(found)
    assert [(one.stage, one.effect) for one in found.effects] == [("counts", "goes on")]
    nothing = bl.diff(version(tmp_path, limit=9), version(tmp_path, limit=9), checkpoint)
    assert "Neither version has a pane, or a row for a sink, in these batches." in str(nothing)


def test_a_filter_that_changes_is_named_with_the_first_row(tmp_path: Path) -> None:
    found = bl.diff(version(tmp_path), version(tmp_path, limit=1), ran(tmp_path))
    assert found
    text = str(found)
    assert "First difference: 'counts' receives other rows of 'plays'." in text
    assert "plays -> filter points >= 0 -> map" in text
    assert "filter points >= 1" in text
    assert found.cause is not None
    assert (found.cause.row or {})["points"] == 0
    assert not found.cause.added
    line = next(line for line in text.splitlines() if line.startswith("    ~"))
    assert "n was 5, now 4" in line


def test_a_function_that_changes_is_found_though_it_is_declared_alike(tmp_path: Path) -> None:
    one, other = version(tmp_path, add=[0]), version(tmp_path, add=[1])
    found = bl.diff(one, other, ran(tmp_path))
    assert counts(found)["counts"][1] > 0
    assert "declared alike: look at the code of their functions" in str(found)
    assert "\n    plays -> filter points >= 0 -> map" in str(found)


def test_rows_that_become_dead_letters_are_counted(tmp_path: Path) -> None:
    found = bl.diff(version(tmp_path), version(tmp_path, add=["x"]), ran(tmp_path))
    assert "Note: the new version: step 'plays.map' has 40 dead letters, the last one because: " in str(found)
    assert counts(found)["counts"][3] > 0


def test_windows_that_change_are_named_and_the_state_is_refused(tmp_path: Path) -> None:
    found = bl.diff(version(tmp_path), version(tmp_path, windows="2m"), ran(tmp_path))
    assert "First difference: stage 'counts' emits other panes for the same rows." in str(found)
    assert "windows was FixedWindows(size=1m), now FixedWindows(size=2m)" in str(found)
    (effect,) = found.effects
    assert effect.effect == "refused"
    assert "start again with another checkpoint" in effect.why


def test_a_stage_of_another_name_is_gone_and_new(tmp_path: Path) -> None:
    found = bl.diff(version(tmp_path), version(tmp_path, name="others"), ran(tmp_path))
    assert {one.name: one.where for one in found.parts} == {"counts": "gone", "others": "new", "out": "both"}
    assert {one.stage: one.effect for one in found.effects} == {"counts": "refused", "others": "begins anew"}
    assert counts(found)["out"][1:] == (0, 0, 0)


def test_only_the_last_batches_are_compared(tmp_path: Path) -> None:
    checkpoint = ran(tmp_path)
    every = bl.diff(version(tmp_path), version(tmp_path), checkpoint)
    last = bl.diff(version(tmp_path), version(tmp_path), checkpoint, last="0s")
    assert every.batches == (0, 4)
    assert last.batches == (4, 4)
    assert counts(last)["counts"][0] < counts(every)["counts"][0]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    checkpoint = ran(tmp_path)
    with pytest.raises(CheckpointError, match="there is no run in"):
        bl.diff(version(tmp_path), version(tmp_path), tmp_path / "nowhere")
    with pytest.raises(bl.errors.WrongType, match="diff takes a pipeline or its plan, not 7"):
        bl.diff(7, version(tmp_path), checkpoint)  # type: ignore[arg-type]
    os.remove(tmp_path / "in" / "2.jsonl")
    with pytest.raises(InputGone, match=r"2\.jsonl"):
        bl.diff(version(tmp_path), version(tmp_path), checkpoint)


APP = """
from pathlib import Path

import beamlike as bl

SIZE = "1m"


def pipeline(limit: int = 0) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.JSONLines("in", schema={"user": str, "points": int, "at": int}, max_files_per_trigger=1)
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("5s"))
    kept = plays.filter(bl.col("points") >= limit).window_into(bl.FixedWindows(SIZE))
    kept.group_by("user", name="counts").aggregate(n=bl.count()).write("out", bl.JSONLines("out"))
    return p
"""


def test_the_command_compares_revisions_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran(tmp_path / "other")
    os.rename("other/in", "in")
    Path("versioned.py").write_text(APP)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "versioned.py"], ["commit", "-qm", "Count plays"]):
        subprocess.run([*git, *command], check=True)

    def called(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments])

    assert (
        called("run", "versioned:pipeline", "--checkpoint", "checkpoint", "--drain", "--quiet").exit_code == 0
    )
    sys.modules.pop("versioned")
    written = {path: path.read_bytes() for path in Path("out").iterdir()}
    Path("versioned.py").write_text(APP.replace('"1m"', '"2m"'))
    versions = ["versioned@HEAD:pipeline", "versioned:pipeline"]
    page = ["-o", "pages/diff.html"]
    done = called("diff", *versions, "--run", "checkpoint", *page)
    assert done.exit_code == 1, done.output
    assert "windows was FixedWindows(size=1m), now FixedWindows(size=2m)" in done.output
    assert "windows was FixedWindows(size=1m)" in Path("pages/diff.html").read_text()
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == written
    Path("versioned.py").write_text(APP)
    sys.modules.pop("versioned")
    same = called("diff", *versions, "--run", "checkpoint", "--set", "limit=2")
    assert (same.exit_code, "No pane and no row of a sink differs." in same.output) == (0, True), same.output
    for wrong, why in [
        (["versioned@gone:pipeline", "versioned:pipeline"], "git has no files of revision 'gone'"),
        (["versioned@:pipeline", "versioned:pipeline"], "write MODULE@REVISION:PIPELINE"),
        (["versioned:pipline", "versioned:pipeline"], "did you mean 'pipeline'"),
    ]:
        failed = called("diff", *wrong, "--run", "checkpoint")
        assert failed.exit_code == 2
        assert why in failed.output
    assert called("diff", *versions, "--run", "nowhere").exit_code == 2


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_on_spark_is_compared_in_process(spark: Any, tmp_path: Path) -> None:
    checkpoint = ran(
        tmp_path, runner=lambda path: bl.SparkRunner(path, session=spark, shards=2, drain=True, quiet=True)
    )
    same = bl.diff(version(tmp_path), version(tmp_path), checkpoint)
    assert not same
    local = ran(tmp_path / "local")
    assert counts(same) == counts(bl.diff(version(tmp_path / "local"), version(tmp_path / "local"), local))
    changed = bl.diff(version(tmp_path), version(tmp_path, windows="2m"), checkpoint)
    assert [one.effect for one in changed.effects] == ["refused"]


def test_a_renamed_column_is_a_change_of_each_row(tmp_path: Path) -> None:
    def named(column: str) -> bl.Pipeline:
        p = bl.Pipeline("p")
        at = {"timestamp": "at", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
        counts = p.read("rows", bl.Rows(ROWS), **at).window_into(bl.FixedWindows("1m")).group_by("user")
        counts.aggregate(**{column: bl.count()}).named("counts").write("out", bl.Memory())
        return p

    checkpoint = tmp_path / "checkpoint"
    named("n").run(bl.LocalRunner(checkpoint=checkpoint, drain=True))
    assert not bl.diff(named("n"), named("n"), checkpoint)
    found = bl.diff(named("n"), named("plays"), checkpoint)
    (out,) = [part for part in found.parts if part.name == "out"]
    assert (out.rows.same, len(out.rows.new), len(out.rows.gone)) == (0, 0, 0)
    assert len(out.rows.changed) > 0
    assert "column n is now called plays" in str(found)
