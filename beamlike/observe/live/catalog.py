"""Finds the runs and savepoints in the places that a user names, and keeps the histories that are looked at."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar, cast

import attrs

from beamlike.errors import ViewError
from beamlike.observe.live.savepoints import SavedRun, savepoints_below
from beamlike.records.find import find_run, runs_below
from beamlike.records.history import History

T = TypeVar("T")

_ADMINISTRATOR: Final = 0
_USER: Final = os.geteuid() if hasattr(os, "geteuid") else 0

_MOST_OPEN: Final = 8
"""The number of histories that are kept in memory; another one is read anew when it is looked at."""


@attrs.frozen
class Entry:
    """A run: its id in addresses, the path of its records, and its name in lists."""

    id: str
    path: str
    name: str


@attrs.define(eq=False)
class OpenRun:
    """A history that is kept, and the lock for reading it. `version` grows with each change."""

    history: History
    version: int = 0
    lock: Lock = attrs.field(factory=Lock)
    _kept: dict[str, tuple[int, float, Any]] = attrs.field(factory=dict, init=False)

    def once(self, name: str, make: Callable[[History], T], seconds: float = 0) -> T:
        """Returns what `make` returns for the history, which is made once for each version.

        While the run goes on, an older result is returned for so many seconds.
        """
        version, at, made = self._kept.get(name, (-1, -math.inf, None))
        rested = self.history.closed is not None or time.monotonic() - at >= seconds
        if version != self.version and rested:
            made = make(self.history)
            self._kept[name] = self.version, time.monotonic(), made
        return cast("T", made)

    def refresh(self) -> None:
        """Reads what the run has added. The caller holds the lock."""
        self.version += self.history.refresh()


@attrs.define(eq=False)
class Catalog:
    """The runs and savepoints in some places: files of records, checkpoints, or folders with several of them."""

    places: Sequence[str]
    _open: OrderedDict[str, OpenRun] = attrs.field(factory=OrderedDict, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    @classmethod
    def of(cls, places: Sequence[str | os.PathLike[str]]) -> Catalog:
        """Creates the catalog. Raises `FileNotFoundError` for a place that does not exist."""
        paths = [os.fspath(place) for place in places]
        for path in paths:
            if not os.path.exists(path):
                find_run(path)  # raises the error, with the nearest runs
        return cls(paths)

    def entries(self) -> list[Entry]:
        """Returns the runs that there are now, sorted by name, without those of `foreign`."""
        found = {os.path.abspath(path): is_own for path, is_own in self._found()}
        return sorted(
            (_entry(path) for path, is_own in found.items() if is_own), key=lambda entry: entry.name
        )

    def foreign(self) -> int:
        """Returns the number of records of other users in the places. They may be forged, and are not shown."""
        return sum(not is_own for _, is_own in self._found())

    def _found(self) -> Iterator[tuple[str, bool]]:
        """Yields files of records, and True if they belong to this user, the administrator, or the owner of the place,
        who can write all that is there.
        """
        for place in self.places:
            for path in _records_in(place):
                trusted = {_ADMINISTRATOR, _USER, os.stat(place).st_uid}
                yield path, not os.path.isdir(place) or os.stat(path).st_uid in trusted

    def has(self, folder: str) -> bool:
        """True if a folder, without its links, is in one of the places. The page shows rows only from there."""
        where = os.path.realpath(folder)
        roots = (
            place if os.path.isdir(place) else os.path.dirname(place) or os.curdir for place in self.places
        )
        return any(Path(where).is_relative_to(os.path.realpath(root)) for root in roots)

    def entry(self, name: str) -> Entry | None:
        """Returns the run with this id; None if there is none."""
        return next((entry for entry in self.entries() if entry.id == name), None)

    def savepoints(self) -> list[SavedRun]:
        """Returns the savepoints in the places, the newest first."""
        found = {saved.path: saved for place in self.places for saved in savepoints_below(place)}
        return sorted(found.values(), key=lambda saved: saved.taken, reverse=True)

    def opened(self, entry: Entry) -> OpenRun:
        """Returns the history of a run, which is read the first time."""
        with self._lock:
            run = self._open.get(entry.id)
            if run is None:
                run = self._open[entry.id] = OpenRun(History.open(entry.path))
            self._open.move_to_end(entry.id)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
            return run


def _records_in(place: str) -> Iterator[str]:
    """Yields the files of records at a place, or below it."""
    if os.path.isdir(place):
        yield from runs_below(place)
        return
    try:
        yield find_run(place)
    except (FileNotFoundError, ViewError):  # it was removed meanwhile
        return


def _entry(path: str) -> Entry:
    place = Path(path)
    # Records of a checkpoint are in CHECKPOINT/beamlike/records.jsonl.
    shown = place.parent.parent if place.parent.name == "beamlike" else place
    try:
        name = str(shown.relative_to(Path.cwd()))
    except ValueError:
        name = str(shown)
    return Entry(hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:12], path, name)
