"""`python -m beamlike.testing FILE…` plays transcripts: one line a file, exit status 1 if any failed."""

from __future__ import annotations

import sys

import click

from beamlike.testing.play import Result, play
from beamlike.testing.transcripts import Transcript, TranscriptError, load


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--runner", type=click.Choice(["stage", "local", "spark"]), default="stage", show_default=True)
def main(files: tuple[str, ...], runner: str) -> None:
    """Play the transcripts in FILES on a runner."""
    read = [_read(file) for file in files]
    played = iter(play([item for item in read if isinstance(item, Transcript)], runner))
    results = [next(played) if isinstance(item, Transcript) else item for item in read]
    for result in results:
        click.echo(str(result))
    sys.exit(any(result.status == "failed" for result in results))


def _read(file: str) -> Transcript | Result:
    try:
        return load(file)
    except TranscriptError as error:
        # The message begins with the name of the file.
        return Result(" ".join(str(error).split()), "failed")


if __name__ == "__main__":
    main(prog_name="python -m beamlike.testing")
