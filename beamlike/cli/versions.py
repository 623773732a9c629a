"""Versions of a pipeline on the command line: MODULE:PIPELINE, or MODULE@REVISION:PIPELINE for a revision of git."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from beamlike.cli.plainly import plainly
from beamlike.cli.target import Target
from beamlike.replaying.diffing.outcome import Outcome
from beamlike.runtime.recorded.batches import RecordedRun

FAILED: Final = 2
"""The exit code of a process that could not play a version. Its message is printed already."""


@attrs.frozen
class Version:
    """A version of a pipeline: the name MODULE:PIPELINE, and the revision of git; None for the files as they are."""

    target: str
    revision: str | None

    def play(self, ctx: click.Context, run: RecordedRun, since: int, settings: Sequence[str]) -> Outcome:
        """Plays the version over the recorded input of a run. A revision is played in a process of its own."""
        if self.revision is None:
            from beamlike.replaying.diffing.playing import play

            pipeline = Target().convert(self.target, None, ctx)
            return plainly(lambda: play(pipeline.plan(), run, since))  # type: ignore[no-any-return]
        with tempfile.TemporaryDirectory() as folder:
            code, out = Path(folder, "code"), Path(folder, "outcome")
            out.mkdir()
            _extract(self.revision, code)
            _play_in(code, out, self.target, run.path, since, settings)
            return Outcome.load(str(out))


class VersionType(click.ParamType[Version]):
    """An argument MODULE:PIPELINE or MODULE@REVISION:PIPELINE."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Version:
        if isinstance(value, Version):
            return value
        module, at, rest = str(value).partition("@")
        if not at:
            return Version(module, None)
        # A revision may contain a colon only in forms that name a file, and the name of a pipeline has none.
        revision, colon, name = rest.rpartition(":")
        if not module or not colon or not revision or not name or revision.startswith("-"):
            self.fail(f"{value!r}: write MODULE@REVISION:PIPELINE, such as app@main:pipeline", param, ctx)
        return Version(f"{module}:{name}", revision)


def _extract(revision: str, folder: Path) -> None:
    """Writes the files of the current folder at a revision of git to another folder."""
    try:
        done = subprocess.run(
            ["git", "archive", "--format=tar", revision, "."], capture_output=True, check=False
        )
    except FileNotFoundError:
        raise click.ClickException(f"git is not installed, so revision {revision!r} cannot be read") from None
    if done.returncode:
        told = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise click.ClickException(f"git has no files of revision {revision!r} for this folder: {told}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _play_in(
    code: Path, out: Path, target: str, checkpoint: str, since: int, settings: Sequence[str]
) -> None:
    """Plays a version whose modules are in the folder `code`, in a process of its own and in the current folder."""
    home = str(Path(__file__).parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    options = [part for one in settings for part in ("--set", one)]
    # -P: the current folder has the modules as they are now, and must not hide those of the revision.
    command = [sys.executable, "-P", "-m", "beamlike.cli.played", *options, "--", str(code), target]
    done = subprocess.run(
        [*command, checkpoint, str(since), str(out)], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    if done.returncode:
        raise SystemExit(FAILED)
