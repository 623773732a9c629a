"""In which order the files of a source are read: by modification time, or by path with numbers as numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final, Literal

import attrs

Order = Literal["modified", "path"]
"""By modification time, then path; or by path alone."""

_NUMBER: Final = re.compile(r"([0-9]+)")

PathKey = tuple[list[list[str | int]], str]


@attrs.frozen
class Found:
    """A file that a listing has found: when it was modified, in milliseconds since 1970, and its size in bytes.

    Milliseconds are what all storages know.
    """

    path: str
    modified: int
    size: int


def in_order(files: Iterable[Found], order: Order) -> list[Found]:
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
