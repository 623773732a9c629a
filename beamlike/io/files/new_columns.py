"""Detects columns beyond the part of the input from which the columns are inferred."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

_LOG = logging.getLogger("beamlike")
_TOLD: Final[set[tuple[str, str]]] = set()
_UNREPORTED: Final[dict[str, dict[str, str]]] = {}
"""By path of a source: the columns that its files have and that it does not read, each with the first such file."""


def warn_new(path: str, known: Iterable[str], names: Iterable[str], file: str) -> None:
    """Logs which of the `names` in a file are none of the columns that are read, each once for a source at `path`."""
    left_out = [name for name in names if name not in {*known}]
    if not left_out:
        return
    _UNREPORTED[path] = {**dict.fromkeys(left_out, file), **_UNREPORTED.get(path, {})}
    there = {name for source, name in _TOLD if source == path}
    new = [name for name in left_out if name not in there]
    if not new:
        return
    _TOLD.update((path, name) for name in new)
    _LOG.warning(
        "%s: file %r has the %s %s, which the first megabytes of the first file lack: without schema= columns are read "
        "from there, so these values are left out; declare the columns with schema=",
        *(path, file, "columns" if len(new) > 1 else "column", ", ".join(map(repr, new))),
    )


def report(path: str) -> dict[str, str]:
    """Returns the columns that files of the source at `path` had and it did not read since the last call."""
    return _UNREPORTED.pop(path, {})


def forget(path: str) -> None:
    """Forgets what was logged of an earlier source at this path."""
    _UNREPORTED.pop(path, None)
    _TOLD.difference_update([one for one in _TOLD if one[0] == path])
