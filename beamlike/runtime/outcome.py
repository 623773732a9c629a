"""What a run tells of itself in files: its records, what it is at, and how it came to its end."""

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
from beamlike.records.keys_seen import damaged_keys, keys_of
from beamlike.records.lines import Ending
from beamlike.records.model import BatchRecord
from beamlike.records.slips import RunSlip, tasks_of, with_tasks
from beamlike.records.writer import RecordWriter
from beamlike.system.in_hand import Desk, Follower

Storing: TypeAlias = Callable[[], AbstractContextManager[object]]
"""Is entered to write a record: it says what a failure of the storage means."""

_LOG = logging.getLogger("beamlike")
_OURS = re.compile(r".+-\d+(\.new)?")


@attrs.define(eq=False)
class Outcome:
    """The records of a run, if somebody wants them, and the desk where it keeps what it is at.

    `tasks` is the folder in which tasks note what they are at, where there is one. `later` takes what has to be done
    before the batch counts as done, which by default is done at once. `changed` returns, by source, the files that
    changed since the last batch, as in `SourceRecord`.
    """

    desk: Desk
    _writer: RecordWriter | None = None
    _slip: RunSlip | None = None
    tasks: str | None = None
    storing: Storing = nullcontext
    later: Callable[[Callable[[], object]], object] = lambda task: task()
    changed: Callable[[], Mapping[str, Mapping[str, str]]] = dict

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None,
        plan: Plan,
        desk: Desk,
        *,
        fresh: bool,
        tasks: bool = False,
        storing: Storing | None = None,
    ) -> Outcome:
        """Of a run that begins, or unless it is `fresh` goes on, with tasks of its own where it has `tasks`.

        Raises `RecordsInUse` and `FileExistsError` where the records cannot be these, and `RunError` where they cannot
        be written, unless `storing` raises something else.
        """
        if path is None:
            return cls(desk)
        storing = storing or partial(_recorded, os.fspath(path))
        with storing():
            outcome = cls._opened(path, plan, desk, fresh=fresh, tasks=tasks)
        outcome.storing = storing
        return outcome

    @classmethod
    def _opened(
        cls, path: str | os.PathLike[str], plan: Plan, desk: Desk, *, fresh: bool, tasks: bool
    ) -> Outcome:
        slip = RunSlip.take(path, simulated=desk.simulated)
        try:
            writer = RecordWriter.open(path, describe_run(plan), fresh=fresh)
        except BaseException:
            slip.remove()
            raise
        desk.tell = slip.write
        desk.keys = _folder_of_keys(writer)
        if not tasks:
            return cls(desk, writer, slip)
        levels = {name: stage.level for name, stage in plan.stages.items()}
        desk.more = partial(with_tasks, records=writer.path, levels=levels)
        folder = tasks_of(writer.path)
        os.makedirs(folder, exist_ok=True)
        _empty(folder)  # of what a run that was killed has left
        return cls(desk, writer, slip, folder)

    @property
    def last(self) -> BatchRecord | None:
        """The last batch that the records have."""
        return None if self._writer is None else self._writer.last

    def followed_by(self, on_batch: object) -> None:
        """Whoever wants to know at any time what the run is at gets to know where that stands."""
        if isinstance(on_batch, Follower):
            on_batch.follow(self.desk)

    def write(self, record: BatchRecord) -> None:
        """One more batch."""
        if self._writer is not None:
            with self.storing():
                self._writer.write(record)
            # So that what is counted in a batch that is done is counted also after a power cut.
            self.later(self._sync)

    def _sync(self) -> None:
        if self._writer is not None:
            with self.storing():
                self._writer.sync()

    def close(self, ending: Ending) -> None:
        """The first call counts. Raises what `storing` raises; if the run has failed, nothing, as that is told."""
        self.desk.close()
        try:
            with suppress(Exception) if ending == "failed" else self.storing():
                if self._writer is not None:
                    self._writer.close(ending, self.changed())
        finally:
            self._leave()

    def _leave(self) -> None:
        """Nobody is at the run any more."""
        if self._slip is not None:
            self._slip.remove()
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
            raise  # it is ours, and says that another name is needed
        raise RunError(f"cannot write the records {path!r}: {error}") from error


def _folder_of_keys(writer: RecordWriter) -> str | None:
    """New where the records are; None where some of them are from before keys were noted."""
    folder = keys_of(writer.path)
    if writer.last is None:
        os.makedirs(folder, exist_ok=True)
        _empty(folder)
    if not os.path.isdir(folder):
        return None
    for path in damaged_keys(folder):
        _LOG.warning(
            "%s is damaged, and is left as it is: `why` cannot tell which keys have come to its stage", path
        )
    return folder


def _empty(folder: str) -> None:
    """Removes what tasks and stages have written there, and nothing that has another kind of name."""
    for name in os.listdir(folder):
        if _OURS.fullmatch(name):
            with suppress(OSError):
                os.remove(os.path.join(folder, name))
