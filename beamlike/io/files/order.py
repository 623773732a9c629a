"""The order in which files are read: by modification time, or by path with numbers compared as numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from beamlike.io.sources import FoundFile

Order = Literal["modified", "path"]
"""By modification time, then path; or by path alone."""

ADVICE: Final[Mapping[Order, str]] = {
    "modified": "files are read in order of modification time; order='path' reads them in order of their names",
    "path": "files are read in order of their names; order='modified' reads them in order of modification time",
}
"""What the log says of an order that makes rows late."""

_NUMBER: Final = re.compile(r"([0-9]+)")

PathKey = tuple[list[list[str | int]], str]


def in_order(files: Iterable[FoundFile], order: Order) -> list[FoundFile]:
    """Sorts files in reading order, which is total."""
    if order == "path":
        return sorted(files, key=lambda file: path_key(file.path))
    return sorted(files, key=lambda file: (file.modified, path_key(file.path)))


def path_key(path: str) -> PathKey:
    """Returns the sort key of a path: folder by folder, with `part-2` before `part-10`.

    Paths are compared as absolute ones, as on Spark, so their spelling does not matter.
    """
    path = os.path.abspath(path)
    parts = [_NUMBER.split(part) for part in path.split("/")]
    return [[int(piece) if at % 2 else piece for at, piece in enumerate(part)] for part in parts], path
