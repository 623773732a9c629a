"""The checkpoint of a run in process: a folder of this machine, with a journal beside what every checkpoint has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute
from beamlike.local.journal import Journal
from beamlike.runtime.checkpoint import CheckpointFolder, stored
from beamlike.system import durable
from beamlike.system.file_digests import files_below, size_and_digest
from beamlike.system.path_names import is_remote


@attrs.frozen
class LocalFiles:
    """Small files of this machine."""

    def latest(self, name: str) -> str | None:
        """The text of a file; None if there is none."""
        return self.read(name)

    def read(self, name: str) -> str | None:
        """The text of a file; None if there is none."""
        try:
            content = self.read_bytes(name)
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{name} is damaged, it is no text: put it back from a copy") from None

    def replace(self, name: str, text: str) -> None:
        """Makes or replaces a file, at once."""
        self.write_bytes(name, text.encode())

    def read_bytes(self, name: str) -> bytes | None:
        """What is in a file; None if there is none."""
        with stored("read", name):
            return Path(name).read_bytes() if os.path.exists(name) else None

    def tree(self, folder: str) -> list[str]:
        """The files in a folder and below it, by their paths from there, but none that Hadoop adds."""
        with stored("read", folder):
            return files_below(folder)

    def size_and_digest(self, name: str) -> tuple[int, str] | None:
        """The size of a file in bytes and the SHA-256 of its content; None if there is none."""
        with stored("read", name):
            return size_and_digest(name)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Makes or replaces a file, at once."""
        with stored("write", name):
            path = Path(name)
            durable.make_folder(str(path.parent))
            temporary = path.with_name(f".{path.name}.tmp")
            temporary.write_bytes(content)
            durable.replace(str(temporary), name)


@attrs.frozen
class LocalCheckpoint(CheckpointFolder):
    """The checkpoint of a run in process."""

    @classmethod
    def of(cls, path: str) -> LocalCheckpoint:
        """At a path of this machine. Raises `ValueError` for another one."""
        if is_remote(path):
            raise ValueError(
                f"a run in process has its checkpoint on this machine, not at {path!r}, as it is a database: give a "
                "folder on a disk, or run on Spark, which can keep one there"
            )
        return cls(absolute(path))

    @property
    def files(self) -> LocalFiles:
        """Reads and writes there."""
        return LocalFiles()

    @property
    def has_batches(self) -> bool:
        """Whether there is a journal."""
        return os.path.exists(self._journal)

    @property
    def _journal(self) -> str:
        return self.at("journal.sqlite")

    def journal(self, manifest: dict[str, Any]) -> Journal:
        """That of the run with this manifest; a new one before it has begun."""
        with stored("write", self.path):
            durable.make_folder(self.at())
        return Journal.open(self._journal, self.damaged, new=not manifest["begun"])
