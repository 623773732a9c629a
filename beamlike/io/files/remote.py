"""Access to file systems of pyarrow that repeats requests which fail because a service is briefly unwell."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import attrs

from beamlike.system.retries import FEW, TRIES, again

_BUFFER: Final = 1 << 20
_ANSWERED: Final = set[str]()
"""The buckets of which a request was answered in this process, so that their address is right."""


@attrs.frozen
class RetriedFileSystem:
    """A file system of pyarrow, with the methods that this package uses. Each request is repeated if it fails."""

    system: Any

    def get_file_info(self, asked: Any) -> Any:
        """Returns the facts of a path, or of all files that a selector matches."""
        return self._again("list", asked, lambda: self.system.get_file_info(asked))

    def open_input_file(self, path: str) -> RemoteFile:
        """Opens a file for reading at any place."""
        return RemoteFile(path, lambda: self.system.open_input_file(path))

    def read_whole(self, path: str) -> bytes:
        """Returns the content of a file."""

        def read() -> bytes:
            with self.system.open_input_stream(path) as file:
                return bytes(file.read())

        content: bytes = self._again("read", path, read)
        return content

    def write_whole(self, path: str, content: bytes) -> None:
        """Writes a file with this content, in place of an existing one."""

        def write() -> None:
            with self.system.open_output_stream(path) as file:
                file.write(content)

        self._again("write", path, write)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Creates a folder, unless it exists."""
        self._again("create", path, lambda: self.system.create_dir(path, recursive=recursive))

    def delete_dir(self, path: str) -> None:
        """Removes a folder with its content."""
        self._once("remove", path, lambda: self.system.delete_dir(path))

    def delete_file(self, path: str) -> None:
        """Removes a file."""
        self._once("remove", path, lambda: self.system.delete_file(path))

    def move(self, source: str, target: str) -> None:
        """Renames a file."""
        self._once("rename", source, lambda: self.system.move(source, target))

    def _again(self, verb: str, asked: object, call: Callable[[], Any]) -> Any:
        path = str(getattr(asked, "base_dir", asked))
        bucket = path.strip("/").partition("/")[0]
        found = again(f"{verb} {path}", call, TRIES if bucket in _ANSWERED else FEW)
        _ANSWERED.add(bucket)
        return found

    def _once(self, verb: str, path: str, call: Callable[[], Any]) -> None:
        """Repeats a request that finds nothing to do if an earlier one was done and its answer was lost."""
        calls = 0

        def called() -> None:
            nonlocal calls
            calls += 1
            try:
                call()
            except FileNotFoundError:
                if calls == 1:
                    raise

        self._again(verb, path, called)


class RemoteFile(io.RawIOBase):
    """A file for reading. After a failed request, it is opened again, and read on at the same place."""

    def __init__(self, path: str, opened: Callable[[], Any]) -> None:
        self._path, self._opened, self._at = path, opened, 0
        self._file: Any = again(f"open {path}", opened)
        self._size: int | None = None

    def read_at(self, length: int, offset: int) -> bytes:
        """Returns a range of the file, which is shorter at its end."""

        def read() -> bytes:
            if self._file is None:
                self._file = self._opened()
            try:
                return bytes(self._file.read_at(length, offset))
            except OSError:
                self._file = None
                raise

        return again(f"read {self._path}", read)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Returns the number of bytes."""
        if self._size is None:
            self._size = int(self._file.size())
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {
            io.SEEK_SET: 0,
            io.SEEK_CUR: self._at,
            io.SEEK_END: 0 if whence != io.SEEK_END else self.size(),
        }
        self._at = base[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: Any) -> int:
        view = memoryview(target).cast("B")
        content = self.read_at(min(len(view), max(0, self.size() - self._at)), self._at) if len(view) else b""
        view[: len(content)] = content
        self._at += len(content)
        return len(content)

    def buffered(self) -> io.BufferedReader:
        """Returns the file with a buffer, so that small reads are not requests."""
        return io.BufferedReader(self, _BUFFER)
