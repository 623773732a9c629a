"""The index of a shard's state: the file, and the range in it, of each value. It is stored at the end of state files.

    ┌─────────┬─────────┬─ … ─┬────────────────┬────────────────────────────┐
    │ value   │ value   │     │ index, as JSON │ its length, checksum, mark │
    └─────────┴─────────┴─ … ─┴────────────────┴────────────────────────────┘

A file is written in one batch by one attempt at a task. It has the values that the batch has changed. Its index is
either complete, or has only the changes, and names the files with the changes before.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from beamlike.spark.state.storage import StateFiles
from beamlike.system.seals import NotAsWritten

_TRAILER: Final = struct.Struct("<QI8s")
_MARK: Final = b"bl-state"
TRAILER_BYTES: Final = _TRAILER.size
_LONGEST_CHAIN: Final = 32
"""The greatest number of files that make up an index. Each is a read in a process that has not
cached it."""
_COMPLETE: Final = 100
"""The number of values up to which an index is always complete."""


class Head(NamedTuple):
    """The last file of a shard's state, and its size in bytes. Its index leads to all other files."""

    name: str
    size: int


class Place(NamedTuple):
    """The place of a value: a file, the range in it, and the checksum of the value."""

    file: str
    offset: int
    length: int
    total: int

    @property
    def used(self) -> int:
        """The bytes of the file that the value uses: at least one, since a file with an empty value is needed, too."""
        return max(1, self.length)


@attrs.define
class StateIndex:
    """The places of a shard's values. `sizes` has all files that are needed, with their sizes in bytes, and `live` how
    many of them values use.

    `chain` has the files with the changes since the last complete index, oldest first; the first one has that index.
    `changes` is the number of changes in them.
    """

    places: dict[str, Place] = attrs.field(factory=dict)
    sizes: dict[str, int] = attrs.field(factory=dict)
    live: dict[str, int] = attrs.field(factory=dict)
    chain: list[str] = attrs.field(factory=list)
    changes: int = 0

    def set(self, key: str, place: Place) -> None:
        self.remove(key)
        self.places[key] = place
        self.live[place.file] = self.live.get(place.file, 0) + place.used

    def remove(self, key: str) -> None:
        if (before := self.places.pop(key, None)) is not None:
            self.live[before.file] -= before.used

    def extend(self, name: str, changed: Iterable[str], deleted: Sequence[str]) -> tuple[bytes, list[str]]:
        """Adds a file that has these changes to the index. Returns the end of the file, and the names of the files that
        are no longer needed.
        """
        changed = [*changed]
        count = len(changed) + len(deleted)
        complete = (
            not self.chain
            or len(self.places) <= _COMPLETE
            or len(self.chain) >= _LONGEST_CHAIN
            or self.changes + count > len(self.places)
        )
        after = [] if complete else self.chain
        self.chain = [*after, name]
        self.changes = 0 if complete else self.changes + count
        unused = self._forget_unused()
        keys = self.places if complete else changed
        places = {key: self.places[key] for key in keys}
        return _packed(name, places, () if complete else deleted, after, self.sizes), unused

    def _forget_unused(self) -> list[str]:
        found = [name for name in self.sizes if not self.live.get(name) and name not in self.chain]
        for name in found:
            del self.sizes[name]
            self.live.pop(name, None)
        return found

    @classmethod
    def load(cls, head: Head, files: StateFiles) -> StateIndex:
        """Reads the index of a head. Raises `NotAsWritten` for a damaged file."""
        last = _Stored.read(head, files)
        sizes = {**last.sizes, head.name: head.size}
        earlier = [_Stored.read(Head(name, sizes[name]), files) for name in last.after]
        index = cls(sizes=sizes, chain=[*last.after, head.name])
        for number, stored in enumerate([*earlier, last]):
            for key in stored.deleted:
                index.remove(key)
            for key, place in stored.places.items():
                index.set(key, place)
            index.changes += len(stored.places) + len(stored.deleted) if number else 0
        return index


@attrs.frozen
class _Stored:
    places: Mapping[str, Place]
    deleted: Sequence[str]
    after: Sequence[str]
    sizes: Mapping[str, int]

    @classmethod
    def read(cls, head: Head, files: StateFiles) -> _Stored:
        facts = json.loads(_index_of(head, files))
        if facts["name"] != head.name:
            raise NotAsWritten(f"{files.folder}/{head.name}", f"it is {facts['name']}")
        names = [head.name, *facts["files"]]
        places = {key: Place(names[place[0]], *place[1:]) for key, place in facts["values"].items()}
        return cls(places, facts["deleted"], [names[number] for number in facts["after"]], facts["files"])


_TAIL: Final = 64_000
"""The bytes at the end of a file that are read at once. Most indices are smaller."""


def _index_of(head: Head, files: StateFiles) -> bytes:
    path, length = f"{files.folder}/{head.name}", min(head.size, _TAIL)
    tail = files.read(head.name, head.size - length, length)
    if len(tail) < length or length < TRAILER_BYTES:
        raise NotAsWritten(path, "its end is missing")
    size, total, mark = _TRAILER.unpack(tail[-TRAILER_BYTES:])
    if mark != _MARK or size + TRAILER_BYTES > head.size:
        raise NotAsWritten(path, "it has no index")
    missing = size + TRAILER_BYTES - length
    before = files.read(head.name, head.size - length - missing, missing) if missing > 0 else b""
    found = (before + tail)[-size - TRAILER_BYTES : -TRAILER_BYTES]
    if zlib.crc32(found) != total:
        raise NotAsWritten(path)
    return found


def _packed(
    name: str,
    places: Mapping[str, Place],
    deleted: Sequence[str],
    after: Sequence[str],
    sizes: Mapping[str, int],
) -> bytes:
    files = {name: 0, **{other: number for number, other in enumerate(sizes, start=1)}}
    facts: dict[str, Any] = {
        "name": name,
        "files": {other: size for other, size in sizes.items() if other != name},
        "values": {key: [files[place.file], *place[1:]] for key, place in places.items()},
        "deleted": [*deleted],
        "after": [files[other] for other in after],
    }
    content = json.dumps(facts, separators=(",", ":")).encode()
    return content + _TRAILER.pack(len(content), zlib.crc32(content), _MARK)
