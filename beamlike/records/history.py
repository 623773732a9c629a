"""The history of a run: its graph and the records of its batches, read from a file to which the run may still
append.
"""

from __future__ import annotations

import logging
import os
import time

import attrs

from beamlike.errors import UnknownStage, UnreadableRun, listed, nearest
from beamlike.records.failure import Failure
from beamlike.records.find import find_run, is_run
from beamlike.records.graph import RunDescription
from beamlike.records.lines import BadLine, Line, RunBegun, RunClosed, read_line
from beamlike.records.model import BatchRecord
from beamlike.records.present import Present
from beamlike.records.status_files import RunStatus, read_status, status_file_of, with_tasks
from beamlike.records.tail import after_last_line, ending_of, last_batch_before
from beamlike.system.activity import CurrentBatch
from beamlike.system.locks import is_locked

_LOG = logging.getLogger("beamlike")


@attrs.define(repr=False)
class History:
    """The history of a run: its graph, and the records of its batches, in order, each number once.

    A batch can be replayed after a failure, or have the number of a batch of an earlier run in the same file. Its
    record replaces the earlier record and those of all later batches.

    Args:
        plan: The graph of the run.
        batches: The records of its batches.
        closed: "ended", "stopped" or "failed"; None while the run is running, or if it was killed.
        path: The records file, from which `refresh` reads.
        in_hand: The current batch, if there is one.
        alive: True if the process of the run exists, False if not; None if that is unknown.
        simulated: True if test streams set the processing time.
        bad_lines: The number of lines of the file that could not be read, and were skipped.
        page: The address of Spark's own page about the run, while there is one; else empty.
        failure: Why the run failed; in a run that has not finished a batch yet, why the run before failed.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run(bl.LocalRunner(records="plays.jsonl"))
        >>> history = bl.observe.History.open("plays.jsonl")
        >>> len(history.batches), history.closed
        (4, 'ended')
    """

    plan: RunDescription
    batches: list[BatchRecord] = attrs.field(factory=list)
    closed: str | None = None
    path: str | None = None
    in_hand: CurrentBatch | None = None
    alive: bool | None = None
    simulated: bool = False
    bad_lines: int = 0
    page: str = ""
    changed: dict[str, dict[str, str]] = attrs.field(factory=dict)
    """The files that changed after the last batch of a run, by source, as in `SourceRecord`."""
    failure: Failure | None = None
    begun: set[int] = attrs.field(factory=set, init=False)
    """The first batches of runs, which began or continued then. Silence before does not make a source idle."""
    _begins: bool = attrs.field(default=False, init=False)
    _offset: int = attrs.field(default=0, init=False)
    _lines: int = attrs.field(default=0, init=False)
    _begun: bool = attrs.field(default=False, init=False)
    _file: int | None = attrs.field(default=None, init=False)

    def __repr__(self) -> str:
        batches = "1 batch" if len(self.batches) == 1 else f"{len(self.batches):,} batches"
        return f"<History of {self.plan.pipeline!r}: {batches}, {self.closed or 'not closed'}>"

    @classmethod
    def open(cls, run: str | os.PathLike[str]) -> History:
        """Reads the history of a run. `run` is a records file, a folder that contains one, or a checkpoint.

        Raises `FileNotFoundError` if there is none, and `UnreadableRun` if it is something else.
        """
        path = find_run(run)
        if not is_run(path):
            raise UnreadableRun(f'{path!r} does not have the records of a run: they begin with {{"plan": ...')
        history = cls(RunDescription(""), path=path)
        history.refresh()
        return history

    @classmethod
    def end_of(cls, run: str | os.PathLike[str]) -> History:
        """Reads only the present state of a run: its graph, its last batch, and how it ended.

        That takes the same time for a long run as for a short one. `refresh` has no effect. Raises as `open` does.
        """
        path = find_run(run)
        with open(path, "rb") as file:
            head = file.readline()
            end = after_last_line(file)
            try:
                begun = read_line(head)
            except BadLine:
                begun = None
            if not isinstance(begun, RunBegun):
                return cls.open(path)
            history = cls(begun.plan)
            if (last := last_batch_before(file, end)) is not None:
                history.add(last)
            if (closed := ending_of(file, end)) is not None:
                history.take(closed)
        history._look(path)
        return history

    @property
    def latest(self) -> BatchRecord | None:
        """The record of the last batch; None if there is none."""
        return self.batches[-1] if self.batches else None

    def require_stage(self, name: str) -> str:
        """Returns the name if the run has such a stage. Otherwise raises `UnknownStage`, with the nearest name."""
        if name in self.plan.stages:
            return name
        if name in self.plan.sources:
            raise UnknownStage(f"{name!r} is a source; the stages are {listed(self.plan.stages)}")
        hint = nearest(name, self.plan.stages)
        raise UnknownStage(f"there is no stage {name!r}; the stages are {listed(self.plan.stages)}{hint}")

    def present(self, now: int | None = None) -> Present:
        """Returns the state of the run at `now` (us), by default the time of this machine.

        A run that is over is shown at the time of its last batch.
        """
        if self.closed is not None:
            return Present(self.latest, simulated=self.simulated)
        if self.alive is False:
            return Present(self.latest, self.in_hand, simulated=self.simulated)
        if now is None and (self.alive or self.in_hand):
            now = time.time_ns() // 1000
        return Present(self.latest, self.in_hand, now, self.simulated)

    def refresh(self) -> bool:
        """Reads the lines that were appended since the last call. Returns True if there were any.

        An incomplete last line is left to the next call.
        """
        if self.path is None:
            return False
        appended = self._read(self.path)
        # Read last, so that the current batch is not one that is already among the records.
        self._look(self.path)
        return appended

    def _read(self, path: str) -> bool:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_ino != self._file or facts.st_size < self._offset:
                # The file was replaced, so it is read from the beginning.
                self._offset, self._lines, self._file = 0, 0, facts.st_ino
                self.batches.clear()
                self.begun.clear()
                self.changed.clear()
            self.bad_lines = 0
            file.seek(self._offset)
            appended = file.read()
        whole = appended[: appended.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._lines += 1
            self._take(line)
        self._offset += len(whole)
        if self.bad_lines and not self._begun:
            raise UnreadableRun(f"no line of {path!r} that can be read has the graph of the run")
        return bool(whole)

    def _look(self, path: str) -> None:
        """Reads the status file of the run."""
        slip, self.alive = read_status(RunStatus, status_file_of(path)), is_locked(status_file_of(path))
        self.page = "" if slip is None else slip.page
        if slip is not None:
            self.simulated = slip.simulated
        levels = {name: stage.level for name, stage in self.plan.stages.items()}
        in_hand = None if slip is None else slip.in_hand
        self.in_hand = None if in_hand is None else with_tasks(in_hand, path, levels)

    def _take(self, line: bytes) -> None:
        try:
            self.take(read_line(line))
        except BadLine as error:
            self.bad_lines += 1
            _LOG.warning(
                "line %d of %r is no record of a run, and is left out: %s", self._lines, self.path, error
            )

    def take(self, line: Line) -> None:
        """Updates the history with a line of the records file."""
        match line:
            case RunBegun(plan):
                self.plan, self.closed, self._begun, self._begins = plan, None, True, True
            case RunClosed(ending, changed, failure):
                self.closed, self.failure = ending, failure
                for name, files in changed.items():
                    self.changed.setdefault(name, {}).update(files)
            case BatchRecord():
                self.add(line)

    def add(self, record: BatchRecord) -> None:
        """Adds the record of a batch. It replaces earlier records of the same batch and of later ones."""
        while self.batches and self.batches[-1].batch >= record.batch:
            self.begun.discard(self.batches.pop().batch)
        if self._begins:
            self.begun.add(record.batch)
            self._begins, self.failure = False, None
        self.batches.append(record)
