"""The folders for dead letters that no collection receives: in a checkpoint, or one per concurrent run."""

from __future__ import annotations

import attrs

from beamlike.io import JSONLines
from beamlike.io.files.access import Access
from beamlike.io.files.part_files import forget_killed
from beamlike.system.locks import InUse, Lock
from beamlike.system.path_names import file_name


@attrs.frozen(slots=False)
class CheckpointLetters(JSONLines):
    """The folder for dead letters in a checkpoint. Its storage errors count as errors of the checkpoint's storage.

    Tasks that write to it use `access`, the settings of the checkpoint.
    """

    access: Access | None = attrs.field(default=None, kw_only=True, repr=False)


def dead_letter_folder(pipeline: str, number: int = 1) -> str:
    """Returns `<pipeline>-dead-letters`, a path relative to the current folder. `number` distinguishes
    concurrent runs.
    """
    folder = f"{file_name(pipeline, blanks=True)}-dead-letters"
    return folder if number == 1 else f"{folder}-{number}"


def lock_dead_letters(pipeline: str, run: str, number: int = 1) -> tuple[str, Lock]:
    """Returns the first folder that no concurrent run of this name uses, and its lock.

    The lock is a file next to the folder, because most runs never create the folder. If no file can be created there,
    nothing is locked.
    """
    folder = dead_letter_folder(pipeline, number)
    lock = f".{folder}.part-{file_name(run)}.{JSONLines.extension}.lock"
    try:
        held = Lock.take(lock, f"the run {run!r}")
        forget_killed(folder, run, JSONLines.extension, f".{folder}.")
        return folder, held
    except InUse:
        return lock_dead_letters(pipeline, run, number + 1)
    except OSError:
        return folder, Lock(lock, None)
