"""Small files and folders on this machine and on any storage that pyarrow knows, without Spark's Java."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import file_system, path_text
from beamlike.io.files.remote import RetriedFileSystem
from beamlike.runtime.batch.storage import not_stored, stored
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.checkpoint.hadoop_sums import sums_of
from beamlike.system.file_digests import has_content
from beamlike.system.path_names import is_remote
from beamlike.system.retries import again

_STEP: Final = 1 << 20


@attrs.frozen
class ArrowFiles(StoredFiles):
    """Files on any storage that pyarrow knows. Spark has to know the path, too."""

    @contextmanager
    def _storing(self, what: str, name: str) -> Iterator[None]:
        with stored(what, name):
            try:
                yield
            except ValueError as error:  # a scheme that pyarrow does not know
                raise not_stored(what, name, error) from error

    def _read(self, name: str) -> bytes | None:
        system, path = _find(name)
        try:
            return bytes(system.read_whole(path))
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes, seconds: int | None) -> None:
        # An object store shows a file when it is complete. It stores no times of this process's choice.
        system, path = _find(name)
        system.write_whole(path, content)

    def _names(self, folder: str) -> list[str]:
        return [found.base_name for found in _listed(folder)]

    def _below(self, folder: str, before: str) -> Iterator[str]:
        _, base = _find(folder)
        for found in _listed(folder, recursive=True):
            if found.is_file and has_content(found.base_name):
                yield before + found.path[len(base) :].strip("/")

    def _size_and_digest(self, name: str) -> tuple[int, str] | None:
        system, path = _find(name)
        if not _is_there(system, path):
            return None
        digest, size = hashlib.sha256(), 0
        with system.open_input_file(path).buffered() as file:
            while part := file.read(_STEP):
                digest.update(part)
                size += len(part)
        return size, digest.hexdigest()

    def _make(self, folder: str) -> None:
        system, path = _find(folder)
        system.create_dir(path, recursive=True)

    def _copy(self, source: str, target: str) -> None:
        from pyarrow import fs

        (from_files, from_path), (to_files, to_path) = _find(source), _find(target)
        if _is_there(from_files, from_path):
            if _is_there(to_files, to_path):
                raise CheckpointError(f"cannot copy {source} to {target}, which is there")
            to_files.create_dir(to_path, recursive=True)
            both = {"source_filesystem": from_files.system, "destination_filesystem": to_files.system}
            again(f"copy {source}", lambda: fs.copy_files(from_path, to_path, **both))

    def _remove(self, folder: str) -> None:
        from pyarrow import fs

        system, path = _find(folder)
        found = system.get_file_info(path)
        if found.type == fs.FileType.Directory:
            system.delete_dir(path)
        elif found.type != fs.FileType.NotFound:
            system.delete_file(path)
            if not is_remote(folder):
                sums_of(Path(path)).unlink(missing_ok=True)


def _find(name: str) -> tuple[Any, str]:
    """Returns the file system of a path, and the path in it."""
    if is_remote(name):
        return file_system(name)
    from pyarrow import fs

    return RetriedFileSystem(fs.LocalFileSystem()), path_text(name)


def _is_there(system: Any, path: str) -> bool:
    from pyarrow import fs

    return bool(system.get_file_info(path).type != fs.FileType.NotFound)


def _listed(folder: str, *, recursive: bool = False) -> Iterator[Any]:
    from pyarrow import fs

    system, path = _find(folder)
    yield from system.get_file_info(fs.FileSelector(path, recursive=recursive, allow_not_found=True))
