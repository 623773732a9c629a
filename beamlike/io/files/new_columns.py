"""Detects columns beyond the part of the input from which the columns are inferred."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

_LOG = logging.getLogger("beamlike")
_TOLD: Final[set[tuple[str, str]]] = set()


def warn_new(path: str, known: Iterable[str], names: Iterable[str], file: str) -> None:
    """Logs the `names` in a file that are not read, each once for a source at `path`."""
    there = {*known, *(name for source, name in _TOLD if source == path)}
    new = [name for name in names if name not in there]
    if not new:
        return
    _TOLD.update((path, name) for name in new)
    _LOG.warning(
        "%s: file %r has the %s %s, which the first megabytes of the first file lack: without schema= columns are read "
        "from there, so these values are left out; declare the columns with schema=",
        *(path, file, "columns" if len(new) > 1 else "column", ", ".join(map(repr, new))),
    )


def forget(path: str) -> None:
    """Removes the log state of an earlier source at this path."""
    _TOLD.difference_update([one for one in _TOLD if one[0] == path])
