"""Output files of sinks: each part is a file with its own name, and readers see only complete files.

Names in a sink's folder:

  part-RUN-000007-000.parquet             a published part: run, batch and task
  .part-RUN-000007-000.parquet.HEX.tmp    an attempt at a part, not published yet
  .part-RUN.parquet.tmp/                  the staging folder of a run: all parts are published together at its end
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
from beamlike.system.durable import rename as move
from beamlike.system.locks import left_by_killed
from beamlike.system.path_names import file_name, is_remote

_NUMBERS: Final = r"(?P<batch>\d{6,})-\d{3,}"
_TRIES: Final = 9


def part_name(part: Part, extension: str) -> str:
    """Returns `part-<query>-<batch>-<task>.<extension>`."""
    return f"part-{file_name(part.query)}-{part.batch:06d}-{part.task:03d}.{extension}"


def staging_folder(folder: str, run: str, extension: str) -> str:
    """Returns the staging folder of a run: a hidden folder with its parts, which are published when the run ends."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.tmp"


def lock_of(folder: str, run: str, extension: str) -> str:
    """Returns the path of the hidden lock file in a sink's folder that a run of this name locks while it writes."""
    return f"{folder.rstrip('/')}/.part-{file_name(run)}.{extension}.lock"


def require_folder(folder: str) -> None:
    """Creates the directory. Raises `ValueError` or `NotADirectoryError` if that is impossible."""
    if not is_remote(folder):
        _make(folder)


def of_others(folder: str, run: str, extension: str) -> int:
    """Returns the number of parts in the directory that runs of other names wrote."""
    require_folder(folder)
    parts = re.compile(rf"part-.*-{_NUMBERS}\.{extension}")
    ours = _ours(run, extension)
    names = [os.path.basename(name) for name in _files(folder)]
    return sum(bool(parts.fullmatch(name) and not ours.fullmatch(name)) for name in names)


def clear(folder: str, run: str, extension: str) -> None:
    """Removes all parts of a run of this name, published or not, and folders that are empty after that."""
    ours = _ours(run, extension)
    names = [name for name in _files(folder) if ours.fullmatch(os.path.basename(name))]
    _remove(folder, names)
    if is_remote(folder):
        return
    for below, _ in reversed([*_partitions(folder)][1:]):
        with suppress(OSError):  # not empty
            os.rmdir(os.path.join(folder, below))


def remove_others(folder: str, run: str, extension: str, batch: int, parts: Mapping[str, str]) -> None:
    """Removes published parts of a batch that are not in `parts`, and unpublished attempts of this run.

    `parts` is the result of `prepare`. The whole folder is listed.
    """
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours, prefix = _ours(run, extension), f"part-{file_name(run)}-"
    stale = (f"{prefix}{batch:06d}-", f".{prefix}")
    names = {path: os.path.basename(path) for path in _files(folder)}
    found = [path for path, name in names.items() if name.startswith(stale) and ours.fullmatch(name)]
    # An object store may list names without their escapes.
    _remove(folder, set(found).difference(parts, parts.values(), map(unquote, parts.values())))


def latest_batch(folder: str, run: str, extension: str) -> int | None:
    """Returns the last batch of the run that has a published part; None if there is none."""
    numbers = [number for number, name in _numbered(folder, run, extension) if not _is_hidden(name)]
    return max(numbers, default=None)


def of_batch(folder: str, run: str, extension: str, batch: int) -> list[str]:
    """Returns the relative paths of the published parts of a batch, in order."""
    numbered = _numbered(folder, run, extension)
    return sorted(name for number, name in numbered if number == batch and not _is_hidden(name))


def remove_after(folder: str, run: str, extension: str, batch: int) -> None:
    """Removes all parts of later batches of the run, published or not."""
    later = [name for number, name in _numbered(folder, run, extension) if number > batch]
    _remove(folder, later)


def _numbered(folder: str, run: str, extension: str) -> Iterator[tuple[int, str]]:
    """Yields the batch and the relative path of each part of the run."""
    if not is_remote(folder) and not os.path.isdir(folder):
        return
    ours = _ours(run, extension)
    for name in _files(folder):
        if found := ours.fullmatch(os.path.basename(name)):
            yield int(found["batch"]), name


def _is_hidden(name: str) -> bool:
    return os.path.basename(name).startswith(".")


def remove_staging(folder: str, run: str, extension: str) -> None:
    """Removes the staging folder of a run."""
    staging = staging_folder(folder, run, extension)
    if not is_remote(folder):
        shutil.rmtree(staging, ignore_errors=True)
        return
    system, bare = file_system(staging)
    if system.get_file_info(bare).type.name == "Directory":
        system.delete_dir(bare)


def forget_killed(folder: str, run: str, extension: str, before: str = "") -> None:
    """Removes the staging folders of earlier runs of this name, and of other runs that were killed.

    `before` is the path prefix of lock files that are outside the folder. Folders of other runs are first moved into
    this run's staging folder, which is fast. So a new run of such a name need not wait until their files are removed.
    """
    if is_remote(folder):
        remove_staging(folder, run, extension)
        return
    before, mine = before or f"{folder}/.", staging_folder(folder, run, extension)
    for lock in left_by_killed(f"{glob.escape(before)}part-*.{extension}.lock"):
        name = os.path.basename(lock.path).removeprefix(os.path.basename(before)).removesuffix(".lock")
        left = os.path.join(folder, f".{name}.tmp")
        if os.path.isdir(left):
            os.makedirs(mine, exist_ok=True)
            move(left, f"{mine}/{uuid4().hex}")
    remove_staging(folder, run, extension)


def publish(folder: str, run: str, extension: str) -> None:
    """Replaces the published parts of an earlier run of this name by the parts in the staging folder.

    The old parts are removed first, so that a reader never sees parts of both runs.
    """
    staging = staging_folder(folder, run, extension)
    names = _files(staging) if is_remote(folder) or os.path.isdir(staging) else []
    if names or is_remote(folder) or os.path.isdir(folder):
        clear(folder, run, extension)
    # Hidden files are attempts that failed.
    _move(staging, folder, {name: name for name in names if not _is_hidden(name)})
    remove_staging(folder, run, extension)


def _move(source: str, target: str, names: Mapping[str, str]) -> None:
    """Renames files, and syncs the target folders. `names` has relative paths; the files must be synced."""
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
        move(source, target)

    _retrying(rename)


def _retrying(write: Callable[[], None]) -> None:
    """Calls `write`, several times if its folder does not exist: other runs may remove empty folders at any time.

    `FileExistsError` is raised if they remove one just after this run has found that it need not be created.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            return write()
    return write()


def _ours(run: str, extension: str) -> re.Pattern[str]:
    return re.compile(rf"\.?part-{re.escape(file_name(run))}-{_NUMBERS}\.{extension}(\..*\.tmp)?")


def _files(folder: str) -> list[str]:
    """Returns the relative paths of files in the folder and in its Hive folders (`date=2026-01-01`)."""
    if is_remote(folder):
        return _remote_files(folder)
    found = []
    for below, entries in _partitions(folder):
        found += [_joined(below, entry.name) for entry in entries if not entry.is_dir()]
    return found


def _partitions(folder: str, below: str = "") -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Yields the folder and its Hive folders, each as a relative path with its entries."""
    try:
        with os.scandir(os.path.join(folder, below)) as listing:
            entries = list(listing)
    except FileNotFoundError:
        if not below:
            raise
        return  # another run has removed the folder because it was empty
    yield below, entries
    for entry in entries:
        if "=" in entry.name and entry.is_dir() and not leads_back(entry.path):
            yield from _partitions(folder, _joined(below, entry.name))


def _joined(below: str, name: str) -> str:
    """Returns the path of an entry with a slash on every system, as the paths of written parts have."""
    return f"{below}/{name}" if below else name


def _remote_files(folder: str) -> list[str]:
    from pyarrow import fs

    system, bare = file_system(folder)
    found = system.get_file_info(fs.FileSelector(bare, allow_not_found=True, recursive=True))
    paths = [info.path[len(bare) :].strip("/") for info in found if info.type == fs.FileType.File]
    return [path for path in paths if all("=" in name for name in path.split("/")[:-1])]


def prepare(folder: str, saves: Mapping[str, Callable[[str], object]]) -> dict[str, str]:
    """Writes files that stay invisible until `show`. Returns for each its temporary relative path, and its final one.

    Each attempt has a hidden, unique name, so attempts at the same part do not disturb each other. Files are synced.
    Attempts that are never published are removed by `remove_others` and `clear`. An object store cannot rename, and
    shows an object only when it is complete, so files there are written under their final names.
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
            _retrying(partial(_save, folder, hidden, save))
    except BaseException:
        _remove(folder, [hidden for hidden in made if os.path.exists(f"{folder}/{hidden}")])
        raise
    return made


def _save(folder: str, name: str, save: Callable[[str], object]) -> None:
    _make(folder)
    # Synced before `show` renames it. So even after a power failure, a file with a final name is complete.
    save(f"{folder}/{name}")
    sync(f"{folder}/{name}")


def show(folder: str, parts: Mapping[str, str]) -> None:
    """Renames prepared files to their final names. Existing files are replaced.

    A reader sees each file completely or not at all. When this function returns, the files survive a power failure.
    """
    _move(folder, folder, {hidden: name for hidden, name in parts.items() if hidden != name})


def discard(folder: str, names: Iterable[str]) -> None:
    """Removes existing files of these names. In an object store it does nothing."""
    if not is_remote(folder):
        _remove(folder, names)


def _remove(folder: str, names: Iterable[str]) -> None:
    """Removes files by their relative paths, so that they stay removed after a power failure.

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
