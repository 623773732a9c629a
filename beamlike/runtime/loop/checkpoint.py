"""The checkpoint of a run in process: a folder on this machine, with a journal besides the files that all
runners have.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import absolute
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.journal_reading import journal_to_read
from beamlike.runtime.run.checkpoint import CheckpointFolder
from beamlike.system import durable
from beamlike.system.file_digests import files_below, size_and_digest
from beamlike.system.path_names import is_remote


@attrs.frozen
class LocalFiles:
    """Access to small files on this machine."""

    def latest(self, name: str) -> str | None:
        return self.read(name)

    def read(self, name: str) -> str | None:
        try:
            content = self.read_bytes(name)
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{name} is damaged, it is no text: put it back from a copy") from None

    def replace(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def read_bytes(self, name: str) -> bytes | None:
        with stored("read", name):
            return Path(name).read_bytes() if os.path.exists(name) else None

    def tree(self, folder: str) -> list[str]:
        with stored("read", folder):
            return files_below(folder)

    def size_and_digest(self, name: str) -> tuple[int, str] | None:
        with stored("read", name):
            return size_and_digest(name)

    def remove(self, folder: str) -> None:
        with stored("write", folder):
            os.remove(folder)

    def write_bytes(self, name: str, content: bytes) -> None:
        with stored("write", name):
            durable.make_folder(os.path.dirname(name))
            durable.write(name, content)


@attrs.frozen
class LocalCheckpoint(CheckpointFolder):
    """The checkpoint of a run in process."""

    @classmethod
    def of(cls, path: str) -> LocalCheckpoint:
        """Returns the checkpoint at a path on this machine. Raises `ValueError` for another path."""
        if is_remote(path):
            raise ValueError(
                f"a run in process has its checkpoint on this machine, not at {path!r}, as it is a database: give a "
                "folder on a disk, or run on Spark, which can keep one there"
            )
        return cls(absolute(path))

    @property
    def files(self) -> LocalFiles:
        return LocalFiles()

    @property
    def has_batches(self) -> bool:
        """True if the journal exists."""
        return os.path.exists(self._journal)

    @property
    def _journal(self) -> str:
        return self.at("journal.sqlite")

    def journal(self, manifest: dict[str, Any]) -> Journal:
        """Opens the journal of the run with this manifest, or creates it if the run has not begun."""
        with stored("write", self.path):
            durable.make_folder(self.at())
        return Journal.open(self._journal, self.damaged, new=not manifest["begun"])

    def journal_to_read(self) -> AbstractContextManager[Journal]:
        """Opens the journal of a run that is locked, and does not change the checkpoint."""
        return journal_to_read(self._journal, self.damaged)
