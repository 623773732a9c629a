"""Output files: one for each part, under its own name, published as a whole.

Names in a sink's folder:

    part-RUN-000007-000.parquet             a published part: run, batch and task
    .part-RUN-000007-000.parquet.HEX.tmp    an attempt at a part, not published yet
    .part-RUN.parquet.tmp/                  the parts of a run that are published together at its end
    .part-RUN.parquet.lock                  the lock of the run
"""

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
    """Returns `part-<query>-<batch>-<task>.<extension>`."""
    return f"part-{file_name(part.query)}-{part.batch:06d}-{part.task:03d}.{extension}"


def folder_beside(folder: str, run: str, extension: str) -> str:
    """Returns the hidden folder, within a sink's folder, with the parts of a run until the run ends."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.tmp"


def lock_of(folder: str, run: str, extension: str) -> str:
    """Returns the hidden file, beside that folder, that a run of this name locks while it writes."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.lock"


def require_folder(folder: str) -> None:
    """Makes the directory. Raises `ValueError` or `NotADirectoryError` if that is impossible."""
    if not is_remote(folder):
        _make(folder)


def of_others(folder: str, run: str, extension: str) -> int:
    """Returns the number of parts of runs of other names in the directory."""
    require_folder(folder)
    parts = re.compile(rf"part-.*-{_NUMBERS}\.{extension}")
    ours = _ours(run, extension)
    names = [os.path.basename(name) for name in _files(folder)]
    return sum(bool(parts.fullmatch(name) and not ours.fullmatch(name)) for name in names)


def clear(folder: str, run: str, extension: str) -> None:
    """Removes the parts, and attempts at parts, of a run of this name, and folders that are then empty."""
    ours = _ours(run, extension)
    names = [name for name in _files(folder) if ours.fullmatch(os.path.basename(name))]
    _remove(folder, names)
    if is_remote(folder):
        return
    for below, _ in reversed([*_partitions(folder)][1:]):
        with suppress(OSError):  # it is not empty
            os.rmdir(os.path.join(folder, below))


def remove_others(folder: str, run: str, extension: str, batch: int, parts: Mapping[str, str]) -> None:
    """Removes the parts of a batch except these, and attempts that other writers of this run left.

    `parts` is the result of `prepare`. Lists the whole folder.
    """
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours, prefix = _ours(run, extension), f"part-{file_name(run)}-"
    stale = (f"{prefix}{batch:06d}-", f".{prefix}")
    names = {path: os.path.basename(path) for path in _files(folder)}
    found = [path for path, name in names.items() if name.startswith(stale) and ours.fullmatch(name)]
    # Object stores may list escaped characters of names in unescaped form.
    _remove(folder, set(found).difference(parts, parts.values(), map(unquote, parts.values())))


def latest_batch(folder: str, run: str, extension: str) -> int | None:
    """Returns the last batch of the run with a published part; None if there is none."""
    numbers = [number for number, name in _numbered(folder, run, extension) if not _is_hidden(name)]
    return max(numbers, default=None)


def remove_after(folder: str, run: str, extension: str, batch: int) -> None:
    """Removes the parts, and attempts at parts, of all later batches of the run."""
    later = [name for number, name in _numbered(folder, run, extension) if number > batch]
    _remove(folder, later)


def _numbered(folder: str, run: str, extension: str) -> Iterator[tuple[int, str]]:
    """Yields (batch, path below the folder) of the parts of the run."""
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours = _ours(run, extension)
    for name in _files(folder):
        if found := ours.fullmatch(os.path.basename(name)):
            yield int(found["batch"]), name


def _is_hidden(name: str) -> bool:
    return os.path.basename(name).startswith(".")


def forget_beside(folder: str, run: str, extension: str) -> None:
    """Removes the run's staging folder and its content."""
    beside = folder_beside(folder, run, extension)
    if not is_remote(folder):
        shutil.rmtree(beside, ignore_errors=True)
        return
    system, bare = file_system(beside)
    if system.get_file_info(bare).type.name == "Directory":
        system.delete_dir(bare)


def forget_killed(folder: str, run: str, extension: str, before: str = "") -> None:
    """Removes the staging folders of earlier runs of this name, and of other runs that were killed.

    `before`: the path prefix of their locks, if these are outside of the folder. The folders of other runs are moved
    into this run's own folder first, which is fast, so that a new run of such a name does not wait for the removal.
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
    """Replaces the published parts of an earlier run of this name with the parts in the staging folder.

    The old parts are removed first, so that a reader never sees parts of both.
    """
    beside = folder_beside(folder, run, extension)
    names = _files(beside) if is_remote(folder) or os.path.isdir(beside) else []
    if names or is_remote(folder) or os.path.isdir(folder):
        clear(folder, run, extension)
    # Hidden files are from attempts that failed.
    _move(beside, folder, {name: name for name in names if not _is_hidden(name)})
    forget_beside(folder, run, extension)


def _move(source: str, target: str, names: Mapping[str, str]) -> None:
    """Renames synced files, and syncs the target folders. Names are paths below the folders."""
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
    """Calls `write` again if the folder no longer exists: other runs remove empty folders."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return write()
    return write()


def _ours(run: str, extension: str) -> re.Pattern[str]:
    return re.compile(rf"\.?part-{re.escape(file_name(run))}-{_NUMBERS}\.{extension}(\..*\.tmp)?")


def _files(folder: str) -> list[str]:
    """Returns the files in the folder and in its Hive folders (`date=2026-01-01`), as paths below it."""
    if is_remote(folder):
        return _remote_files(folder)
    found = []
    for below, entries in _partitions(folder):
        found += [os.path.join(below, entry.name) for entry in entries if not entry.is_dir()]
    return found


def _partitions(folder: str, below: str = "") -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yields the folder and its Hive folders, as paths below it, with their entries."""
    try:
        with os.scandir(os.path.join(folder, below)) as listing:
            entries = list(listing)
    except FileNotFoundError:
        if not below:
            raise
        return  # another run has removed it, as it was empty
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
    """Writes files that are not visible before `show`. Returns the name of each now -> its path below the folder.

    Each has a hidden name of its own, so attempts at one part do not disturb each other, and is synced. Attempts that
    are not published are removed by `remove_others` and `clear`. An object store cannot rename, and shows an object
    once it is complete, so files there are written under their final names.
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
    # Synced before `show` renames it: after a power cut, a final name never has incomplete content.
    save(f"{folder}/{name}")
    sync(f"{folder}/{name}")


def show(folder: str, parts: Mapping[str, str]) -> None:
    """Renames prepared files to their final names, and replaces existing ones.

    A reader sees each file as a whole or not at all. When this returns, the files survive a power cut.
    """
    _move(folder, folder, {hidden: name for hidden, name in parts.items() if hidden != name})


def discard(folder: str, names: Iterable[str]) -> None:
    """Removes the existing files of these names; does nothing in an object store."""
    if not is_remote(folder):
        _remove(folder, names)


def _remove(folder: str, names: Iterable[str]) -> None:
    """Removes files by path below the folder, so that they stay removed after a power cut.

    Missing files are ignored.
    """
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
