"""Leaves out links to files that a source reads by their own names, too."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cache
from typing import Final

import attrs

from beamlike.io.files import hive
from beamlike.io.files.paths import absolute, is_pattern, real, root_of
from beamlike.io.sources import FoundFile
from beamlike.system.path_names import is_remote, with_slashes

_OWN: Final = 0  # no folder in the path is a link, and the file is none
_ABOVE: Final = 1  # a link leads to the folder that the source names, and none is below it
_LINKED: Final = 2


@attrs.frozen
class _Name:
    """A name under which a file was found."""

    file: FoundFile
    place: str
    real: str
    rank: int


def once(found: Iterable[tuple[str, FoundFile]], columns: Collection[str] | None) -> list[FoundFile]:
    """Returns the files of pairs of a source's path and a file below it, each name once.

    A link, or a file below a linked folder, is left out if its target is found by its own name, below the same path of
    the source or another one. It is kept if its folders give other values of the columns (None: of any column).
    """
    names = dict[str, _Name]()
    for name in _names(found):
        if name.place not in names or name.rank < names[name.place].rank:
            names[name.place] = name
    by_target = defaultdict[str, list[_Name]](list)
    for name in names.values():
        by_target[name.real].append(name)
    return [name.file for alike in by_target.values() for name in _without_links(alike, columns)]


def _names(found: Iterable[tuple[str, FoundFile]]) -> Iterable[_Name]:
    folders = cache(real)  # a folder has many files
    bases = cache(_base)
    for path, file in found:
        if is_remote(path):
            yield _Name(file, file.path, file.path, _OWN)
            continue
        target = _target(file.path, folders(os.path.dirname(file.path) or os.curdir))
        place = absolute(file.path)
        named, leads_to = bases(path)
        is_direct = place.startswith(named) and target == leads_to + place[len(named) :]
        yield _Name(file, place, target, _OWN if target == place else _ABOVE if is_direct else _LINKED)


def _base(path: str) -> tuple[str, str]:
    """Returns the place that a path names, for a glob the folder before its first wildcard, and where it leads to."""
    base = (root_of(path) or os.curdir) if is_pattern(path) else path
    return absolute(base), real(base)


def _target(path: str, folder: str) -> str:
    """Returns the canonical path of a file, of whose folder it is known."""
    return real(path) if os.path.islink(path) else with_slashes(os.path.join(folder, os.path.basename(path)))


def _without_links(names: list[_Name], columns: Collection[str] | None) -> list[_Name]:
    """Returns the names of one file without those that need more links than another one with equal values."""
    if len(names) == 1:
        return names
    values = [_values(name.place, columns) for name in names]
    least = {
        one: min(name.rank for name, other in zip(names, values, strict=True) if one == other)
        for one in values
    }
    return [name for name, one in zip(names, values, strict=True) if name.rank == least[one]]


def _values(path: str, columns: Collection[str] | None) -> frozenset[tuple[str, str | None]]:
    found = hive.values_of(path)
    return frozenset((name, text) for name, text in found.items() if columns is None or name in columns)
