"""The folders of dead letters that no collection takes: in a checkpoint, or of a run in process without one."""

from __future__ import annotations

import attrs

from beamlike.io import JSONLines
from beamlike.io.files.part_files import forget_killed
from beamlike.system.locks import InUse, Lock
from beamlike.system.path_names import file_name


@attrs.frozen(slots=False)
class CheckpointLetters(JSONLines):
    """The dead letters in a checkpoint: storage that fails them is the storage of the checkpoint."""


def folder_of_letters(pipeline: str, number: int = 1) -> str:
    """`<pipeline>-dead-letters`, in the current folder; others of the pipeline have a number."""
    folder = f"{file_name(pipeline, blanks=True)}-dead-letters"
    return folder if number == 1 else f"{folder}-{number}"


def hold_letters(pipeline: str, run: str, number: int = 1) -> tuple[str, Lock]:
    """The first folder into which no run of this name that goes on puts its own, and the lock that says so.

    The lock lies beside the folder, which most runs do not need. Where nothing can be made, nothing is locked.
    """
    folder = folder_of_letters(pipeline, number)
    lock = f".{folder}.part-{file_name(run)}.{JSONLines.extension}.lock"
    try:
        held = Lock.take(lock, f"the run {run!r}")
        forget_killed(folder, run, JSONLines.extension, f".{folder}.")
        return folder, held
    except InUse:
        return hold_letters(pipeline, run, number + 1)
    except OSError:
        return folder, Lock(lock, None)
