"""The command `python -m beamlike.testing FILE…`. It runs transcripts, prints a line per file, and exits with 1 if any
failed.
"""

from __future__ import annotations

from beamlike.testing.play import play
from beamlike.testing.player import Result, command
from beamlike.testing.transcripts import Transcript, TranscriptError, load


def _read(file: str) -> list[Transcript | Result]:
    try:
        return [load(file)]
    except TranscriptError as error:
        # The message begins with the name of the file.
        return [Result(" ".join(str(error).split()), "failed")]


main = command("transcripts", _read, play)

if __name__ == "__main__":
    main(prog_name="python -m beamlike.testing")
