"""Small files and folders on any storage. The runner's checkpoint is made of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text
from beamlike.runtime.batch.storage import stored
from beamlike.spark.checkpoint.hadoop_sums import fits, sums, sums_of
from beamlike.system import durable
from beamlike.system.file_digests import files_below, size_and_digest
from beamlike.system.path_names import is_remote

_VERSION: Final = re.compile(r"\.\d{9}")  # a suffix of the file name


class StoredFiles:
    """Access to files. A path without a scheme is on this machine.

    Files on this machine are read and written here. A subclass adds other storage. Raises `CheckpointError`, with the
    reason, if the storage fails.
    """

    __slots__ = ()

    def read(self, name: str) -> str | None:
        """Returns the text of a file; None if it does not exist. Raises `CheckpointError` if the content is no text."""
        content = self.read_bytes(name)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{name} is damaged, it is no text: put it back from a copy") from None

    def read_bytes(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""
        with self._storing("read", name):
            return self._read(name) if is_remote(name) else _content(Path(path_text(name)))

    def write_for_spark(self, name: str, text: str) -> None:
        """Writes a file that Spark reads. On this machine, Hadoop's checksum file is written as well."""
        self.write(name, text)
        if not is_remote(name):
            with self._storing("write", name):
                beside = sums_of(Path(path_text(name)))
                beside.write_bytes(sums(text.encode()))
                durable.sync(str(beside))

    def write(self, name: str, text: str, seconds: int | None = None) -> None:
        """Writes a file. It first has a hidden name, so that no reader sees incomplete content.

        An existing file is replaced. On this machine's file system that is atomic: if the process is killed, or the
        power fails, either the old or the new file is there. On other storage use `replace`. `seconds` since 1970 is
        the modification time, if the file system stores it.
        """
        self.write_bytes(name, text.encode(), seconds)

    def write_bytes(self, name: str, content: bytes, seconds: int | None = None) -> None:
        """Writes a file with this content, like `write`."""
        with self._storing("write", name):
            if is_remote(name):
                self._write(name, content, seconds)
            else:
                _replace(Path(path_text(name)), content, seconds)

    def replace(self, name: str, text: str) -> None:
        """Replaces the text that `latest` returns. If the process is killed meanwhile, either the old or the new text
        is there.

        Few storages can replace a file atomically, but all can rename a complete one. So each version has its own name,
        and the newest version counts.
        """
        if not is_remote(name):
            self.write(name, text)
            return
        before = self._versions(name)
        newest = int(before[-1].rpartition(".")[2]) if before else 0
        self.write(f"{name}.{newest + 1:09d}", text)
        self.remove_files([name, *before])

    def latest(self, name: str) -> str | None:
        """Returns the text that `replace` or `write` stored last; None if there is none."""
        return self.read(self._newest(name))

    def _newest(self, name: str) -> str:
        """Returns the path of the newest version, or `name` if there are no versions."""
        return [name, *self._versions(name)][-1]

    def _versions(self, name: str) -> list[str]:
        """Returns the paths of the versions, oldest first. On this machine there are none."""
        folder, _, own = name.rpartition("/")
        found = self._all_names(folder) if is_remote(name) else []
        return [f"{folder}/{one}" for one in sorted(found) if _VERSION.fullmatch(one.removeprefix(own))]

    def names(self, folder: str) -> list[str]:
        """Returns the sorted names in a folder, without hidden ones. Returns none if the folder does not exist."""
        return sorted(name for name in self._all_names(folder) if not name.startswith((".", "_")))

    def hidden(self, folder: str) -> list[str]:
        """Returns the sorted names in a folder that begin with "_". Returns none if the folder does not exist."""
        return sorted(name for name in self._all_names(folder) if name.startswith("_"))

    def _all_names(self, folder: str) -> list[str]:
        with self._storing("read", folder):
            return [*self._names(folder)]

    def tree(self, folder: str) -> list[str]:
        """Returns the relative paths of the files below a folder, without those that Hadoop adds."""
        with self._storing("read", folder):
            if not is_remote(folder):
                return files_below(path_text(folder))
            return sorted(self._below(folder, ""))

    def size_and_digest(self, name: str) -> tuple[int, str] | None:
        """Returns the size of a file in bytes and the SHA-256 of its content; None if it does not exist."""
        with self._storing("read", name):
            if not is_remote(name):
                return size_and_digest(path_text(name))
            return self._size_and_digest(name)

    def make(self, folder: str) -> None:
        """Creates a folder, and missing folders above it."""
        with self._storing("write", folder):
            if not is_remote(folder):
                durable.make_folder(path_text(folder))
                return
            self._make(folder)

    def copy(self, source: str, target: str) -> None:
        """Copies a folder with its content. Does nothing if it does not exist. `target` must not exist."""
        with self._storing("write", target):
            self._copy(source, target)

    def remove(self, folder: str) -> None:
        """Removes a folder with its content."""
        with self._storing("write", folder):
            self._remove(folder)

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files. Missing files are ignored."""
        for name in names:
            self.remove(name)

    def sync(self, folder: str) -> None:
        """Syncs the files in a folder on this machine, because Spark does not sync what it writes."""
        with self._storing("write", folder):
            if not is_remote(folder):
                durable.sync_tree(path_text(folder))

    def _storing(self, what: str, name: str) -> AbstractContextManager[None]:
        """Converts storage errors of the `with` block to `CheckpointError`."""
        return stored(what, name)

    # For paths with a scheme

    def _read(self, name: str) -> bytes | None:
        raise NotImplementedError

    def _write(self, name: str, content: bytes, seconds: int | None) -> None:
        raise NotImplementedError

    def _below(self, folder: str, before: str) -> Iterator[str]:
        """Yields the relative paths of the files below a folder, each after `before`."""
        raise NotImplementedError

    def _size_and_digest(self, name: str) -> tuple[int, str] | None:
        raise NotImplementedError

    def _make(self, folder: str) -> None:
        raise NotImplementedError

    # For all paths

    def _names(self, folder: str) -> Iterable[str]:
        """Returns all names in a folder, none if it does not exist."""
        raise NotImplementedError

    def _copy(self, source: str, target: str) -> None:
        """Copies a folder with its content, if it exists."""
        raise NotImplementedError

    def _remove(self, folder: str) -> None:
        """Removes a file, or a folder with its content, if it exists."""
        raise NotImplementedError


def _content(path: Path) -> bytes | None:
    if not path.exists():
        return None
    content = path.read_bytes()
    # A power failure can leave an empty file. The caller decides about it.
    if content and not fits(path, content):
        raise CheckpointError(
            f"{path} is damaged: by its checksums, it is not what was written; put it back from a copy, "
            "or restore a savepoint, or start again with another checkpoint"
        )
    return content


def _replace(path: Path, content: bytes, seconds: int | None) -> None:
    durable.make_folder(str(path.parent))
    # The checksum file that Hadoop wrote would no longer match. Hadoop also reads files that have none.
    sums_of(path).unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    if seconds is not None:
        os.utime(temporary, (seconds, seconds))
    durable.replace(str(temporary), str(path))
