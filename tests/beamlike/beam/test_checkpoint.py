"""Runs of Beam pipelines with a checkpoint: killed again and again, they have the output of a run that is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import attrs
import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402
from beamlike.errors import CheckpointError  # noqa: E402
from beamlike.observe import History  # noqa: E402
from tests.beamlike.beam.pipelines import RunningSum, in_bundles, see, seen, streaming  # noqa: E402
from tests.support.places import ROOT  # noqa: E402


@attrs.frozen
class Killed:
    """The job of `tests.beamlike.beam.killed` in a folder."""

    folder: Path
    job: Any

    def run(self, at: int = 0, forgets: str = "") -> int:
        """Runs it, killed at a bundle. Returns its exit code."""
        self.job.stdin.write(f"{at} {forgets}\n")
        self.job.stdin.flush()
        return int(self.job.stdout.readline())

    def killed_until_done(self, forgets: str = "") -> int:
        """Runs it until it ends by itself, killed at each bundle from the first on. Returns the number of kills."""
        for kills in range(100):
            if (code := self.run(kills + 1, forgets)) != -SIGKILL:
                assert code == 0
                return kills
        raise AssertionError("it does not get on")

    @property
    def found(self) -> list[str]:
        """The lines of its output."""
        sums = sorted(line for part in self.folder.glob("sums-*") for line in part.read_text().splitlines())
        return [*(self.folder / "found.txt").read_text().splitlines(), *sums]


@contextmanager
def job(folder: Path) -> Iterator[Killed]:
    folder.mkdir()
    for part in range(2):
        (folder / f"input-{part}.txt").write_text("".join(f"{n}\n" for n in range(25 * part, 25 * part + 25)))
    command = [sys.executable, "-m", "tests.beamlike.beam.killed", str(folder)]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
    }
    with subprocess.Popen(
        command, cwd=ROOT, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
    ) as own:
        yield Killed(folder, own)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    with job(tmp_path_factory.mktemp("undisturbed") / "job") as undisturbed:
        assert undisturbed.run() == 0
        assert len(undisturbed.found) > 50
        return undisturbed.found


def test_a_run_that_is_killed_again_and_again_has_the_same_output(
    expected: list[str], tmp_path: Path
) -> None:
    with job(tmp_path / "job") as killed:
        assert killed.killed_until_done() >= 10
        assert killed.found == expected
        # A run that has ended does nothing more.
        assert killed.run(1) == 0


@pytest.mark.parametrize("part", ["streams", "node"])
def test_a_checkpoint_that_forgets_is_found(part: str, expected: list[str], tmp_path: Path) -> None:
    with job(tmp_path / "job") as killed:
        assert killed.run(40, part) == -SIGKILL
        code = killed.run(0, part)
        assert code != 0 or killed.found != expected


def count(checkpoint: Path, name: str, *, see_it: bool = False) -> None:
    """Runs a pipeline with a state."""
    with streaming(checkpoint=checkpoint) as p:
        counted = p | in_bundles([("a", 1)]) | name >> beam.ParDo(RunningSum())
        if see_it:
            counted | "more" >> beam.Map(see)


def test_another_pipeline_is_refused_by_name(tmp_path: Path) -> None:
    count(tmp_path, "sums")
    with pytest.raises(CheckpointError, match="it had the transform 'sums/Keyed/Write', which is gone"):
        count(tmp_path, "totals")
    with pytest.raises(CheckpointError, match="it did not have the transform 'more'"):
        count(tmp_path, "sums", see_it=True)


def in_windows(checkpoint: Path, seconds: int) -> None:
    """Runs a pipeline with a grouping."""
    with streaming(checkpoint=checkpoint) as p:
        placed = p | in_bundles([("a", 1)]) | beam.WindowInto(beam.window.FixedWindows(seconds))
        placed | "sums" >> beam.CombinePerKey(sum)


def test_other_windows_are_refused_by_name(tmp_path: Path) -> None:
    in_windows(tmp_path, 10)
    with pytest.raises(CheckpointError, match=r"the grouping 'sums/Group' was .*10s.* is .*20s"):
        in_windows(tmp_path, 20)


def beside(checkpoint: Path, seconds: int) -> None:
    """Runs a pipeline with a side input in windows."""
    with streaming(checkpoint=checkpoint) as p:
        placed = p | in_bundles([("a", 1)]) | "side" >> beam.WindowInto(beam.window.FixedWindows(seconds))
        p | beam.Create([1]) | "read" >> beam.Map(lambda n, side: n, beam.pvalue.AsIter(placed))


def test_other_windows_of_a_side_are_refused_by_name(tmp_path: Path) -> None:
    beside(tmp_path, 10)
    with pytest.raises(CheckpointError, match=r"the side input 'side' of 'read/.*10s.* is .*20s"):
        beside(tmp_path, 20)


def test_a_run_that_has_ended_is_not_repeated(tmp_path: Path) -> None:
    seen.clear()
    for _ in range(2):
        with streaming(checkpoint=tmp_path / "checkpoint", records=tmp_path / "run.jsonl") as p:
            counted = p | in_bundles([("a", 1)], [("a", 2)]) | "count" >> beam.ParDo(RunningSum())
            counted | "see" >> beam.Map(see)
    assert sorted(seen) == [("a", 1), ("a", 3)]
    assert sum(batch.stages["count"].elements for batch in History.open(tmp_path / "run.jsonl").batches) == 2


class Finalized(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Registers a callback of its bundle."""

    def process(self, element: int, after: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[int]:
        after.register(lambda: None)
        yield element


def test_what_is_finalized_before_a_commit_is_refused_by_name(tmp_path: Path) -> None:
    p = streaming(checkpoint=tmp_path)
    p | beam.Create([1]) | beam.ParDo(Finalized())
    with pytest.raises(
        NotImplementedError, match=r"with a checkpoint .* 'beam:requirement:pardo:finalization"
    ):
        p.run()


def test_the_checkpoint_of_a_pipeline_of_the_own_interface_is_refused(tmp_path: Path) -> None:
    rows, checkpoint = tmp_path / "rows.jsonl", tmp_path / "checkpoint"
    rows.write_text('{"n": 1}\n')
    own = bl.Pipeline("own")
    own.read("rows", bl.JSONLines(rows, schema={"n": int})).write("out", bl.Memory())
    own.run(bl.LocalRunner(checkpoint=checkpoint))
    with pytest.raises(CheckpointError, match="of beamlike's own interface"):
        count(checkpoint, "sums")


def test_a_program_names_the_checkpoint_by_an_option(tmp_path: Path) -> None:
    options = PipelineOptions([f"--beamlike_checkpoint={tmp_path}"])
    for _ in range(2):
        with beam.Pipeline(BeamlikeRunner(), options=options) as p:
            p | beam.Create([1, 2]) | beam.Map(see)
    assert (tmp_path / "beamlike" / "beam.json").exists()
