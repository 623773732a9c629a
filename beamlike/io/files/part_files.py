"""Output files: one per part, under its own name, seen whole or not at all."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from beamlike.io.base import Part
from beamlike.io.files.paths import file_system, is_pattern, leads_back
from beamlike.system.durable import make_folder, sync, sync_folders
from beamlike.system.locks import left_by_killed
from beamlike.system.path_names import file_name, is_remote

_NUMBERS: Final = r"(?P<batch>\d{6,})-\d{3,}"
_TRIES: Final = 9


def part_name(part: Part, extension: str) -> str:
    """`part-<query>-<batch>-<task>.<extension>`: whose it is, and which."""
    return f"part-{file_name(part.query)}-{part.batch:06d}-{part.task:03d}.{extension}"


def folder_beside(folder: str, run: str, extension: str) -> str:
    """The hidden folder, in a sink's own, that has the parts of a run of this name until it is over."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.tmp"


def lock_of(folder: str, run: str, extension: str) -> str:
    """The hidden file, beside that folder, that a run of this name locks while it writes to the sink's."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.lock"


def require_folder(folder: str) -> None:
    """Makes the directory. Raises `ValueError` and `NotADirectoryError` where there can be none."""
    if not is_remote(folder):
        _make(folder)


def of_others(folder: str, run: str, extension: str) -> int:
    """How many parts the directory has of runs of other names."""
    require_folder(folder)
    parts = re.compile(rf"part-.*-{_NUMBERS}\.{extension}")
    ours = _ours(run, extension)
    names = [os.path.basename(name) for name in _files(folder)]
    return sum(bool(parts.fullmatch(name) and not ours.fullmatch(name)) for name in names)


def clear(folder: str, run: str, extension: str) -> None:
    """Removes the parts, and pieces of parts, that a run of this name left there, and folders that are empty then."""
    ours = _ours(run, extension)
    names = [name for name in _files(folder) if ours.fullmatch(os.path.basename(name))]
    _remove(folder, names)
    if is_remote(folder):
        return
    for below, _ in reversed([*_partitions(folder)][1:]):
        with suppress(OSError):  # something is in it
            os.rmdir(os.path.join(folder, below))


def remove_others(folder: str, run: str, extension: str, batch: int, parts: Mapping[str, str]) -> None:
    """Removes the parts of a batch but for these, and the pieces that other writers of this run left.

    `parts` are as `prepare` gives them. All of the folder is listed.
    """
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours, prefix = _ours(run, extension), f"part-{file_name(run)}-"
    stale = (f"{prefix}{batch:06d}-", f".{prefix}")
    names = {path: os.path.basename(path) for path in _files(folder)}
    found = [path for path, name in names.items() if name.startswith(stale) and ours.fullmatch(name)]
    # Object stores may list what we escape in names as it was before.
    _remove(folder, set(found).difference(parts, parts.values(), map(unquote, parts.values())))


def latest_batch(folder: str, run: str, extension: str) -> int | None:
    """The last batch of the run of which the folder shows a part; None if there is none."""
    numbers = [number for number, name in _numbered(folder, run, extension) if not _is_hidden(name)]
    return max(numbers, default=None)


def remove_after(folder: str, run: str, extension: str, batch: int) -> None:
    """Removes the parts, and pieces of parts, of all later batches of the run."""
    later = [name for number, name in _numbered(folder, run, extension) if number > batch]
    _remove(folder, later)


def _numbered(folder: str, run: str, extension: str) -> Iterator[tuple[int, str]]:
    """The parts of the run, by path below the folder, with the number of the batch of each."""
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours = _ours(run, extension)
    for name in _files(folder):
        if found := ours.fullmatch(os.path.basename(name)):
            yield int(found["batch"]), name


def _is_hidden(name: str) -> bool:
    return os.path.basename(name).startswith(".")


def forget_beside(folder: str, run: str, extension: str) -> None:
    """Removes the folder beside, with whatever is in it."""
    beside = folder_beside(folder, run, extension)
    if not is_remote(folder):
        shutil.rmtree(beside, ignore_errors=True)
        return
    system, bare = file_system(beside)
    if system.get_file_info(bare).type.name == "Directory":
        system.delete_dir(bare)


def forget_killed(folder: str, run: str, extension: str, before: str = "") -> None:
    """Removes what an earlier run of this name has left beside, and those of others that were killed.

    `before`: how the paths of their locks begin, where these do not lie in the folder. What is theirs becomes a part
    of this run's own folder at once, so that whoever begins a run of such a name need not wait.
    """
    if is_remote(folder):
        forget_beside(folder, run, extension)
        return
    before, mine = before or f"{folder}/.", folder_beside(folder, run, extension)
    for lock in left_by_killed(f"{glob.escape(before)}part-*.{extension}.lock"):
        name = os.path.basename(lock.path).removeprefix(os.path.basename(before)).removesuffix(".lock")
        left = os.path.join(folder, f".{name}.tmp")
        if os.path.isdir(left):
            os.makedirs(mine, exist_ok=True)
            os.replace(left, f"{mine}/{uuid4().hex}")
    forget_beside(folder, run, extension)


def publish(folder: str, run: str, extension: str) -> None:
    """Puts the parts from beside in place of those that an earlier run of this name left.

    Those go first, so that nobody ever reads some of both.
    """
    beside = folder_beside(folder, run, extension)
    names = _files(beside) if is_remote(folder) or os.path.isdir(beside) else []
    if names or is_remote(folder) or os.path.isdir(folder):
        clear(folder, run, extension)
    # What is hidden there is of attempts that failed.
    _move(beside, folder, {name: name for name in names if not _is_hidden(name)})
    forget_beside(folder, run, extension)


def _move(source: str, target: str, names: Mapping[str, str]) -> None:
    """Renames files that are synced, and syncs the folders that they come to. Names are paths below the folders."""
    rename = _rename_remote if is_remote(target) else _rename
    for name, other in names.items():
        rename(f"{source.rstrip('/')}/{name}", f"{target.rstrip('/')}/{other}")
    if not is_remote(target):
        sync_folders(os.path.dirname(os.path.join(target, name)) for name in names.values())


def _rename_remote(source: str, target: str) -> None:
    system, bare = file_system(target)
    system.create_dir(os.path.dirname(bare), recursive=True)
    system.move(file_system(source)[1], bare)


def _rename(source: str, target: str) -> None:
    def rename() -> None:
        make_folder(os.path.dirname(target))
        os.replace(source, target)

    _beside_others(rename)


def _beside_others(write: Callable[[], None]) -> None:
    """Does it once more where the folder has gone meanwhile: other runs remove those in which nothing is."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return write()
    return write()


def _ours(run: str, extension: str) -> re.Pattern[str]:
    return re.compile(rf"\.?part-{re.escape(file_name(run))}-{_NUMBERS}\.{extension}(\..*\.tmp)?")


def _files(folder: str) -> list[str]:
    """What is in the folder, and in those of it that are named as Hive's are (`date=2026-01-01`), by path below it."""
    if is_remote(folder):
        return _remote_files(folder)
    found = []
    for below, entries in _partitions(folder):
        found += [os.path.join(below, entry.name) for entry in entries if not entry.is_dir()]
    return found


def _partitions(folder: str, below: str = "") -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """The folders of the columns' values, by path below the folder, and what is in each; first it itself."""
    try:
        with os.scandir(os.path.join(folder, below)) as listing:
            entries = list(listing)
    except FileNotFoundError:
        if not below:
            raise
        return  # another run has removed it, as nothing was in it
    yield below, entries
    for entry in entries:
        if "=" in entry.name and entry.is_dir() and not leads_back(entry.path):
            yield from _partitions(folder, os.path.join(below, entry.name))


def _remote_files(folder: str) -> list[str]:
    from pyarrow import fs

    system, bare = file_system(folder)
    found = system.get_file_info(fs.FileSelector(bare, allow_not_found=True, recursive=True))
    paths = [info.path[len(bare) :].strip("/") for info in found if info.type == fs.FileType.File]
    return [path for path in paths if all("=" in name for name in path.split("/")[:-1])]


def prepare(folder: str, saves: Mapping[str, Callable[[str], object]]) -> dict[str, str]:
    """Has files written, by path below the folder, that nobody sees before `show`: where each is meanwhile.

    Each is under a hidden name of its own, so attempts at one part do each other no harm, and they are synced. What an
    attempt leaves that is not shown, `remove_others` and `clear` remove. An object store, which renames nothing, shows
    an object when it is complete, so there they are written at once, under the names that they are to have.
    """
    if is_remote(folder):
        for name, save in saves.items():
            save(f"{folder.rstrip('/')}/{name}")
        return {name: name for name in saves}
    made: dict[str, str] = {}
    try:
        for name, save in saves.items():
            hidden = f".{os.path.basename(name)}.{uuid4().hex}.tmp"
            made[hidden] = name
            _beside_others(partial(_save, folder, hidden, save))
    except BaseException:
        _remove(folder, [hidden for hidden in made if os.path.exists(f"{folder}/{hidden}")])
        raise
    return made


def _save(folder: str, name: str, save: Callable[[str], object]) -> None:
    _make(folder)
    save(f"{folder}/{name}")
    sync(f"{folder}/{name}")


def show(folder: str, parts: Mapping[str, str]) -> None:
    """Gives prepared files the names that they are to have; when this returns, they are there after a power cut, too.

    Readers see each whole or not at all; what has its name is replaced.
    """
    _move(folder, folder, {hidden: name for hidden, name in parts.items() if hidden != name})


def discard(folder: str, names: Iterable[str]) -> None:
    """Removes the files of these names that are there. An object store is not asked for them."""
    if not is_remote(folder):
        _remove(folder, names)


def _remove(folder: str, names: Iterable[str]) -> None:
    """Files by path below the folder, which a power cut does not bring back; one that is gone is no matter."""
    delete, bare = os.unlink, folder
    if is_remote(folder):
        system, bare = file_system(folder)
        delete = system.delete_file
    removed = []
    for name in names:
        with suppress(FileNotFoundError):
            delete(f"{bare}/{name}")
            removed.append(f"{bare}/{name}")
    if not is_remote(folder):
        sync_folders(map(os.path.dirname, removed))


def _make(folder: str) -> None:
    if is_pattern(folder):
        raise ValueError(f"cannot write to {folder!r}: a sink's path is a directory, not a glob")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"cannot write to {folder!r}: it is a file; a sink's path is a directory")
    make_folder(folder)
