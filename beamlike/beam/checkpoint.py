"""The checkpoint of a run: after each round, a journal on this machine has all that the run needs to continue.

    state and timers of DoFns, groupings       the tables of their stages, with the journal as the store
    pending elements and residuals             a value for each node
    content of side inputs                     a value for each chunk
    position in a TestStream, metrics          a value each

An element that is on disk is processed again only if the round that processes it is not. So no source needs a position:
what remains of the input of a splittable function is a pending element, too.
"""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final, Protocol, Self

import attrs

from beamlike.errors import CheckpointError
from beamlike.plan.manifest import MANIFEST
from beamlike.runtime.loop.checkpoint import LocalCheckpoint
from beamlike.runtime.loop.journal import Journal
from beamlike.runtime.loop.logged_batch import LoggedBatch
from stages.state.store import DictStore, StateStore

PIPELINE: Final = "beam.json"
"""The file with the description of the pipeline."""
_RUN: Final = "@beam"
"""The name under which the values of a run are stored, where others have the name of a stage."""
_MARSHAL: Final = 4
"""The format of values, which all versions of Python can read."""


class Part(Protocol):
    """A part of a run that a checkpoint contains, besides the state of stages."""

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields the values that may have changed since the last call, with their names within the part."""

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from all values that have been saved."""


class NoCheckpoint:
    """The absence of a checkpoint: state is in memory."""

    begun = False

    def __init__(self) -> None:
        self.store: StateStore = DictStore()

    def follow(self, parts: Mapping[str, Part], pipeline: Mapping[str, Any]) -> None:
        """Does nothing."""

    def commit(self) -> None:
        """Does nothing."""


@attrs.define(eq=False)
class Checkpoint(NoCheckpoint):
    """The checkpoint of a run.

    Attributes:
        folder: The folder.
        store: The journal, which is the store of all stages.
        pipeline: The description of the pipeline of earlier runs; None if there are none.
    """

    folder: LocalCheckpoint
    store: Journal
    pipeline: dict[str, Any] | None
    _parts: Mapping[str, Part] = attrs.field(factory=dict, init=False)
    _digests: dict[str, bytes] = attrs.field(factory=dict, init=False)
    """The digests of the stored values of all parts."""

    @classmethod
    @contextmanager
    def opened(cls, path: str | os.PathLike[str]) -> Iterator[Self]:
        """Opens a checkpoint, and locks it until the end of the `with` block.

        Raises `CheckpointError` if it is in use, damaged, or of a pipeline that is not of Beam.
        """
        folder = LocalCheckpoint.of(os.fspath(path))
        lock = folder.lock("a run of a Beam pipeline")
        try:
            if folder.files.latest(folder.at(MANIFEST)) is not None:
                raise CheckpointError(
                    f"the checkpoint {folder.path} is of a pipeline of beamlike's own interface; a Beam pipeline "
                    "needs a checkpoint of its own"
                )
            pipeline = folder.kept(PIPELINE)
            journal = folder.journal({"begun": pipeline is not None})
            try:
                yield cls(folder, journal, pipeline)
            finally:
                journal.close()
        finally:
            lock.release()

    @property
    def begun(self) -> bool:  # type: ignore[override]
        """True if an earlier run has begun."""
        return self.pipeline is not None

    def follow(self, parts: Mapping[str, Part], pipeline: Mapping[str, Any]) -> None:
        """Continues the parts of a run from the last commit, or begins.

        Raises `CheckpointError` if this pipeline differs from that of earlier runs.
        """
        self._parts = parts
        if self.pipeline is None:
            self.folder.keep(PIPELINE, pipeline)
            return
        if (found := difference(self.pipeline, pipeline)) is not None:
            raise CheckpointError(
                f"the checkpoint {self.folder.path} is of another pipeline: {found}; run the pipeline that wrote "
                "it, or start again with another checkpoint"
            )
        if self.store.last is None:
            return
        for name, part in parts.items():
            part.resume({key: marshal.loads(value) for key, value in self._stored(name)})

    def _stored(self, part: str) -> Iterator[tuple[str, bytes]]:
        for key in sorted(self.store.keys(_RUN)):
            owner, _, name = key.partition("\n")
            value = self.store.get(_RUN, key)
            if owner == part and value is not None:
                yield name, value

    def commit(self) -> None:
        """Stores everything that has changed since the last commit in one transaction, and waits for the disk."""
        for name, part in self._parts.items():
            for key, value in part.saved():
                self._put(f"{name}\n{key}", marshal.dumps(value, _MARSHAL))
        if self.store.changed:
            number = 0 if self.store.last is None else self.store.last[0].number + 1
            now = time.time_ns() // 1000
            self.store.commit(LoggedBatch(number, now, now, {}))
            self.store.settle()

    def _put(self, key: str, value: bytes) -> None:
        if self._digests.get(key) != (now := blake2b(value, digest_size=16).digest()):
            self._digests[key] = now
            self.store.put(_RUN, key, value)


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Returns the first difference of two descriptions of pipelines for people; None if they are equal."""
    for one, other, what in ((before, now, "had {}, which is gone"), (now, before, "did not have {}")):
        if missing := sorted({*one} - {*other}):
            return "it " + what.format(missing[-1])
    changed = sorted(name for name in before if before[name] != now[name])
    return next((f"{name} was {before[name]}, and is {now[name]}" for name in changed), None)
