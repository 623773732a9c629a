"""Names as parts of paths, and remote paths."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final
from urllib.parse import quote

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_LONGEST: Final = 100
"""The greatest length of a name in bytes. With a prefix and suffix it stays below the 255 bytes of file systems."""


def is_remote(path: str) -> bool:
    """True if the path has a scheme, such as `s3://`, and so is not on this machine's file system."""
    return _SCHEME.match(path) is not None


def with_slashes(path: str) -> str:
    """Returns a local path with slashes instead of backslashes, which Windows accepts too."""
    return path if os.sep == "/" else path.replace(os.sep, "/")


def file_name(name: str, *, blanks: bool = False) -> str:
    """Returns the name with special characters of file systems and globs written as `~XX`. Different names stay
    different.

    A name that is too long is cut, and ends with a digest of the whole name. With `blanks`, blanks stay unchanged.

    >>> file_name("../plays")
    '..~2Fplays'
    """
    text = quote(name.encode(errors="surrogatepass"), safe=" " if blanks else "")
    text = text.replace("~", "%7E").replace("%", "~")
    if not text.strip("."):  # names that mean the folder itself or its parent, and no name
        text = text.replace(".", "~2E") or "~"
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST - len(digest) - 1]}~{digest}"
