"""Commands that are killed at their operations on files: `python -m tests.support.killed_commands COMMAND FOLDER`.

Add `empty` if the folder that the command makes is there before. The command runs in a forked process, which is killed
after its n-th operation, for each n. Then the pipeline runs on the folder that the command was to make and, for each
fourth n, on the checkpoint of the run. Prints a line of JSON for each n: the files that are left, if the first run was
refused, and the numbers in the output after each run.

This process itself runs nothing, so that its forks have no threads to miss.
"""

from __future__ import annotations

import builtins
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
from click.testing import CliRunner

import beamlike as bl

# What the children need, so that they do not import it again.
import beamlike.api.savepoint
import beamlike.io.files.formats
import beamlike.local.savepoint
import beamlike.plan.compiler
import beamlike.replaying.rebuilding.rebuild
import beamlike.replaying.record
import beamlike.runtime.loop.live_run
from beamlike.cli.main import main as command_line

_OPERATIONS: Final = ("fsync", "rename", "replace", "mkdir", "rmdir", "remove", "unlink")
_MOST: Final = 200


@attrs.frozen
class Job:
    """A run of numbers from files to files. Its checkpoint is `checkpoint`, and a savepoint of it is `savepoint`."""

    folder: Path

    def give(self, number: int) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        file = self.folder / "in" / f"{number}.jsonl"
        file.write_text(json.dumps({"n": number, "at": number}) + "\n")
        os.utime(file, (1_000_000_000 + number,) * 2)

    def pipeline(self) -> bl.Pipeline:
        p = bl.Pipeline("numbers")
        source = bl.JSONLines(self.folder / "in", {"n": int, "at": int}, max_files_per_trigger=1)
        rows = p.read("in", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        rows.write("out", bl.JSONLines(self.folder / "out"))
        days = rows.window_into(bl.FixedWindows("1d")).group_by("n", name="days").aggregate(c=bl.count())
        days.write("counts", bl.JSONLines(self.folder / "counts"))
        return p

    def run(self, checkpoint: str) -> None:
        self.pipeline().run(bl.LocalRunner(checkpoint=self.folder / checkpoint, quiet=True))

    def begin(self) -> None:
        self.run("checkpoint")
        bl.savepoint.save(self.folder / "checkpoint", self.folder / "savepoint")

    def numbers(self) -> list[int]:
        files = (self.folder / "out").glob("*.jsonl")
        return sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines())

    # The commands, each of which makes the folder, or the file, `made`.

    def savepoint(self) -> None:
        bl.savepoint.save(self.folder / "checkpoint", self.folder / "made")

    def restore(self) -> None:
        bl.savepoint.restore(self.folder / "savepoint", self.folder / "made", self.pipeline(), runner="local")

    def rebuild(self) -> None:
        bl.rebuild(self.folder / "checkpoint", self.folder / "made", self.pipeline(), stage="days")

    def record(self) -> None:
        bl.record(self.folder / "checkpoint", self.pipeline(), self.folder / "made", batches=(0, 1))

    def new(self) -> None:
        os.chdir(self.folder)
        assert CliRunner().invoke(command_line, ["new", "made"]).exit_code == 0


def in_child(do: Callable[[], object]) -> bool:
    """Does something in a forked process. Returns True if it succeeds."""
    pid = os.fork()
    if pid == 0:
        try:
            do()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def killed_at(number: int, do: Callable[[], object]) -> None:
    """Kills this process after its operation on files with this number, among which is each file that it opens to
    write.
    """
    count = 0

    def counted(operation: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            nonlocal count
            result = operation(*args, **options)
            count += counts(*args, **options)
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counting

    def writes(file: Any, mode: str = "r", *args: Any, **options: Any) -> bool:
        return not {*"wxa+"}.isdisjoint(mode)

    for name in _OPERATIONS:
        setattr(os, name, counted(getattr(os, name), lambda *args, **options: True))
    builtins.open = counted(open, writes)
    do()


def main(command: str, folder: Path, *, empty: bool) -> None:
    job, kept = Job(folder / "run"), folder / "kept"
    job.folder.mkdir()
    job.give(1)
    job.give(2)
    assert in_child(job.begin)
    shutil.copytree(job.folder, kept)
    for number in range(1, _MOST):
        shutil.rmtree(job.folder)
        shutil.copytree(kept, job.folder)
        if empty:
            (job.folder / "made").mkdir()
        done = in_child(lambda number=number: killed_at(number, getattr(job, command)))  # type: ignore[misc]
        left = [str(path.relative_to(job.folder)) for path in sorted(job.folder.rglob("*made*"))]
        left += [str(path.relative_to(job.folder)) for path in sorted((job.folder / "made").rglob("*"))]
        job.give(3)
        refused, first = not in_child(lambda: job.run("made")), job.numbers()
        again = refused and number % 4 == 1
        second = job.numbers() if again and in_child(lambda: job.run("checkpoint")) else None
        print(
            json.dumps(
                {"done": done, "left": left, "refused": refused, "again": again, "numbers": [first, second]}
            )
        )
        if done:
            return
    raise SystemExit("the command has too many operations")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), empty="empty" in sys.argv)
