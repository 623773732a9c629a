"""The files in which a run reports about itself: its records, its status file, and how it ended."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TypeAlias

import attrs

from beamlike.errors import CheckpointError, PlanError, RecordsInUse, RunError, SinkInUse
from beamlike.plan.model import Plan
from beamlike.plan.run_graph import describe_run
from beamlike.plan.stepped import steps_of
from beamlike.records.failure import Failure
from beamlike.records.graph import RunDescription
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.records.seen_keys import damaged_keys, keys_of
from beamlike.records.status_files import RunStatusFile, task_folder_of, with_tasks
from beamlike.records.writer import RECORDS_FILE, RecordWriter
from beamlike.runtime.run.checkpoint import OURS, saved_manifest
from beamlike.runtime.run.telemetry import FollowedRun, RunTelemetry, Telemetry
from beamlike.system.activity import ActivityTracker, Follower

Storing: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Creates a context manager around each write of records. It converts storage errors."""

_LOG = logging.getLogger("beamlike")
_OURS = re.compile(r".+-\d+(\.new)?")


@attrs.frozen(eq=False)
class RecordHooks:
    """Callbacks with which a runner takes part in the records of its run.

    `storing` converts errors of the records' storage; by default they become `RunError`. `later` receives tasks that
    must be done before the batch counts as done; by default it runs them at once. `settle` waits for these tasks.
    If `behind`, the record of a batch is such a task: it may be written only after the input of the batch is on disk.
    `changed` returns the files that changed since the last call, by source, as in `SourceRecord`.
    `page` is the address of Spark's own page about the run, if there is one.
    """

    storing: Storing | None = None
    later: Callable[[Callable[[], object]], object] = lambda task: task()
    settle: Callable[[], object] = lambda: None
    behind: bool = False
    changed: Callable[[], Mapping[str, Mapping[str, str]]] = dict
    page: str = ""


@attrs.define(eq=False)
class RunRecords:
    """The records of a run, if it writes any, and its activity tracker.

    `tasks` is the folder with the status files of the run's tasks. `keys` is the folder for the keys that its stages
    have received. Either is None if there is no such folder. `changed` has, by source, the files that changed after the
    last batch.
    """

    tracker: ActivityTracker
    _writer: RecordWriter | None = None
    _status: RunStatusFile | None = None
    _hooks: RecordHooks = attrs.field(factory=RecordHooks)
    tasks: str | None = None
    keys: str | None = None
    changed: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, init=False)
    _telemetry: RunTelemetry = attrs.field(factory=RunTelemetry, init=False)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        plan: Plan,
        clock: Callable[[], int],
        *,
        fresh: bool,
        tasks: bool = False,
        hooks: RecordHooks | None = None,
    ) -> RunRecords:
        """Opens the records at `path`, if given. The run continues existing records, unless it is `fresh`.

        `clock` returns the processing time (us). `tasks`: the run has tasks in other processes. Raises `RecordsInUse`
        or `FileExistsError` if the path cannot have the records of this run. If they cannot be written, raises
        `RunError` or the error of the hooks.
        """
        levels = {name: stage.level for name, stage in plan.stages.items()} if tasks else None
        simulated = steps_of(plan) is not None
        return cls.described(
            path,
            lambda: describe_run(plan),
            clock,
            fresh=fresh,
            simulated=simulated,
            levels=levels,
            hooks=hooks,
        )

    @classmethod
    def described(
        cls,
        path: str | os.PathLike[str] | None,
        describe: Callable[[], RunDescription],
        clock: Callable[[], int],
        *,
        fresh: bool,
        simulated: bool = False,
        levels: Mapping[str, int] | None = None,
        hooks: RecordHooks | None = None,
    ) -> RunRecords:
        """Opens the records of a run like `open`, with a graph that `describe` returns.

        `simulated`: test streams set the processing time. `levels`: the level of each stage, if the run has tasks in
        other processes.
        """
        if path is None:
            return cls(ActivityTracker(clock, simulated=simulated))
        hooks = hooks or RecordHooks()
        if hooks.storing is None:
            hooks = attrs.evolve(hooks, storing=partial(_recorded, os.fspath(path)))
        with (hooks.storing or nullcontext)():
            status = RunStatusFile.take(path, simulated=simulated, page=hooks.page)
            try:
                writer = RecordWriter.open(path, describe(), fresh=fresh)
            except BaseException:
                status.remove()
                raise
            keys = _folder_of_keys(writer)
            if levels is None:
                tracker = ActivityTracker(clock, status.write, simulated)
                return cls(tracker, writer, status, hooks, keys=keys)
            of_tasks = partial(with_tasks, records=writer.path, levels=levels)
            folder = task_folder_of(writer.path)
            os.makedirs(folder, exist_ok=True)
            _empty(folder)  # files of a run that was killed
            tracker = ActivityTracker(clock, status.write, simulated, of_tasks)
            return cls(tracker, writer, status, hooks, tasks=folder, keys=keys)

    @property
    def last(self) -> BatchRecord | None:
        """The record of the last batch in the records."""
        return None if self._writer is None else self._writer.last

    def followed_by(self, on_batch: object) -> None:
        """Passes the activity tracker to the user's `on_batch`, if that has a method `follow`."""
        if isinstance(on_batch, Follower):
            on_batch.follow(self.tracker)

    def exported_by(
        self, telemetry: Iterable[Telemetry], plan: Plan, run: str, *, spark: bool, endless: bool
    ) -> None:
        """Starts to export the run with the id `run`. Each `write` exports a batch, and `close` the end of the run."""
        self.tracker.run = run
        followed = FollowedRun(
            plan=plan,
            run=run,
            engine="spark" if spark else "local",
            endless=endless,
            started=self.tracker.clock(),
            tracker=self.tracker,
        )
        self._telemetry = RunTelemetry.begin(telemetry, followed)

    def write(self, record: BatchRecord) -> None:
        """Appends the record of a batch."""
        if self._writer is not None:
            write = partial(self._write, self._writer, record)
            if self._hooks.behind:
                self._hooks.later(write)
            else:
                write()
            # The counts of a finished batch must survive a power failure.
            self._hooks.later(self._sync)
        self._telemetry.take(record)

    def _write(self, writer: RecordWriter, record: BatchRecord) -> None:
        with self._storing():
            writer.write(record)

    def _storing(self) -> AbstractContextManager[object]:
        return (self._hooks.storing or nullcontext)()

    def _sync(self) -> None:
        if self._writer is not None:
            with self._storing():
                self._writer.sync()

    def close(self, ending: Ending) -> None:
        """Records how the run ended, and removes its status files. Later calls have no effect.

        A run that failed is closed while its error is handled, which is recorded. Raises the errors of the hooks. If
        the run has already failed, raises none, so that the first error is reported.
        """
        unfinished = self.tracker.begun
        error = sys.exception() if ending == "failed" else None
        self.tracker.close()
        try:
            with suppress(
                Exception
            ):  # records of batches are before the ending; errors were reported by the run
                self._hooks.settle()
            with suppress(Exception) if ending == "failed" else self._storing():
                # Later calls write nothing. They must keep the changes that the first call found.
                self.changed = {**self.changed, **self._hooks.changed()}
                if self._writer is not None:
                    failure = None if error is None else Failure.of(error, unfinished)
                    self._writer.close(ending, self.changed, failure)
                    _mark_recorded(error)
        finally:
            self._remove_status()
            self._telemetry.end(ending, unfinished, error)

    def _remove_status(self) -> None:
        """Removes the status files."""
        if self._status is not None:
            self._status.remove()
        if self.tasks is not None and os.path.isdir(self.tasks):
            _empty(self.tasks)
            with suppress(OSError):
                os.rmdir(self.tasks)


@contextmanager
def recorded_start(checkpoint: str, plan: Plan) -> Iterator[None]:
    """Records an error of the `with` block as the end of a run that continues a checkpoint on this machine, and has not
    opened its records. Errors of the declaration or the checkpoint, and of another run that is alive, are left out, and
    so are those of a pipeline of another name. `checkpoint` is empty if the run has none.
    """
    try:
        yield
    except (PlanError, CheckpointError, SinkInUse, RecordsInUse):
        raise
    except Exception as error:
        path = os.path.join(checkpoint, OURS, RECORDS_FILE)
        is_its = checkpoint and not _is_recorded(error) and _pipeline_of(checkpoint) == plan.name
        if is_its and os.path.isfile(path):
            with suppress(RecordsInUse, RunError, OSError):
                RunRecords.open(path, plan, lambda: time.time_ns() // 1000, fresh=False).close("failed")
        raise


def _pipeline_of(checkpoint: str) -> str | None:
    """Returns the name of the pipeline of a checkpoint on this machine; None if it cannot be read."""
    with suppress(CheckpointError):
        manifest = saved_manifest(checkpoint)
        return None if manifest is None else manifest["pipeline"]
    return None


def _mark_recorded(error: BaseException | None) -> None:
    with suppress(AttributeError, TypeError):  # a class that has no other attributes
        error._beamlike_recorded = True  # type: ignore[union-attr]


def _is_recorded(error: BaseException) -> bool:
    """True if the run has recorded this error itself."""
    return getattr(error, "_beamlike_recorded", False) is True


@contextmanager
def _recorded(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # an error of this package, which asks for another name
        raise RunError(f"cannot write the records {path!r}: {error}") from error


def _folder_of_keys(writer: RecordWriter) -> str | None:
    """Returns the folder for seen keys, emptied for new records; None if the records are older than this feature."""
    folder = keys_of(writer.path)
    if writer.last is None:
        os.makedirs(folder, exist_ok=True)
        _empty(folder)
    if not os.path.isdir(folder):
        return None
    for path in damaged_keys(folder):
        _LOG.warning(
            "%s is damaged, and is left as it is: `why` cannot report which keys its stage has received", path
        )
    return folder


def _empty(folder: str) -> None:
    """Removes the files that tasks and stages have written to a folder. Files with other names stay."""
    for name in os.listdir(folder):
        if _OURS.fullmatch(name):
            with suppress(OSError):
                os.remove(os.path.join(folder, name))
