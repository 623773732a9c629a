"""The state of a shard in a batch: a `StateStore` that writes what the batch changes into a new file.

Files with few values that are still valid are merged: their values are written again, in the new file.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from beamlike.spark.state.index import Head, Place, StateIndex
from beamlike.spark.state.storage import StateFiles, state_files
from beamlike.system.seals import NotAsWritten
from stages.state.memory import D, Memory

_FILE_BYTES: Final = 64_000_000
"""The approximate greatest size of a state file, and of what one batch merges."""
_MOST_FILES: Final = 32
"""The number of files of a small state. A larger one may have a file more for each half of `_FILE_BYTES`."""
_SMALL: Final = 64_000
_REMEMBERED: Final = Memory(limit=250_000_000)
"""The decoded values of all shards in this process, by shard and key. Their tokens are their places or, before they are
written, their bytes. A file has the name of one attempt at one batch, so a place always has the same value.
"""


@attrs.frozen
class Changed:
    """The state of a shard after a batch: its head, and the files that it no longer needs."""

    head: Head
    unused: tuple[str, ...]


@attrs.define
class ShardState:
    """The state of a shard, as the tasks of one batch see it. `shard` identifies the shard in this process, and `name`
    is that of the file to be written, which no other attempt has.
    """

    shard: str
    files: StateFiles
    index: StateIndex
    name: str
    _pending: dict[str, bytes] = attrs.field(factory=dict, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _changed: dict[str, None] = attrs.field(factory=dict, init=False)
    _written: int = attrs.field(default=0, init=False)

    @property
    def compress_from(self) -> int:
        return _SMALL

    @property
    def remembers(self) -> bool:
        return True

    def get(self, stage: str, key: str) -> bytes | None:
        name = f"{stage}/{key}"
        if name in self._pending:
            return self._pending[name]
        place = self.index.places.get(name)
        return None if place is None else self._read(place)

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        name = f"{stage}/{key}"
        token = self._pending.get(name, self.index.places.get(name))
        if token is None:
            return None
        return _REMEMBERED.get((self.shard, name), token, lambda: decode(self.get(stage, key) or b""))

    def put(self, stage: str, key: str, value: bytes) -> None:
        name = f"{stage}/{key}"
        _REMEMBERED.forget((self.shard, name))
        self._put(name, value)

    def delete(self, stage: str, key: str) -> None:
        name = f"{stage}/{key}"
        _REMEMBERED.forget((self.shard, name))
        self._bytes -= len(self._pending.pop(name, b""))
        if name in self.index.places:
            self.index.remove(name)
            self._changed[name] = None

    def values(self) -> Iterator[tuple[str, bytes]]:
        """Yields the values of all keys that were stored before."""
        for name, place in self.index.places.items():
            yield name, self._read(place)

    def commit(self) -> Changed | None:
        """Writes the changes. Returns None if there are none. No other method may be called after that."""
        if not (self._pending or self._changed):
            return None
        for name in self._to_merge():
            self._move(name)
        parts = self._placed(self.name)
        changed = [name for name in self._changed if name in self.index.places]
        deleted = [name for name in self._changed if name not in self.index.places]
        end, unused = self.index.extend(self.name, changed, deleted)
        head = Head(self.name, self._write(self.name, [*parts, end]))
        return Changed(head, tuple(unused))

    def _move(self, name: str) -> None:
        """Writes a value again, in the new file."""
        place = self.index.places[name]
        value = self._read(place)
        _REMEMBERED.renew((self.shard, name), place, value)
        self._put(name, value)

    def _put(self, name: str, value: bytes) -> None:
        self._bytes += len(value) - len(self._pending.get(name, b""))
        self._pending[name] = value
        if self._bytes > _FILE_BYTES:
            self._written += 1
            file = f"{self.name}-{self._written}"
            self._write(file, self._placed(file))

    def _placed(self, file: str) -> list[bytes]:
        """Returns the pending values, whose places are now in the file."""
        offset, parts = 0, [*self._pending.values()]
        for name, value in self._pending.items():
            place = Place(file, offset, len(value), zlib.crc32(value))
            self.index.set(name, place)
            _REMEMBERED.renew((self.shard, name), value, place)
            self._changed[name] = None
            offset += len(value)
        self._pending, self._bytes = {}, 0
        return parts

    def _write(self, file: str, parts: list[bytes]) -> int:
        self.files.write(file, parts)
        size = self.index.sizes[file] = sum(map(len, parts))
        return size

    def _read(self, place: Place) -> bytes:
        value = self.files.read(place.file, place.offset, place.length)
        if zlib.crc32(value) != place.total:
            raise NotAsWritten(f"{self.files.folder}/{place.file}")
        return value

    def _to_merge(self) -> list[str]:
        """Returns the keys of the values to write again, so that there are neither too many files, nor too many bytes
        of values that are no longer valid.
        """
        # Files that only the index needs go when it is complete the next time.
        live = {file: used for file in self.index.sizes if (used := self.index.live.get(file, 0))}
        used, stored = sum(live.values()), sum(self.index.sizes[file] for file in live)
        most = _MOST_FILES + 2 * used // _FILE_BYTES
        files: list[str] = []
        if len(live) > most:
            files = sorted(live, key=lambda file: live[file])[: len(live) - most // 2]
        elif stored > 2 * used + _FILE_BYTES // 4:
            files = sorted(live, key=lambda file: live[file] - self.index.sizes[file])[: 1 + len(live) // 4]
        merged, size = set[str](), 0
        for file in files:
            size += live[file]
            if size > _FILE_BYTES:
                break
            merged.add(file)
        if not merged:
            return []
        return [
            name
            for name, place in self.index.places.items()
            if place.file in merged and name not in self._pending
        ]


_KEPT: Final[dict[tuple[str, int, int], tuple[Head, StateIndex]]] = {}
"""The last index of each shard in this process. It is valid for its head only, which names one attempt at one batch."""
_MOST_KEPT: Final = 64


@attrs.frozen
class Shard:
    """A shard of an operator's state, below a folder."""

    folder: str
    operator: int
    number: int

    def load(self, head: Head | None, batch: int) -> ShardState:
        """Loads the state with this head, for a batch."""
        files = state_files(self.folder)
        name = f"{self.operator}-{self.number}-{batch:09d}-{uuid.uuid4().hex[:12]}"
        # If the task fails, the index has some of its changes. So nothing is kept until it is done.
        kept = _KEPT.pop(self._key, None)
        if head is None:
            index = StateIndex()
        elif kept is not None and kept[0] == head:
            index = kept[1]
        else:
            index = StateIndex.load(head, files)
        return ShardState(f"{self.folder}/{self.operator}/{self.number}", files, index, name)

    def keep(self, head: Head, state: ShardState) -> None:
        """Keeps the index of a state that was committed, for the next batch in this process."""
        _KEPT[self._key] = head, state.index
        while len(_KEPT) > _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]

    @property
    def _key(self) -> tuple[str, int, int]:
        return self.folder, self.operator, self.number
