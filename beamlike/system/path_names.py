"""Names of steps as parts of paths: whatever is in them, one file or folder, where it is meant to be."""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import quote

_LONGEST: Final = 100
"""Bytes: with what is put before and after it, a name stays below the 255 that file systems allow."""


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
