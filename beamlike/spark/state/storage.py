"""Reads and writes state files in a folder, on this machine or on storage that pyarrow supports.

A state file has a name that no other attempt uses, and it never changes. So what was read of a file may be cached.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.files.access import Access, access_to
from beamlike.io.files.paths import file_system, path_text
from beamlike.runtime.batch.storage import stored
from beamlike.system import durable
from beamlike.system.path_names import is_remote

_CACHED: Final = 64_000_000  # bytes in each process
_MOST_OPEN: Final = 64  # files in each process


class StateFiles(Protocol):
    """The state files in a folder. Raises `CheckpointError` if the storage fails, or a file is not there."""

    @property
    def folder(self) -> str: ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Returns a range of the file."""

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Writes a new file."""


def state_files(folder: str) -> StateFiles:
    """Returns access to the state files in a folder."""
    return cached_files(folder, access_to(folder))


@lru_cache(maxsize=16)
def cached_files(folder: str, access: Access | None) -> StateFiles:
    """Returns access to the state files in a folder, with these settings, and their cache in this process."""
    return _RemoteFiles(folder) if is_remote(folder) else _LocalFiles(path_text(folder))


def _gone(name: str) -> CheckpointError:
    return CheckpointError(
        f"the state file {name} is gone: put it back from a copy, restore a savepoint, or start again with another "
        "checkpoint"
    )


@attrs.frozen
class _LocalFiles:
    folder: str

    def read(self, name: str, offset: int, length: int) -> bytes:
        path = os.path.join(self.folder, name)
        try:
            with stored("read", path), open(path, "rb", buffering=0) as file:
                return os.pread(file.fileno(), length, offset)
        except CheckpointError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise _gone(path) from None
            raise

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        path = os.path.join(self.folder, name)
        with stored("write", path):
            try:
                _write(path, parts)
            except FileNotFoundError:  # the folder is created by the first file
                os.makedirs(self.folder, exist_ok=True)
                _write(path, parts)


def _write(path: str, parts: Sequence[bytes]) -> None:
    # The driver syncs the folder before it publishes the version that has the file.
    with open(path, "xb") as file:
        file.writelines(parts)
    durable.sync(path)


@attrs.frozen
class _RemoteFiles:
    """State files on other storage, where each read is a request. Ranges that were read or written are cached."""

    folder: str
    _system: Any = attrs.field(init=False)
    _path: str = attrs.field(init=False)
    _cache: _Ranges = attrs.field(factory=lambda: _Ranges(), init=False)
    _open: OrderedDict[str, Any] = attrs.field(factory=OrderedDict, init=False)
    """The files that were read last. To open one is a request."""

    def __attrs_post_init__(self) -> None:
        system, path = file_system(self.folder)
        object.__setattr__(self, "_system", system)
        object.__setattr__(self, "_path", path.rstrip("/"))

    def read(self, name: str, offset: int, length: int) -> bytes:
        if (known := self._cache.get((name, offset, length))) is not None:
            return known
        try:
            with stored("read", f"{self.folder}/{name}"):
                content: bytes = self._opened(name).read_at(length, offset)
        except CheckpointError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise _gone(f"{self.folder}/{name}") from None
            raise
        self._cache.put((name, offset, length), content)
        return content

    def _opened(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = self._system.open_input_file(f"{self._path}/{name}")
        self._open.move_to_end(name)
        if len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return self._open[name]

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        with stored("write", f"{self.folder}/{name}"):
            self._system.write_whole(f"{self._path}/{name}", b"".join(parts))
        offset = 0
        for part in parts:
            self._cache.put((name, offset, len(part)), part)
            offset += len(part)


_Range = tuple[str, int, int]


@attrs.define
class _Ranges:
    """The ranges of files that were used last, up to a number of bytes."""

    _held: OrderedDict[_Range, bytes] = attrs.field(factory=OrderedDict)
    _size: int = 0

    def get(self, place: _Range) -> bytes | None:
        if place in self._held:
            self._held.move_to_end(place)
        return self._held.get(place)

    def put(self, place: _Range, content: bytes) -> None:
        self._held[place] = content
        self._size += len(content)
        while self._size > _CACHED:
            _, oldest = self._held.popitem(last=False)
            self._size -= len(oldest)
