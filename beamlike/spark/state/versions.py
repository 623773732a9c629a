"""The versions of the state: the heads of all shards after a batch. The driver publishes one with each batch.

A batch begins with the version of the batch before, also if it is replayed. Tasks only write files that no version has
yet; a version that a batch has published counts when Spark has committed the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.runtime.batch.messages import StateMessage
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from beamlike.spark.checkpoint.checkpoint import STATE, VERSIONS
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.state.index import Head, StateIndex
from beamlike.spark.state.storage import state_files
from beamlike.system import durable
from beamlike.system.path_names import is_remote
from beamlike.system.seals import sealed, unsealed

_FILES: Final = ArrowFiles()
_SWEEP: Final = 1_000
"""The number of batches after which the driver looks for files that no version has."""

Heads = Mapping[tuple[int, int], Head]
"""The heads by operator and shard."""


@attrs.frozen
class StateVersion:
    """The state after a batch. `unused` has the files that the version before needed and this one does not."""

    heads: Heads = attrs.field(factory=dict)
    unused: tuple[str, ...] = ()

    def to_json(self, batch: int) -> str:
        heads = {f"{operator}/{shard}": [*head] for (operator, shard), head in self.heads.items()}
        return json.dumps(sealed({"heads": heads, "unused": [*self.unused]}, _place(batch)))

    @classmethod
    def parse(cls, text: str, batch: int, name: str) -> StateVersion:
        facts = unsealed(text, _place(batch), name)
        heads = {_numbers(key): Head(*head) for key, head in facts["heads"].items()}
        return cls(heads, tuple(facts["unused"]))


def _numbers(key: str) -> tuple[int, int]:
    operator, shard = map(int, key.split("/"))
    return operator, shard


def _version(folder: str, batch: int) -> str:
    return f"{folder}/{VERSIONS}/{batch:09d}.json"


def _place(batch: int) -> str:
    return _version(STATE, batch)


def data_folder(folder: str) -> str:
    """Returns the folder with the state files."""
    return f"{folder}/data"


def version_after(folder: str, batch: int) -> StateVersion:
    """Reads the version after a batch; before the first batch it is empty. Raises `CheckpointError` if it is gone."""
    if batch < 0:
        return StateVersion()
    name = _version(folder, batch)
    text = _FILES.read(name)
    if text is None:
        raise CheckpointError(
            f"the version {name} of the state is gone: put it back from a copy, restore a savepoint, or start again "
            "with another checkpoint"
        )
    return StateVersion.parse(text, batch, name)


def _batches(folder: str) -> list[int]:
    """Returns the batches of the versions that are there, in order."""
    return sorted(int(name.removesuffix(".json")) for name in _FILES.names(f"{folder}/{VERSIONS}"))


@attrs.define
class StatePublisher:
    """Publishes the versions of a run, and removes the files that only old versions need.

    The versions of the last `kept` batches remain. `may_replay`: an earlier run may have left files of the first batch
    that no version has.
    """

    folder: str
    kept: int
    may_replay: bool = True
    files: StoredFiles = _FILES
    _versions: dict[int, StateVersion] = attrs.field(factory=dict, init=False)

    def publish(self, batch: int, changes: Iterable[StateMessage]) -> None:
        """Stores the version after a batch, in which tasks have made these changes."""
        before = self._version(batch - 1)
        heads, unused = {**before.heads}, list[str]()
        for change in changes:
            heads[change.operator, change.shard] = Head(change.head, change.size)
            unused += change.unused
        version = StateVersion(heads, tuple(unused))
        if not is_remote(self.folder):
            durable.sync_folder(data_folder(self.folder))
        self.files.write(_version(self.folder, batch), version.to_json(batch))
        self._versions[batch] = version
        if self.may_replay or batch % _SWEEP == 0:
            self._sweep(batch)
        else:
            self._remove(batch - self.kept)
        self.may_replay = False

    def _version(self, batch: int) -> StateVersion:
        if batch not in self._versions:
            self._versions[batch] = version_after(self.folder, batch)
        return self._versions[batch]

    def _remove(self, batch: int) -> None:
        """Removes an old version, and the files that only it needs."""
        is_there = self._versions.pop(batch, None) is not None  # this process has published or read it
        name = _version(self.folder, batch)
        if is_there or (batch >= 0 and self.files.read(name) is not None):
            unused = self._version(batch + 1).unused
            self.files.remove_files([*(f"{data_folder(self.folder)}/{one}" for one in unused), name])

    def _sweep(self, batch: int) -> None:
        """Removes all old versions, and the files of attempts that do not count."""
        batches = _batches(self.folder)
        for old in batches:
            if old <= batch - self.kept:
                self._remove(old)
        retained = [one for one in batches if batch - self.kept < one <= batch]
        needed = {name for one in retained[1:] for name in self._version(one).unused}
        files = state_files(data_folder(self.folder))
        for head in self._version(batch).heads.values():
            needed |= StateIndex.load(head, files).sizes.keys()
        folder = data_folder(self.folder)
        # Tasks of an earlier driver may still write files of this batch. They are found the next time.
        names = {name for name in self.files.names(folder) if _batch_of(name) <= batch}
        self.files.remove_files(f"{folder}/{name}" for name in sorted(names - needed))


def _batch_of(name: str) -> int:
    return int(name.split("-")[2])
