"""The checkpoint of a run on Spark, on any file system: its manifest, its control files and its dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
from pyspark.sql import SparkSession

from beamlike.errors import CheckpointError
from beamlike.io.files.access import access_to
from beamlike.io.files.paths import uri
from beamlike.logical.overlaps import require_outside
from beamlike.plan.manifest import WITH_FILES, Store
from beamlike.plan.matching import Fit, fitted, require_told_apart
from beamlike.plan.model import Plan
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.run.checkpoint import CheckpointFolder, require_fitting, saved_manifest
from beamlike.runtime.run.dead_letter_limit import Counted
from beamlike.runtime.run.digests import other_streams
from beamlike.spark.checkpoint.commands import ControlCommand, EndSources, PlayStep, command_text
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.checkpoint.s3 import S3Files, follow
from beamlike.spark.checkpoint.storage import files_of
from beamlike.spark.checkpoint.syncing import SparkFiles
from beamlike.spark.versions import (
    has_row_operators,
    has_state_store,
    renaming_file_manager,
    require_state_store,
)
from beamlike.system.path_names import is_remote
from beamlike.system.seals import sealed, unsealed
from stages.facts import from_facts, to_facts

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILES = (
    *("metadata", "offsets/0", "commits/0", "sources/0/0", "state/0/0/1.zip", "state/0/0/1.changelog"),
    *("beamlike/state/versions/000000000.json", "beamlike/state/data/0-0-000000000-0123456789ab"),
    *("beamlike/manifest.json", "beamlike/records.jsonl", "beamlike/rows/rows/0.parquet"),
    "beamlike/dead-letters/part-0-000000-000.jsonl",
)
"""Examples of the files of a checkpoint, one of each kind that a source could read by mistake."""
_TALLY = "tally.json"
_ENDED = "_ended.json"
_STEPS = "_steps.json"
END = "end.json"
STATE: Final = "state"
VERSIONS: Final = "versions"
_TICK = "tick-"
_TICKS_KEPT = 2  # batches after which no run needs a command any more
# The time of the first test-stream step in seconds; any time in the past would do.
_FIRST_TIME = 1_000_000_000


@attrs.frozen
class Checkpoint(CheckpointFolder):
    """The checkpoint of a query: a folder on any storage that Spark supports.

    Without a session, only its files can be read. `store` is the store that the user asks for, for the state of the
    run. `direct` has the files of a run that this process accesses itself, without Spark's Java.
    """

    session: SparkSession
    path: str
    store: Store | None = attrs.field(default=None, kw_only=True)
    direct: StoredFiles | None = attrs.field(default=None, kw_only=True)

    @classmethod
    def of(cls, session: SparkSession, path: str, store: Store | None) -> Checkpoint:
        """Returns the checkpoint of a run. If it is in S3, pyarrow uses the settings of the session."""
        follow(session, path)
        return cls(session, path, store=store, direct=S3Files(path, session) if access_to(path) else None)

    @property
    def is_local(self) -> bool:
        """True if the checkpoint is on this machine's file system."""
        return not is_remote(self.path)

    @property
    def files(self) -> StoredFiles:
        return self.direct or files_of(self.session)

    @property
    def has_batches(self) -> bool:
        """True if Spark's offset log has a batch."""
        return bool(self.files.names(self.of_spark("offsets")))

    @property
    def new_store(self) -> Store:
        """The store of the state of a new run: the one that the user asks for, or the default."""
        # The settings of other storage are those of Hadoop, which tasks have only where pyarrow can follow them.
        in_files = self.is_local or not has_state_store() or access_to(self.path) is not None
        return self.store or (Store.FILES if in_files else Store.SPARK)

    def new_manifest(self, described: Mapping[str, Any]) -> dict[str, Any]:
        levels = described["levels"]
        # With one shard, all levels are in one operator, since no row goes to another shard.
        operators = min(levels, 1) if described["shards"] == 1 else levels
        made = {**super().new_manifest(described), "operators": operators, "store": self.new_store}
        if self.new_store == Store.FILES:
            return {**made, "rows": False, "version": WITH_FILES}
        return {**made, "rows": has_row_operators()}

    def open(self, fit: Fit, *, draining: bool) -> dict[str, Any]:
        require_store(self.manifest(), self.store, self.path)
        manifest = super().open(fit, draining=draining)
        self.files.make(self.control)
        return manifest

    @property
    def state(self) -> str:
        """The folder of the state, if it is in files."""
        return self.at(STATE)

    def of_spark(self, *names: str) -> str:
        """Returns a path in the checkpoint."""
        return "/".join([self.path.rstrip("/"), *names])

    def keep_code(self, archive: Path) -> str:
        """Stores the code that workers import, instead of that of earlier runs. Returns its path."""
        files, folder = self.files, self.at("code")
        files.remove_files(f"{folder}/{name}" for name in files.names(folder) if name != archive.name)
        if archive.name not in files.names(folder):
            files.make(folder)
            files.write_bytes(f"{folder}/{archive.name}", archive.read_bytes())
        return f"{folder}/{archive.name}"

    @contextmanager
    def probe(self) -> Iterator[str]:
        """Yields a new file, which is removed afterwards. Empty for other storage, which workers reach with Hadoop's
        settings.
        """
        file = self.at(f"reached-{uuid4().hex}") if self.is_local else ""
        if file:
            self.files.write(file, "")
        try:
            yield file
        finally:
            self.files.remove_files([file] if file else [])

    def prepare(self) -> None:
        """Sets options of the session for a query on this checkpoint, unless the user has set them.

        On a local file system, Spark's default starts a process, readlink, for each path: some fifty in a small batch.
        The manager that is set here renames files just as atomically on a local file system.
        """
        if self.is_local and self.session.conf.get(_MANAGER, None) is None:
            self.session.conf.set(_MANAGER, renaming_file_manager(self.session.version))

    def syncing(self) -> Callable[[], object]:
        """Returns a function to call before and after each batch. It syncs the files that Spark has written on this
        machine.
        """
        if not self.is_local:
            return lambda: None
        spark = SparkFiles(self.path)

        def sync() -> None:
            with stored("write", self.path):
                spark.sync()

        return sync

    def tally(self) -> Counted:
        """Returns the counts of rows and dead letters over all runs so far. They are empty for a new checkpoint."""
        facts = self.kept(_TALLY)
        try:
            return Counted() if facts is None else from_facts(Counted, facts)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise self.damaged(f"{self.at(_TALLY)} is not what was written") from None

    def keep_tally(self, counted: Counted) -> None:
        """Stores the counts of rows and dead letters over all runs. A replay of the last batch replaces that batch's
        counts.
        """
        self.keep(_TALLY, to_facts(counted))

    @property
    def control(self) -> str:
        """The folder of control files."""
        return uri(self.at("control"))

    def end(self, sources: tuple[str, ...]) -> None:
        """Commands the end of these sources. The next batch then closes all windows that only they kept open."""
        self._command(END, EndSources(tuple(sorted(sources))))

    def end_at_once(self, sources: Iterable[str]) -> None:
        """Commands the end of these sources after the first batch, unless an earlier run did so."""
        before = self._ended()
        new = sorted({*sources} - {*before})
        if new:
            self._command(f"whole-{len(before):06d}.json", EndSources(tuple(new)), _FIRST_TIME)
            self._keep_control(_ENDED, {"ended": [*before, *new]})

    def tick(self, done: int, over: Iterable[str] = (), *, after_end: bool = False) -> None:
        """Commands a batch, even without input. `done` is the last committed batch.

        The command ends only sources that are `over`, so that new stages know of their end. It has the time of the
        other commands, because Spark ignores files that are much older than a file it has already seen; `after_end`,
        that is the time of the command that ended all sources. Commands of earlier runs, whose batches will not be
        replayed, are removed.
        """
        ticks = [name for name in self.files.names(self.control) if name.startswith(_TICK)]
        old = [
            name for name in ticks if int(name.removeprefix(_TICK).partition(".")[0]) + _TICKS_KEPT <= done
        ]
        self.files.remove_files(f"{self.control}/{name}" for name in old)
        self._write_tick(done + 1, EndSources(tuple(over)), None if after_end else _FIRST_TIME)

    def tick_again(self, done: int) -> None:
        """Commands a batch, like `tick`, in a run that has commanded the batches before."""
        if done >= _TICKS_KEPT:
            self.files.remove_files([f"{self.control}/{_tick(done - _TICKS_KEPT)}"])
        self._write_tick(done + 1, EndSources(()), _FIRST_TIME)

    def _write_tick(self, batch: int, order: ControlCommand, seconds: int | None) -> None:
        self._command(_tick(batch), order, seconds)

    def _command(self, name: str, order: ControlCommand, seconds: int | None = None) -> None:
        self.files.write(f"{self.control}/{name}", command_text(order, name), seconds)

    def has_ended(self, source: str) -> bool:
        """True if the end of the source was commanded in an earlier batch."""
        return source in self._ended()

    def _ended(self) -> list[str]:
        return list(self._kept_control(_ENDED).get("ended", []))

    def _keep_control(self, name: str, facts: Mapping[str, Any]) -> None:
        """Stores facts about the commands under a hidden name, which Spark does not read."""
        self.files.write(f"{self.control}/{name}", json.dumps(sealed(facts, f"control/{name}")))

    def _kept_control(self, name: str) -> dict[str, Any]:
        """Returns the facts that `_keep_control` stored; empty if there are none."""
        text = self.files.read(f"{self.control}/{name}")
        try:
            return {} if text is None else unsealed(text, f"control/{name}", f"{self.control}/{name}")
        except ValueError as error:
            raise self.damaged(str(error)) from None

    def play(self, steps: int, sources: tuple[str, ...], digest: str) -> None:
        """Commands the steps of these test streams, one per batch, and then their end.

        Spark reads control files in the order of their modification times, so these are a second apart. If the file
        system does not store such times, Spark uses the order of their names. Raises `CheckpointError` if the
        checkpoint belongs to other streams.
        """
        saved = self._kept_control(_STEPS).get("digest")
        if saved not in (None, digest):
            raise other_streams(self.path)
        if saved is None:
            orders: list[ControlCommand] = [*map(PlayStep, range(steps)), EndSources(tuple(sorted(sources)))]
            for number, order in enumerate(orders):
                self._command(f"{number:06d}.json", order, _FIRST_TIME + number)
            self._keep_control(_STEPS, {"digest": digest})


def _tick(batch: int) -> str:
    return f"{_TICK}{batch:09d}.json"


def require_available(store: Store | None) -> None:
    """Raises `UnsupportedSpark` if a user asks for a store that the installed Spark lacks."""
    if store == Store.SPARK:
        require_state_store("state='spark' has the state", "leave out state=, and the state is in files")


def require_readable_state(saved: Mapping[str, Any], path: str) -> None:
    """Raises `UnsupportedSpark` if the installed Spark lacks the store that has the state of a run."""
    if saved["store"] == Store.SPARK and saved["operators"]:
        remedy = "continue it on such a version, or take a savepoint there, which can be restored here"
        require_state_store(f"the checkpoint {path} has its state", remedy)


def require_store(saved: Mapping[str, Any] | None, store: Store | None, path: str) -> None:
    """Raises `CheckpointError` if the user asks for another store than that of the checkpoint's run, and
    `UnsupportedSpark` if the installed Spark lacks that store.
    """
    if saved is not None:
        require_readable_state(saved, path)
    if saved is not None and store not in (None, saved["store"]):
        names = {Store.SPARK: "in Spark's state store", Store.FILES: "in files"}
        raise CheckpointError(
            f"the checkpoint {path} has its state {names[Store(saved['store'])]}, and the run asks for state="
            f"{str(store)!r}: leave out state=, or take a savepoint, and restore it with state={str(store)!r}"
        )


def refuse_early(
    plan: Plan, path: str, shards: int | None, *, draining: bool, store: Store | None = None
) -> None:
    """Raises `PlanError` if a source reads the checkpoint, and the errors of `Checkpoint.open`, before a session
    starts.

    The manifest can be checked so early only if it is on this machine.
    """
    sources = {name: source.source for name, source in plan.sources.items()}
    require_outside(sources, path, _FILES, "the checkpoint of the run; give it a folder beside")
    require_told_apart(plan)
    if (saved := saved_manifest(path)) is not None:
        require_store(saved, store, path)
        require_fitting(saved, fitted(plan, saved, shards or saved["shards"]), path, draining=draining)
