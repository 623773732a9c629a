"""Output files: one per part, under its own name, seen whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from beamlike.io.base import Part
from beamlike.io.paths import file_system, is_pattern, is_remote

_NUMBERS: Final = r"\d{6,}-\d{3,}"


def part_name(part: Part, extension: str) -> str:
    """`part-<query>-<batch>-<task>.<extension>`: whose it is, and which."""
    return f"part-{_safe(part.query)}-{part.batch:06d}-{part.task:03d}.{extension}"


def _safe(query: str) -> str:
    """The name with what file systems and globs do not like as `~XX`; different names stay different."""
    return quote(query, safe="").replace("~", "%7E").replace("%", "~")


def clear(folder: str, run: str, extension: str) -> int:
    """Makes the directory and removes the parts, and pieces of parts, that a run of this name left there.

    Gives how many parts of other runs there are, which stay.
    """
    ours = re.compile(rf"\.?part-{re.escape(_safe(run))}-{_NUMBERS}\.{extension}(\..*\.tmp)?")
    parts = re.compile(rf"part-.*-{_NUMBERS}\.{extension}")
    if is_remote(folder):
        left = _clear_remote(folder, ours)
    else:
        _make(folder)
        left = _clear_local(folder, ours)
    return sum(parts.fullmatch(name) is not None for name in left)


def _clear_local(folder: str, ours: re.Pattern[str]) -> list[str]:
    """The names that are left."""
    names = os.listdir(folder)
    for name in filter(ours.fullmatch, names):
        os.unlink(os.path.join(folder, name))
    return [name for name in names if not ours.fullmatch(name)]


def _clear_remote(folder: str, ours: re.Pattern[str]) -> list[str]:
    from pyarrow import fs

    system, bare = file_system(folder)
    found = system.get_file_info(fs.FileSelector(bare, allow_not_found=True))
    files = [info for info in found if info.type == fs.FileType.File]
    for info in files:
        if ours.fullmatch(info.base_name):
            system.delete_file(info.path)
    return [info.base_name for info in files if not ours.fullmatch(info.base_name)]


def put(folder: str, name: str, save: Callable[[str], object]) -> None:
    """Has `save` write the file: under a hidden name, then renamed, so that readers never see half of it.

    An object store shows an object only when it is complete, so there it is written at once.
    """
    if is_remote(folder):
        save(f"{folder.rstrip('/')}/{name}")
        return
    _make(folder)
    _forget_attempts(folder, name)
    hidden = os.path.join(folder, f".{name}.{uuid4().hex}.tmp")
    try:
        save(hidden)
        os.replace(hidden, os.path.join(folder, name))
    except BaseException:
        if os.path.exists(hidden):
            os.unlink(hidden)
        raise


def discard(folder: str, name: str) -> None:
    """Removes what an earlier attempt wrote of a part that turned out to be empty."""
    if is_remote(folder) or not os.path.isdir(folder):
        return
    _forget_attempts(folder, name)
    if os.path.exists(target := os.path.join(folder, name)):
        os.unlink(target)


def _forget_attempts(folder: str, name: str) -> None:
    """Removes what a writer that was killed left of this part: not every reader passes over hidden files."""
    for entry in os.listdir(folder):
        if entry.startswith(f".{name}.") and entry.endswith(".tmp"):
            os.unlink(os.path.join(folder, entry))


def _make(folder: str) -> None:
    if is_pattern(folder):
        raise ValueError(f"cannot write to {folder!r}: a sink's path is a directory, not a glob")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"cannot write to {folder!r}: it is a file; a sink's path is a directory")
    os.makedirs(folder, exist_ok=True)
