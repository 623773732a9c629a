"""Places that are written and read: no sink writes where another one does, nor where a source would read it."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from beamlike.errors import PlanError
from beamlike.expressions.describe import describe
from beamlike.io.files.paths import absolute, is_hidden, is_pattern, root_of
from beamlike.io.sinks import ANY, HasLocation, Place
from beamlike.system.path_names import is_remote

_WILD: Final = re.compile(r"[*?\[]")
_S3: Final = re.compile(r"^s3[an]://")

Names = tuple[str, ...]
"""A path, name by name: of what is written with `ANY` in some, of what is read perhaps with patterns."""


def require_own_folder(sink: Any, others: Mapping[str, Any], step: str) -> None:
    """Files are named by run, batch and task, so two sinks of one folder would replace each other's; so with tables."""
    if isinstance(getattr(sink, "path", None), tuple):
        raise PlanError(f"writes to one directory, not to several paths: {describe(sink)}", step=step)
    place = _place(sink)
    for name, other in others.items():
        if place.key and place.key == _place(other).key:
            raise PlanError(
                f"writes to {place.kind} {place.name!r}, and so does {name!r}; give it a {place.kind} of its own",
                step=step,
            )
        for mine, theirs in product(_paths(sink), _paths(other)):
            _require_beside(mine, theirs, name, step)


def _require_beside(mine: str, theirs: str, other: str, step: str) -> None:
    inside, around = _is_in(mine, theirs), _is_in(theirs, mine)
    if inside and around:
        raise PlanError(f"writes to {mine!r}, and so does {other!r}; give it a folder of its own", step=step)
    if inside or around:
        raise PlanError(
            f"writes to {mine!r}, and {other!r} to {theirs!r}: who reads the outer one would read both; give it a "
            "folder beside",
            step=step,
        )


def require_apart(source: Any, sinks: Mapping[str, Any], step: str) -> None:
    """What a source reads is not for sinks: what they write would be its input, and be removed by them."""
    for name, sink in sinks.items() if _paths(source) else ():
        if path := _read_of(source, list(_written(sink))):
            raise PlanError(
                f"reads {path!r}, and {name!r} writes to {_place(sink).path!r}, which is a part of that",
                step=step,
            )


def require_outside(sources: Mapping[str, Any], place: str, files: Iterable[str], what: str) -> None:
    """What a run keeps for itself is not for sources either: such files, by path below a place."""
    written = [(*folder, *_names(file)) for folder in _spellings(place) for file in files]
    for name, source in sources.items():
        if path := _read_of(source, written):
            raise PlanError(f"reads {path!r}, of which {place!r} is a part, {what}", step=name)


def _is_in(inner: str, outer: str) -> bool:
    """Whether a folder is another one or in that, and its readers do not pass over it."""
    return any(
        one[: len(other)] == other and not any(map(is_hidden, one[len(other) :]))
        for one, other in product(_spellings(inner), _spellings(outer))
    )


def _read_of(source: Any, written: Iterable[Names]) -> str | None:
    """The path of a source by which it would read some of these."""
    for path in _paths(source):
        if any(_leads(pattern, names) for pattern, names in product(_patterns(path), written)):
            return path
    return None


def _paths(place: Any) -> tuple[str, ...]:
    """Those of a source or sink, which may be a user's own class."""
    path = getattr(place, "path", None)
    paths = path if isinstance(path, tuple) else (path,)
    return tuple(os.fspath(path) for path in paths if isinstance(path, str | os.PathLike))


def _place(sink: Any) -> Place:
    """Where a sink writes, as it says itself; else the directory that is its `path`, if it has one."""
    if isinstance(sink, HasLocation):
        return sink.place()
    path = "".join(_paths(sink))
    return Place("folder", path, path=path, names=(f"part-{ANY}",))


def _written(sink: Any) -> Iterator[Names]:
    """What its files are named."""
    place = _place(sink)
    if place.path:
        yield from ((*folder, *place.names) for folder in _spellings(place.path))


def _patterns(path: str) -> Iterator[Names]:
    """The names of a path that is read."""
    root = root_of(path) if is_pattern(path) else path
    for folder in _spellings(root):
        yield (*map(_literal, folder), *_names(path[len(root) :]))


def _spellings(path: str) -> list[Names]:
    """The names of a path as it is spelt, and of where it leads."""
    if is_remote(path):
        return [_names(_S3.sub("s3://", path))]
    return [*{_names(absolute(path)), _names(os.path.realpath(path))}]


def _names(path: str) -> Names:
    return tuple(name for name in path.split("/") if name not in ("", os.curdir))


def _literal(name: str) -> str:
    return _WILD.sub(r"[\g<0>]", name)


def _leads(pattern: Names, written: Names, found: str = "") -> bool:
    """Whether a pattern finds these, or some folder above them in which nothing on the way is hidden.

    `found` is what its last wildcard stands for.
    """
    if not pattern:
        return not any(map(is_hidden, (found, *written)))
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        counts = range(len(written) + 1)
        return any(
            _leads(rest, written[count:], written[count - 1] if count else found)
            for count in counts
            if not any(name.startswith(".") for name in written[:count])
        )
    if not written or not _may_be_alike(first, written[0]):
        return False
    return _leads(rest, written[1:], written[0] if _WILD.search(first) else "")


def _may_be_alike(read: str, written: str) -> bool:
    """Whether a pattern finds a name; of names with `ANY` in them, whether beginnings and ends allow that."""
    if written.startswith(".") and not read.startswith((".", "[.]")):
        return False  # wildcards find no such names
    if ANY not in written:
        return fnmatch.fnmatchcase(written, read)
    first, _, last = written.partition(ANY)
    if not _WILD.search(read):
        return read.startswith(first) and read.endswith(last)
    begins, ends = _WILD.split(read)[0], re.split(r"[*?\]]", read)[-1]
    return _meet(begins, first) and _meet(ends[::-1], last[::-1])


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
