"""What a run keeps beside Spark's checkpoint: its manifest, control files and dead letters; on any file system."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import uri
from beamlike.logical.overlaps import require_outside
from beamlike.plan.manifest import Remedy, describe, differences, new_manifest, parse, refusal
from beamlike.plan.model import Plan
from beamlike.runtime.dead_letter_limit import Counted
from beamlike.spark.checkpoint.hadoop import HadoopFiles, stored
from beamlike.spark.checkpoint.orders import EndSources, Order, PlayStep, order_text
from beamlike.spark.checkpoint.syncing import SparkFiles
from beamlike.system.locks import InUse, Lock
from beamlike.system.path_names import is_remote
from stages.facts import from_json, to_json

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FILES = (
    *("metadata", "offsets/0", "commits/0", "sources/0/0", "state/0/0/1.zip", "state/0/0/1.changelog"),
    *("beamlike/manifest.json", "beamlike/records.jsonl", "beamlike/rows/rows/0.parquet"),
    "beamlike/dead-letters/part-0-000000-000.jsonl",
)
"""Some of a checkpoint, of each kind that readers may take for theirs."""
_FIRST_TIME = 1_000_000_000  # of the steps of test streams, in seconds: long past


@attrs.frozen
class Checkpoint:
    """A folder, on a file system that Hadoop knows."""

    session: SparkSession
    path: str

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's file system."""
        return not is_remote(self.path)

    @property
    def files(self) -> HadoopFiles:
        """Reads and writes there."""
        return HadoopFiles(self.session)

    def at(self, *names: str) -> str:
        """A path below the project's own folder in the checkpoint."""
        return self.of_spark("beamlike", *names)

    def of_spark(self, *names: str) -> str:
        """A path below the checkpoint."""
        return "/".join([self.path.rstrip("/"), *names])

    def damaged(self, what: str) -> CheckpointError:
        """The error for something in it that is not as it was written."""
        return CheckpointError(
            f"the checkpoint {self.path} is damaged: {what}; put that back from a copy of the checkpoint, or restore a "
            "savepoint, or start anew with another checkpoint"
        )

    def prepare(self) -> None:
        """Settings of the session for a query on it, unless the user has made them.

        On a local file system, Spark's default starts a process, readlink, for each path that it looks at: some
        fifty in a small batch. The other one renames files as atomically there.
        """
        if self.is_local and self.session.conf.get(_MANAGER, None) is None:
            self.session.conf.set(_MANAGER, _LOCAL_MANAGER)

    def syncing(self) -> Callable[[], object]:
        """What is called before and after each batch of a query: what Spark has written on this machine stays then."""
        if not self.is_local:
            return lambda: None
        spark = SparkFiles(self.path)

        def sync() -> None:
            with stored("write", self.path):
                spark.sync()

        return sync

    def lock(self, what: str) -> Lock:
        """Its lock, which `what` holds from now on. Raises `CheckpointError`, which says who has it.

        On an object store nothing is locked: there, of two queries that work on one checkpoint, Spark fails the one
        that comes second to note a batch as done.
        """
        try:
            with stored("write", self.path):
                return Lock.take(self.at("lock"), what)
        except InUse as error:
            raise CheckpointError(
                f"the checkpoint {self.path} is in use by {error}; stop that first, or wait for its end"
            ) from None

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the run that this checkpoint is of; None for a new one.

        Raises `CheckpointError` where batches were planned but there is no manifest, or not a whole one: taken for a
        new one, it would do its last batch again under another name.
        """
        name = self.at("manifest.json")
        text = self.files.latest(name)
        if text is not None:
            return parse(text, f"the checkpoint {self.path}")
        if not self.files.names(self.of_spark("offsets")):
            return None
        raise CheckpointError(
            f"the checkpoint {self.path} has lost its manifest, {name}: put it back from a copy, or start anew with "
            "another checkpoint"
        )

    def open(self, described: Mapping[str, Any], *, draining: bool) -> dict[str, Any]:
        """The manifest of this plan: the one that is there, if the plan may go on with it, or a new one.

        Raises `CheckpointError`, which names each stage, what differs, and what can be done.
        """
        saved = self.manifest() or new_manifest(described)
        _require_fitting(saved, described, self.path, draining=draining)
        manifest = {**saved, **described, "whole": False}
        self.save(manifest)
        return manifest

    def save(self, manifest: Mapping[str, Any]) -> None:
        self.files.replace(self.at("manifest.json"), json.dumps(manifest, indent=1, sort_keys=True))

    def tally(self) -> Counted:
        """What the runs on it have counted of dead letters so far; nothing for a new one."""
        text = self.files.latest(self.at("tally.json"))
        return from_json(Counted, text) if text else Counted()

    def keep_tally(self, counted: Counted) -> None:
        """What they have counted up to now, whether Spark runs the last batch again or not."""
        self.files.replace(self.at("tally.json"), to_json(counted).decode())

    def control(self) -> str:
        """The folder of control files, which exists after this."""
        directory = uri(self.at("control"))
        self.files.make(directory)
        return directory

    def end(self, sources: tuple[str, ...]) -> None:
        """Says that these sources are at their end: the next batch closes what only they held open."""
        self.files.write(f"{self.control()}/end.json", order_text(EndSources(tuple(sorted(sources)))))

    def play(self, steps: int, sources: tuple[str, ...], digest: str) -> None:
        """Has the steps of these test streams played, a batch each, and then their end.

        Spark takes control files in order of their times, so these are a second apart; where a file system keeps
        no times that are given, in order of their names. Raises `CheckpointError` where the checkpoint is of other
        streams.
        """
        # A hidden name, which Spark does not read.
        done = f"{self.control()}/_steps"
        saved = self.files.read(done)
        if saved not in (None, digest):
            raise CheckpointError(
                f"the test streams are not those of the checkpoint {self.path}; start anew with another checkpoint"
            )
        if saved is None:
            orders: list[Order] = [*map(PlayStep, range(steps)), EndSources(tuple(sorted(sources)))]
            for number, order in enumerate(orders):
                name = f"{self.control()}/{number:06d}.json"
                self.files.write(name, order_text(order), _FIRST_TIME + number)
            self.files.write(done, digest)


def refuse_early(plan: Plan, path: str, shards: int | None, *, draining: bool) -> None:
    """Raises `PlanError` for a place that a source reads; and what `Checkpoint.open` would, before there is a session,
    where the manifest lies on this machine.
    """
    sources = {name: source.source for name, source in plan.sources.items()}
    require_outside(sources, path, _FILES, "the checkpoint of the run; give it a folder beside")
    if is_remote(path):
        return
    try:
        text = Path(path, "beamlike", "manifest.json").read_text()
    except (OSError, ValueError):
        return  # a new one, or one that cannot be read, about which more is known later
    saved = parse(text, f"the checkpoint {path}")
    _require_fitting(saved, describe(plan, shards or saved["shards"]), path, draining=draining)


def _require_fitting(
    saved: Mapping[str, Any], described: Mapping[str, Any], path: str, *, draining: bool
) -> None:
    """Raises `CheckpointError` where a plan cannot go on with the checkpoint that has this manifest."""
    if saved["restoring"]:
        raise CheckpointError(
            f"the checkpoint {path} was not restored to its end; remove it, and restore the savepoint again"
        )
    if found := differences(saved, described):
        made = f"beamlike savepoint {path} SAVEPOINT"
        put_back = f"beamlike restore SAVEPOINT CHECKPOINT MODULE:PIPELINE --shards {described['shards']}"
        remedies = {Remedy.RESTORE: f"{Remedy.RESTORE}: {made}, then {put_back}"}
        raise CheckpointError(refusal(found, f"the checkpoint {path}", remedies))
    if saved["drained"]:
        raise CheckpointError(
            f"the run of the checkpoint {path} was drained: all its windows are closed, so whatever "
            "came now would be dropped as late; start anew with another checkpoint"
        )
    if saved["draining"] and not draining:
        raise CheckpointError(
            f"the run of the checkpoint {path} was stopped while it was drained; finish that with drain=True"
        )
