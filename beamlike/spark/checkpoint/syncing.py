"""Syncs files that Spark writes in a local checkpoint without syncing them: its logs, and the state after
each batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import attrs

from beamlike.system import durable

_AT_ONCE: Final = 8  # a disk syncs several files at once in little more time than one


@attrs.define
class SparkFiles:
    """The files of a local checkpoint that Spark writes. Each call of `sync` syncs the files that are new since the
    last call.

    Two orders matter after a power failure. Output of tasks must not survive without the offsets of their batch, or the
    batch would be repeated with other input. The commit of a batch must not survive without the state after it.
    """

    checkpoint: str
    _known: dict[str, set[str]] = attrs.field(factory=dict, init=False)

    def sync(self) -> None:
        """Syncs the files and folders that are new since the last call; the first call syncs all."""
        there = dict(self._folders())
        self._sync_new(there)
        self._known = there

    def _folders(self) -> Iterator[tuple[str, set[str]]]:
        for folder, folders, names in os.walk(self.checkpoint):
            if folder == self.checkpoint:
                folders[:] = [name for name in folders if name != "beamlike"]
            yield folder, {*folders, *names}

    def _sync_new(self, there: dict[str, set[str]]) -> None:
        new = {folder: names - self._known.get(folder, set()) for folder, names in there.items()}
        files = [os.path.join(folder, name) for folder, names in new.items() for name in names]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(_sync, files))
            list(pool.map(_sync, [folder for folder, names in new.items() if names]))


def _sync(path: str) -> None:
    with suppress(FileNotFoundError):  # Spark has removed or renamed it
        if os.path.isdir(path):
            durable.sync_folder(path)
        else:
            durable.sync(path)
