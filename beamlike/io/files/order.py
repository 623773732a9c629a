"""In which order the files of a source are read: by modification time, or by path with numbers as numbers."""

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
    """The files in the order in which they are read, which is a total one, whatever order they came in."""
    if order == "path":
        return sorted(files, key=lambda file: path_key(file.path))
    return sorted(files, key=lambda file: (file.modified, path_key(file.path)))


def path_key(path: str) -> PathKey:
    """Sorts paths as people do: folder by folder, and `part-2` before `part-10`.

    As on Spark, where all paths are absolute, it does not matter how they are spelled.
    """
    path = os.path.abspath(path)
    parts = [_NUMBER.split(part) for part in path.split("/")]
    return [[int(piece) if at % 2 else piece for at, piece in enumerate(part)] for part in parts], path
