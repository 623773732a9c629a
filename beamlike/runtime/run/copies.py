"""Detects older copies of a checkpoint by sinks that already have later batches, and continues a run from such a copy.

A sink skips a batch that it already has, by the id of the run and the number of the batch. A run on an older copy of
the checkpoint has the same id, and gives the same numbers to other rows, which the sink would skip:

  batch                0    1    2    3    4
  the sink             x    x    x    x    x      latest_batch: 4
  the older copy       x    x                     begun: 1, so batches 2 to 4 would be skipped, with new rows
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import attrs

from beamlike.errors import CheckpointError, PlanError, SinkError
from beamlike.expressions.describe import describe
from beamlike.io.sinks import RecordsBatches, records_batches
from beamlike.records.cut import cut_after, last_batch, rows_given
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.runtime.batch.writing import what_failed
from beamlike.runtime.run.checkpoint import CheckpointFolder
from beamlike.runtime.run.run_sinks import RunSinks
from beamlike.runtime.run.sinks import hold_sinks

_LOG = logging.getLogger("beamlike")
AGAIN: Final = "again"
"""The fact of a manifest with the batches that were repeated. An earlier attempt may have written other rows of them.
"""
COPIED: Final = (
    "it has a copy of this checkpoint, and only one may continue: stop that run, or give this one up"
)
"""The remedy if another run with the same id writes to the same target."""


@attrs.frozen
class Reached:
    """The numbers of the last batch that a checkpoint has begun, and of the last one that is done; -1 for none."""

    begun: int
    done: int


def require_run(
    manifest: Mapping[str, Any] | None, checkpoint: CheckpointFolder, continue_as: str | None
) -> None:
    """Raises `CheckpointError` if `continue_as` is given for a checkpoint without a run."""
    if manifest is None and continue_as is not None:
        raise CheckpointError(
            f"continue_as={continue_as!r}: the checkpoint {checkpoint.path} has no run to continue; leave that out"
        )


@attrs.frozen
class CopyGuard:
    """A comparison of a run's sinks with its checkpoint, before the run reads anything.

    `records` is the file of the run's records. `records_apart`: it is not in the checkpoint.
    """

    sinks: RunSinks
    checkpoint: CheckpointFolder
    records: str
    records_apart: bool = False

    def admit(
        self, manifest: dict[str, Any], reached: Reached, continue_as: str | None, held: ExitStack
    ) -> dict[str, Any]:
        """Returns the manifest with which the run may continue. With `continue_as`, that is a run with this id.

        Until `held` is closed, no other run with the id can write to the sinks. Raises `SinkInUse` if one does,
        `CheckpointError` if a sink has later batches, or already has batches of a run with the new id, and `SinkError`
        if a sink cannot be inspected.
        """
        run = manifest["run"] if continue_as is None else continue_as
        held.enter_context(hold_sinks(self.sinks.plan, run, COPIED))
        if run != manifest["run"]:
            return self._renamed(manifest, reached, run)
        if manifest["begun"]:
            again = self._require_newest(manifest, reached)
            if again != manifest.get(AGAIN, []):
                manifest = {**manifest, AGAIN: again}
                self.checkpoint.save(manifest)
        elif "after" in manifest:
            self._log_later(manifest["after"])
        return manifest

    def _require_newest(self, manifest: Mapping[str, Any], reached: Reached) -> list[int]:
        """Returns the repeated batches that a later start must know, which are those that are the last of some sink."""
        run, again = manifest["run"], {*manifest.get(AGAIN, ())}
        found = [(_named(name, sink), latest) for name, sink, latest in self._known(run)]
        if self.records_apart and (recorded := last_batch(self.records)) is not None:
            found.append((f"the file of records {self.records}", recorded))
        for what, latest in found:
            if latest > reached.begun:
                knows = f"knows of batch {reached.begun}" if reached.begun >= 0 else "has begun no batch"
                raise self._is_copy(f"{what} has batch {latest} of the run {run!r}", knows)
            # A batch that may be replayed may have written rows only in an earlier attempt.
            may_be_empty = latest > reached.done or latest in again
            if not may_be_empty and rows_given(self.records, latest) == 0:
                raise self._is_copy(
                    f"{what} has rows of batch {latest} of the run {run!r}", "wrote none in it"
                )
        again &= {latest for _, latest in found}
        return sorted(again | {reached.begun} if reached.begun > reached.done else again)

    def _is_copy(self, found: str, known: str) -> CheckpointError:
        return CheckpointError(
            f"{found}, but the checkpoint {self.checkpoint.path} {known}: it is an older copy, or a copy of it has run "
            "since. If the checkpoint that wrote the rows still exists, continue with that one. Otherwise "
            "continue from this one as a run of another id: continue_as='NEW' of the runner, or --continue-as NEW. "
            "That removes the rows of later batches from sinks that can, and logs which rows are doubled in others"
        )

    def _renamed(self, manifest: Mapping[str, Any], reached: Reached, new: str) -> dict[str, Any]:
        for name, sink, latest in self._known(new):
            raise CheckpointError(
                f"continue_as={new!r}: {_named(name, sink)} has batch {latest} of a run of that id already; give "
                "another id"
            )
        self._cut(manifest["run"], reached.done)
        if "after" in manifest:  # a savepoint was restored in this checkpoint
            self._cut(manifest["after"]["run"], manifest["after"]["batch"])
        if self.records_apart:
            cut_after(self.records, reached.done)
        renamed = {fact: value for fact, value in manifest.items() if fact != "after"} | {"run": new}
        self.checkpoint.save(renamed)
        return renamed

    def _cut(self, run: str, batch: int) -> None:
        """Removes later batches of an earlier run from the sinks, and logs which rows cannot be removed."""
        with hold_sinks(self.sinks.plan, run, COPIED):
            for name, sink in self.sinks.sinks.items():
                if not records_batches(sink):
                    text = "%s does not know its batches: rows of the run %r after batch %d are written once more"
                    _LOG.warning(text, _named(name, sink), run, batch)
                    continue
                with _asking(name, sink):
                    latest, stays = sink.latest_batch(run), sink.cut(run, batch)
                if latest is not None and latest > batch:
                    text = "%s has %s of the run %r, which this run repeats: %s"
                    stays = stays or "their rows were removed"
                    _LOG.warning(text, _named(name, sink), _batches(batch, latest), run, stays)

    def _log_later(self, after: Mapping[str, Any]) -> None:
        """Logs that this run writes rows again that the saved run wrote after its savepoint."""
        run, batch = after["run"], after["batch"]
        for name, sink, latest in self._known(run):
            if latest > batch:
                _LOG.warning(
                    "%s has %s of the run %r, which continued after the savepoint: this run repeats them, so rows are "
                    "doubled, except in a table that replaces them by key. A run with continue_as= removes them from "
                    "sinks that can do it",
                    *(_named(name, sink), _batches(batch, latest), run),
                )

    def _known(self, run: str) -> Iterator[tuple[str, RecordsBatches, int]]:
        """Yields the sinks that have batches of this run, each with its last batch."""
        for name, sink in self.sinks.sinks.items():
            if records_batches(sink):
                with _asking(name, sink):
                    latest = sink.latest_batch(run)
                if latest is not None:
                    yield name, sink, latest


def _named(name: str, sink: object) -> str:
    what = "the folder of dead letters" if name == UNCLAIMED else f"sink {name!r}"
    return f"{what}, {describe(sink)},"


def _batches(done: int, latest: int) -> str:
    """Names the batches after `done` up to `latest`, as text."""
    return f"batch {latest}" if latest == done + 1 else f"batches {done + 1} to {latest}"


@contextmanager
def _asking(name: str, sink: object) -> Iterator[None]:
    """Converts errors of inspecting a sink to `SinkError`."""
    try:
        yield
    except (PlanError, SinkError):
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be inspected: {what_failed(error)}") from error
