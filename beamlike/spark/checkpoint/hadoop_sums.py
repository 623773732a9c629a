"""Hadoop's checksums of local files: for each file, a hidden file with a CRC-32 for every 512 bytes or so."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HEAD: Final = struct.Struct(">4si")
_MAGIC: Final = b"crc\0"
_EACH: Final = 512


def sums_of(path: Path) -> Path:
    """Returns the path of the file with the checksums of a file."""
    return path.with_name(f".{path.name}.crc")


def sums(content: bytes, each: int = _EACH) -> bytes:
    """Returns the content of the checksum file for a file with this content."""
    chunks = (content[start : start + each] for start in range(0, len(content), each))
    return _HEAD.pack(_MAGIC, each) + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def fits(path: Path, content: bytes) -> bool:
    """True if the content of a file has its checksums. A file without a checksum file is accepted, as by Hadoop."""
    try:
        there = sums_of(path).read_bytes()
    except FileNotFoundError:
        return True
    if not there:  # a power failure can leave an empty checksum file
        return True
    if len(there) < _HEAD.size:
        return False
    magic, each = _HEAD.unpack_from(there)
    return magic == _MAGIC and each > 0 and there == sums(content, each)


def not_fitting(folder: str) -> Iterator[str]:
    """Yields descriptions of files below a folder that are missing, or that do not match their checksums."""
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.startswith(".") and name.endswith(".crc") and not name.endswith(".tmp.crc"):
                path = Path(here, name[1:].removesuffix(".crc"))
                if not path.exists():
                    yield f"{path} is gone"
                elif not fits(path, path.read_bytes()):
                    yield f"{path} is not what was written"
