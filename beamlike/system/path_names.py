"""Paths as text: names of steps as parts of them, and whether one is of this machine's file system."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import quote

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_LONGEST: Final = 100
"""Bytes: with what is put before and after it, a name stays below the 255 that file systems allow."""


def is_remote(path: str) -> bool:
    """Whether the path has a scheme, such as `s3://`, and so is not of this machine's file system."""
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
