"""The order in which files are read: by modification time, or by path with numbers compared by value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from beamlike.io.sources import FoundFile
from beamlike.system.path_names import with_slashes

Order = Literal["modified", "path"]
"""The order of files: by modification time and then path, or by path."""

ADVICE: Final[Mapping[Order, str]] = {
    "modified": "files are read in order of modification time; order='path' reads them in order of their names",
    "path": "files are read in order of their names; order='modified' reads them in order of modification time",
}
"""The advice in the log if the order of files makes rows late."""

_NUMBER: Final = re.compile(r"([0-9]+)")

PathKey = tuple[list[list[str | int]], str]


def in_order(files: Iterable[FoundFile], order: Order) -> list[FoundFile]:
    """Sorts files in reading order. No two files are equal in this order."""
    if order == "path":
        return sorted(files, key=lambda file: path_key(file.path))
    return sorted(files, key=lambda file: (file.modified, path_key(file.path)))


def path_key(path: str) -> PathKey:
    """Returns the sort key of a path, which is compared folder by folder. `part-2` is before `part-10`.

    The key is that of the absolute path, as on Spark, so it does not depend on how the path is written.
    """
    path = with_slashes(os.path.abspath(path))
    parts = [_NUMBER.split(part) for part in path.split("/")]
    return [[int(piece) if at % 2 else piece for at, piece in enumerate(part)] for part in parts], path
