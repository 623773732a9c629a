"""Checks that a sink does not write to a place that another sink writes or a source reads."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from beamlike.errors import PlanError
from beamlike.expressions.describe import describe
from beamlike.io.files.paths import absolute, is_hidden, is_pattern, real, root_of
from beamlike.io.sinks import ANY, HasLocation, Place
from beamlike.system.path_names import is_remote

_WILD: Final = re.compile(r"[*?\[]")
_S3: Final = re.compile(r"^s3[an]://")

Names = tuple[str, ...]
"""A path as its parts. A part of a written path may contain `ANY`; a part of a read path may be a pattern."""


def require_own_folder(sink: Any, others: Mapping[str, Any], step: str) -> None:
    """Raises `PlanError` if two sinks share a folder or table. File names have run, batch and task, so they would
    collide.
    """
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
            _require_apart(mine, theirs, name, step)


def _require_apart(mine: str, theirs: str, other: str, step: str) -> None:
    inside, around = _is_in(mine, theirs), _is_in(theirs, mine)
    if inside and around:
        raise PlanError(f"writes to {mine!r}, and so does {other!r}; give it a folder of its own", step=step)
    if inside or around:
        raise PlanError(
            f"writes to {mine!r}, and {other!r} to {theirs!r}: a reader of the outer folder would read both; give it a "
            "folder beside",
            step=step,
        )


def require_apart(source: Any, sinks: Mapping[str, Any], step: str) -> None:
    """Raises `PlanError` if a sink writes to files that a source reads: output would become input, and sinks remove
    files.
    """
    for name, sink in sinks.items() if _paths(source) else ():
        if path := _read_of(source, list(_written(sink))):
            raise PlanError(
                f"reads {path!r}, and {name!r} writes to {_place(sink).path!r}, which is a part of that",
                step=step,
            )


def require_outside(sources: Mapping[str, Any], place: str, files: Iterable[str], what: str) -> None:
    """Raises `PlanError` if a source reads files of the run's own. `files` are their paths, relative to `place`."""
    written = [(*folder, *_names(file)) for folder in _spellings(place) for file in files]
    for name, source in sources.items():
        if path := _read_of(source, written):
            raise PlanError(f"reads {path!r}, of which {place!r} is a part, {what}", step=name)


def _is_in(inner: str, outer: str) -> bool:
    """True if a folder is, or is inside, another folder, and a reader of the outer folder would not skip it
    as hidden.
    """
    return any(
        one[: len(other)] == other and not any(map(is_hidden, one[len(other) :]))
        for one, other in product(_spellings(inner), _spellings(outer))
    )


def _read_of(source: Any, written: Iterable[Names]) -> str | None:
    """Returns the path by which a source would read one of these files; None if it reads none of them."""
    for path in _paths(source):
        if any(_leads(pattern, names) for pattern, names in product(_patterns(path), written)):
            return path
    return None


def _paths(place: Any) -> tuple[str, ...]:
    """Returns the paths of a source or sink, which may have a user's class."""
    path = getattr(place, "path", None)
    paths = path if isinstance(path, tuple) else (path,)
    return tuple(os.fspath(path) for path in paths if isinstance(path, str | os.PathLike))


def _place(sink: Any) -> Place:
    """Returns the place to which a sink writes: the result of its `place()`, or else the directory in its `path`."""
    if isinstance(sink, HasLocation):
        return sink.place()
    path = "".join(_paths(sink))
    return Place("folder", path, path=path, names=(f"part-{ANY}",))


def _written(sink: Any) -> Iterator[Names]:
    """Yields the files that a sink writes, each as the parts of its path."""
    place = _place(sink)
    if place.path:
        yield from ((*folder, *place.names) for folder in _spellings(place.path))


def _patterns(path: str) -> Iterator[Names]:
    """Yields the parts of a path that is read: a literal root, followed by a pattern."""
    root = root_of(path) if is_pattern(path) else path
    for folder in _spellings(root):
        yield (*map(_literal, folder), *_names(path[len(root) :]))


def _spellings(path: str) -> list[Names]:
    """Returns the parts of a path, as it is written and with links resolved."""
    if is_remote(path):
        return [_names(_S3.sub("s3://", path))]
    return [*{_names(absolute(path)), _names(real(path))}]


def _names(path: str) -> Names:
    return tuple(name for name in path.split("/") if name not in ("", os.curdir))


def _literal(name: str) -> str:
    return _WILD.sub(r"[\g<0>]", name)


def _leads(pattern: Names, written: Names, found: str = "") -> bool:
    """True if a pattern matches the path `written`, or a folder above it that a reader would search. Readers skip
    hidden files and folders below such a folder.

    `found` is the part of the path that the pattern's last wildcard has matched.
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
    """True if a pattern may match a part of a path. In a part with `ANY`, only the text before and after it is
    compared.
    """
    if written.startswith(".") and not read.startswith((".", "[.]")):
        return False  # wildcards do not match hidden names
    if ANY not in written:
        return fnmatch.fnmatchcase(written, read)
    first, _, last = written.partition(ANY)
    if not _WILD.search(read):
        return read.startswith(first) and read.endswith(last)
    begins, ends = _WILD.split(read)[0], re.split(r"[*?\]]", read)[-1]
    return _meet(begins, first) and _meet(ends[::-1], last[::-1])


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
