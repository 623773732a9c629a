"""Detects columns that were not known when the columns of a source were inferred, and are not read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from beamlike.errors import nearest

_LOG = logging.getLogger("beamlike")
_LOCK: Final = threading.Lock()  # files are read in several threads
_LOGGED: Final[set[tuple[str, str]]] = set()
_UNREPORTED: Final[dict[str, dict[str, str]]] = {}
"""The columns that were not read, each with the first file that has it, by path of a source."""


def warn_new(path: str, known: Iterable[str], names: Iterable[str], file: str) -> None:
    """Logs those of the `names` in a file that are not `known`, each once per source, and stores them for `report`."""
    left_out = [name for name in names if name not in {*known}]
    if not left_out:
        return
    with _LOCK:
        _UNREPORTED[path] = {**dict.fromkeys(left_out, file), **_UNREPORTED.get(path, {})}
        there = {name for source, name in _LOGGED if source == path}
        new = [name for name in left_out if name not in there]
        _LOGGED.update((path, name) for name in new)
    if not new:
        return
    _LOG.warning(
        "%s: file %r has the %s %s, which the first megabytes of the first file lack: without schema= columns are read "
        "from there, so these values are left out; declare the columns with schema=",
        *(path, file, "columns" if len(new) > 1 else "column", ", ".join(map(repr, new))),
    )


def warn_absent(path: str, absent: str, undeclared: Iterable[str], file: str) -> None:
    """Logs a declared column that no row of a file has, once per source, with the nearest name that the rows have and
    that is not declared. That name is stored for `report`.
    """
    hint = nearest(absent, undeclared)
    with _LOCK:
        if (path, absent) in _LOGGED:
            return
        _LOGGED.add((path, absent))
        near = (name for name in undeclared if hint.endswith(f"{name!r}?"))
        _UNREPORTED[path] = {**dict.fromkeys(near, file), **_UNREPORTED.get(path, {})}
    _LOG.warning(
        "%s: the first rows of file %r have no column %r, so it is null there%s",
        *(path, file, absent, hint),
    )


def report(path: str) -> dict[str, str]:
    """Returns the columns, each with a file, that the source at `path` has left out since the last call."""
    with _LOCK:
        return _UNREPORTED.pop(path, {})


def forget(path: str) -> None:
    """Removes stored and logged columns of an earlier source at this path."""
    with _LOCK:
        _UNREPORTED.pop(path, None)
        _LOGGED.difference_update([one for one in _LOGGED if one[0] == path])
