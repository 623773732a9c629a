"""Lists the files in a folder of this machine, and computes the size and digest of each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator


def files_below(folder: str) -> list[str]:
    """The files below a folder with content of their own, by their relative paths, in order."""
    return sorted(_below(folder))


def _below(folder: str) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        for name in names:
            if has_content(name):
                yield os.path.relpath(os.path.join(here, name), folder).replace(os.sep, "/")


def has_content(name: str) -> bool:
    """False for the checksums that Hadoop stores beside files, and for its marker of a complete folder."""
    return name != "_SUCCESS" and not (name.startswith(".") and name.endswith(".crc"))


def size_and_digest(file: str) -> tuple[int, str] | None:
    """The size of a file in bytes and the SHA-256 of its content; None if there is none. Raises `OSError`."""
    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256")
            return content.tell(), digest.hexdigest()
    except FileNotFoundError:
        return None
