"""The files in which a run reports itself: its records, its status file, and how it ended."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TypeAlias

import attrs

from beamlike.errors import RunError
from beamlike.plan.model import Plan
from beamlike.plan.run_graph import describe_run
from beamlike.plan.stepped import steps_of
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.records.seen_keys import damaged_keys, keys_of
from beamlike.records.status_files import RunStatusFile, task_folder_of, with_tasks
from beamlike.records.writer import RecordWriter
from beamlike.system.activity import ActivityTracker, Follower

Storing: TypeAlias = Callable[[], AbstractContextManager[object]]
"""A context manager around each write of records, which raises the error for a failure of the storage."""

_LOG = logging.getLogger("beamlike")
_OURS = re.compile(r".+-\d+(\.new)?")


@attrs.frozen(eq=False)
class RecordHooks:
    """A runner's part in the records of its run.

    `storing`: the errors of their storage, by default `RunError`. `later` receives tasks that must be done before the
    batch counts as done; by default it runs them at once. `changed` returns, by
    source, the files that changed since the last call, as in `SourceRecord`.
    """

    storing: Storing | None = None
    later: Callable[[Callable[[], object]], object] = lambda task: task()
    changed: Callable[[], Mapping[str, Mapping[str, str]]] = dict


@attrs.define(eq=False)
class RunRecords:
    """The records of a run, if it writes any, and its activity tracker.

    `tasks`: the folder with the status files of its tasks, and `keys` the folder for the keys that its stages receive,
    each None if there is no such folder. `changed`: by source, the files that changed after the last batch.
    """

    tracker: ActivityTracker
    _writer: RecordWriter | None = None
    _status: RunStatusFile | None = None
    _hooks: RecordHooks = attrs.field(factory=RecordHooks)
    tasks: str | None = None
    keys: str | None = None
    changed: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict, init=False)

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
        """Opens the records at `path`, if there is one, for a run that begins, or unless it is `fresh` continues.

        `clock` gives the processing time (us). `tasks`: the run has tasks in other processes. Raises `RecordsInUse`
        and `FileExistsError` if the records cannot be these, and `RunError`, or what the hooks raise, if they cannot
        be written.
        """
        simulated = steps_of(plan) is not None
        if path is None:
            return cls(ActivityTracker(clock, simulated=simulated))
        hooks = hooks or RecordHooks()
        if hooks.storing is None:
            hooks = attrs.evolve(hooks, storing=partial(_recorded, os.fspath(path)))
        with (hooks.storing or nullcontext)():
            status = RunStatusFile.take(path, simulated=simulated)
            try:
                writer = RecordWriter.open(path, describe_run(plan), fresh=fresh)
            except BaseException:
                status.remove()
                raise
            keys = _folder_of_keys(writer)
            if not tasks:
                tracker = ActivityTracker(clock, status.write, simulated)
                return cls(tracker, writer, status, hooks, keys=keys)
            levels = {name: stage.level for name, stage in plan.stages.items()}
            of_tasks = partial(with_tasks, records=writer.path, levels=levels)
            folder = task_folder_of(writer.path)
            os.makedirs(folder, exist_ok=True)
            _empty(folder)  # left by a run that was killed
            tracker = ActivityTracker(clock, status.write, simulated, of_tasks)
            return cls(tracker, writer, status, hooks, tasks=folder, keys=keys)

    @property
    def last(self) -> BatchRecord | None:
        """The record of the last batch in the records."""
        return None if self._writer is None else self._writer.last

    def followed_by(self, on_batch: object) -> None:
        """Gives the activity tracker to an `on_batch` that follows it."""
        if isinstance(on_batch, Follower):
            on_batch.follow(self.tracker)

    def write(self, record: BatchRecord) -> None:
        """Appends the record of a batch."""
        if self._writer is not None:
            with self._storing():
                self._writer.write(record)
            # The counts of a batch that is done must survive a power cut.
            self._hooks.later(self._sync)

    def _storing(self) -> AbstractContextManager[object]:
        return (self._hooks.storing or nullcontext)()

    def _sync(self) -> None:
        if self._writer is not None:
            with self._storing():
                self._writer.sync()

    def close(self, ending: Ending) -> None:
        """Writes how the run ended, and removes its status files. Later calls change nothing.

        Raises what the hooks raise, but nothing if the run has failed, since that error is reported.
        """
        self.tracker.close()
        try:
            with suppress(Exception) if ending == "failed" else self._storing():
                # Later calls write nothing, and must not lose what the first one found.
                self.changed = {**self.changed, **self._hooks.changed()}
                if self._writer is not None:
                    self._writer.close(ending, self.changed)
        finally:
            self._remove_status()

    def _remove_status(self) -> None:
        """Removes the status files."""
        if self._status is not None:
            self._status.remove()
        if self.tasks is not None and os.path.isdir(self.tasks):
            _empty(self.tasks)
            with suppress(OSError):
                os.rmdir(self.tasks)


@contextmanager
def _recorded(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # one of ours, which says that another name is needed
        raise RunError(f"cannot write the records {path!r}: {error}") from error


def _folder_of_keys(writer: RecordWriter) -> str | None:
    """The folder for seen keys, empty for new records; None for records from before keys were recorded."""
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
    """Removes the files that tasks and stages have written there, and no file with another kind of name."""
    for name in os.listdir(folder):
        if _OURS.fullmatch(name):
            with suppress(OSError):
                os.remove(os.path.join(folder, name))
