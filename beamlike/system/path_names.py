"""Paths as text: names of steps as parts of a path, and remote paths."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_LONGEST: Final = 100
"""The size limit of a name in bytes: with a prefix and suffix it stays below the 255 bytes of file systems."""


def is_remote(path: str) -> bool:
    """True if the path has a scheme, such as `s3://`, so that it is not on this machine's file system."""
    return _SCHEME.match(path) is not None


def file_name(name: str, *, blanks: bool = False) -> str:
    """The name with what file systems and globs do not like as `~XX`; different names stay different.

    One that is too long is cut, and has a digest of the whole at its end. `blanks` are left as they are if so asked.

    >>> file_name("../plays")
    '..~2Fplays'
    """
    text = quote(name.encode(errors="surrogatepass"), safe=" " if blanks else "")
    text = text.replace("~", "%7E").replace("%", "~")
    if not text.strip("."):  # the folder itself, or the one above
        text = text.replace(".", "~2E")
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{text[: _LONGEST - len(digest) - 1]}~{digest}"
