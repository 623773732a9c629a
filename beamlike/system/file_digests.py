"""Lists the files in a folder of this machine, and computes their sizes and digests."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator


def files_below(folder: str) -> list[str]:
    """Returns the relative paths of the files below a folder, sorted, without those that Hadoop adds."""
    return sorted(_below(folder))


def _below(folder: str) -> Iterator[str]:
    for here, _, names in os.walk(folder):
        for name in names:
            if has_content(name):
                yield os.path.relpath(os.path.join(here, name), folder).replace(os.sep, "/")


def has_content(name: str) -> bool:
    """True unless the name is that of a checksum file of Hadoop's, or of its marker for a complete folder."""
    return name != "_SUCCESS" and not (name.startswith(".") and name.endswith(".crc"))


def size_and_digest(file: str) -> tuple[int, str] | None:
    """Returns the size of a file in bytes and the SHA-256 of its content; None if it does not exist.

    Raises `OSError` if the file cannot be read.
    """
    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256")
            return content.tell(), digest.hexdigest()
    except FileNotFoundError:
        return None
