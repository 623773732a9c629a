"""Sources that plan their batches. The driver logs each plan next to the checkpoint, and tasks read it from there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.errors import naming_source
from beamlike.io.complete import LateInput, is_over, require_complete, with_end, without_end
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.io.planned import PlannedReader
from beamlike.io.sources import AcceptsCommits, Planned, PlannedBatch, Position, ReadInParts
from beamlike.plan.model import SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.driver_log import BEFORE, DriverLog, note_name
from beamlike.system.activity import activity
from beamlike.system.seals import unsealed_lines
from stages.facts import from_facts

KEPT_PLANS: Final = 100
"""The number of done plans that a log keeps, as many as Spark keeps batches. A replay reads their input again."""

_DONE: Final = "_done-"


@attrs.frozen
class LoggedPlan:
    """A planned batch with its number. `position` is the position of the source after the batch.

    It is the first line of a log entry. If the batch has parts, `input` is None, and their lines follow.
    """

    planned: int
    input: Any
    position: dict[str, Any]
    watermark: int | None

    @property
    def taken(self) -> PlannedBatch:
        """The batch as the source planned it."""
        return PlannedBatch(self.input, self.position, watermark=self.watermark)

    @property
    def file(self) -> str:
        """The name of the log entry."""
        return note_name(self.planned)


@attrs.frozen
class LoggedPart:
    """A part of the batch with the number `noted`. `place` is its index among the parts."""

    noted: int
    place: int
    what: Any


class PlanLog(DriverLog):
    """The log of the batches that a run has planned for a source."""

    kind: ClassVar[str] = "batches"

    def last(self, batch: int) -> LoggedPlan | None:
        """Returns the last plan that Spark had read by the end of a batch; None if there is none."""
        return self._last(self.read_by(batch))

    def _last(self, read: Mapping[str, str]) -> LoggedPlan | None:
        """Returns the last of the plans that were read. Raises `CheckpointError` if it is missing."""
        before = self.checkpoint.files.latest(f"{self.folder}/{BEFORE}")
        known = [] if before is None else [self._parsed(before, BEFORE)]
        there = sorted(read.keys() & {*self.checkpoint.files.names(self.folder)})
        known += [self.noted(name) for name in there[-1:]]
        last = max(known, key=lambda noted: noted.planned, default=None)
        if read and (last is None or last.file < max(read)):
            raise self.checkpoint.damaged(f"the note {self.folder}/{max(read)} is gone")
        return last

    def noted(self, name: str) -> LoggedPlan:
        """Returns the plan in the log entry with this name, including all parts."""
        return self._parsed(self.checkpoint.files.read(f"{self.folder}/{name}") or "", name)

    def _parsed(self, text: str, name: str) -> LoggedPlan:
        try:
            first, *parts = unsealed_lines(text, self.place(name))
            noted = from_facts(LoggedPlan, first)
            return (
                attrs.evolve(noted, input=[from_facts(LoggedPart, part).what for part in parts])
                if parts
                else noted
            )
        except (ValueError, TypeError, KeyError):
            raise self.checkpoint.damaged(
                f"the note {self.folder}/{name} is not whole, or not what was written"
            ) from None

    def entry(self, name: str) -> LoggedPlan | None:
        """Returns the plan in the log entry with this name, which may be done; None if it is no longer stored."""
        for place in (name, f"{_DONE}{name}"):
            if (text := self.checkpoint.files.read(f"{self.folder}/{place}")) is not None:
                return self._parsed(text, place)
        return None

    def set_aside(self, names: Iterable[str]) -> None:
        """Hides log entries whose batches are done, so that Spark does not read them, and removes the oldest ones."""
        files = self.checkpoint.files
        names = [*names]
        for name in names:
            if (text := files.read(f"{self.folder}/{name}")) is not None:
                files.write(f"{self.folder}/{_DONE}{name}", text)
        files.remove_files(f"{self.folder}/{name}" for name in names)
        done = [name for name in files.hidden(self.folder) if name.startswith(_DONE)]
        files.remove_files(f"{self.folder}/{name}" for name in done[:-KEPT_PLANS])

    def keep(self, last: LoggedPlan) -> None:
        """Stores that this plan and all earlier ones are done."""
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", self.text(BEFORE, [last]))

    def begin_from(self, position: Position) -> None:
        """Begins the log of a new checkpoint at a position of the source."""
        self.checkpoint.files.make(self.folder)
        self.keep(LoggedPlan(0, None, dict(position), None))


@attrs.define(slots=False)
class Planner(PlanLog):
    """The planner of a source: asks the source for batches, and logs their plans. Spark reads one log entry per batch.

    If the source must be notified of commits, a batch is planned only when the previous one is committed. Other sources
    plan ahead as long as there is input. `whole`: the first batch reads the source to its end. `complete`: the position
    of the last plan has the end of the source.
    """

    source: Planned
    whole: bool = False
    complete: bool = False
    is_over: bool = attrs.field(default=False, init=False)
    """True if the source is complete, and its last input is planned."""
    was_over: bool = attrs.field(default=False, init=False)
    """True if the source was over after the last batch of the earlier runs."""
    _late: LateInput = attrs.field(init=False)
    _reader: PlannedReader = attrs.field(init=False)
    _number: int = attrs.field(default=0, init=False)
    _due: list[LoggedPlan] = attrs.field(factory=list, init=False)
    _more: bool = attrs.field(default=True, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Self:
        """Creates the planner for a source of a plan, at the position in the checkpoint."""
        planner = cls(checkpoint, plan.name, cast(Planned, plan.source), plan.whole, plan.complete)
        checkpoint.files.make(planner.folder)
        planner._go_on()
        return planner

    @property
    def waits(self) -> bool:
        """True if a batch is planned only when the previous one is committed."""
        return isinstance(self.source, AcceptsCommits) and not self.whole

    def _go_on(self) -> None:
        read = self.read_by(last_batch(self.checkpoint, "commits"))
        self.require_here(read)
        last = self._last(read)
        rows = sys.maxsize if isinstance(self.source, ReadInParts) else CHUNK_ROWS
        position = {} if last is None else last.position
        self._late, self.is_over = LateInput(self.name), is_over(position)
        self.was_over = self.is_over
        with activity("source", self.name), naming_source(self.name):
            self._reader = PlannedReader(self.source, without_end(position), rows)
        there = sorted(self.checkpoint.files.names(self.folder))
        if last is not None:
            # A run that was killed just after a commit may not have notified its sources of it.
            self._done([last], [name for name in there if name in read])
            self._number = last.planned + 1
        self._take_up([name for name in there if name not in read])
        require_complete(self.name, complete=self.complete, over=self.is_over)

    def _take_up(self, names: list[str]) -> None:
        """Continues with plans that no batch has finished. Raises `CheckpointError` if an earlier one is missing."""
        for name in names:
            if name != note_name(self._number):
                raise self.checkpoint.damaged(f"the note {self.folder}/{note_name(self._number)} is gone")
            self._add(self.noted(name))

    def _add(self, noted: LoggedPlan) -> None:
        self._due.append(noted)
        self._number += 1
        self.is_over = self.is_over or is_over(noted.position)
        self._reader.go_on_from(noted.taken._replace(position=without_end(noted.position)))

    def _done(self, batches: Sequence[LoggedPlan], names: Iterable[str]) -> None:
        """Notifies the source of committed batches, stores that, and sets the log entries with these names aside."""
        with activity("source", self.name), naming_source(self.name):
            for noted in batches:
                self._reader.committed(noted.taken)
        for last in batches[-1:]:
            # The plan is stored completely if the source may need another notification after a failure.
            self.keep(last if self.waits else attrs.evolve(last, input=None))
        self.set_aside(names)

    def settle(self) -> bool:
        """Notifies the source of the batches that are committed by now. Returns True if no batch is in progress."""
        with self._turn:
            return self._settle()

    def _settle(self) -> bool:
        if self._due:
            read = self.read_by(last_batch(self.checkpoint, "commits"))
            done = [noted for noted in self._due if noted.file in read]
            self._due = self._due[len(done) :]
            self._done(done, [noted.file for noted in done])
        return not self._due

    def look(self) -> bool:
        """Plans batches for the available input. Returns True if there is something to read."""
        with self._turn:
            # Such a source must not plan a batch before it is notified that the previous one is committed.
            if not self._settle() and self.waits:
                return False
            if self.whole and (self._number or self.checkpoint.has_ended(self.name)):
                return False
            found = self._plan()
            while self._more and not self.waits:
                found = self._plan() or found
            return found

    def _plan(self) -> bool:
        """Plans the next batch, if there is input. Returns True if there is something to read."""
        with activity("source", self.name), naming_source(self.name):
            if self.is_over:
                self._more = False
                self._late.look(self._reader.new)
                return False
            taken = with_end(self._reader.new()) if self.complete else self._reader.new()
        self._more = taken is not None and taken.more
        if taken is None:
            return False
        noted = self._noted(taken)
        parts = noted.input if isinstance(self.source, ReadInParts) else None
        lines: list[LoggedPlan | LoggedPart] = [noted]
        if parts is not None:
            first = attrs.evolve(noted, input=None)
            lines = [first, *(LoggedPart(noted.planned, place, part) for place, part in enumerate(parts))]
        # From here on Spark may read the entry, so this plan can no longer be changed.
        self.put(noted.planned, lines)
        self._add(noted)
        return taken.more or taken.input is not None or self.is_over

    def _noted(self, taken: PlannedBatch) -> LoggedPlan:
        position = {**self._reader.position, **taken.position}
        return LoggedPlan(self._number, taken.input, position, cast("int | None", taken.watermark))

    def changed(self) -> dict[str, str]:
        """Returns input that was found after the end of the source since the last call, by its position."""
        return self._late.report()

    def look_on(self) -> bool:
        """Plans more batches if the previous batch has left input."""
        return self.settle() and self._more and self.look()

    def close(self) -> None:
        """Notifies the source of committed batches, and closes it."""
        if self.waits:
            self.settle()
        self._reader.close()

    def read(self) -> DataFrame:
        """Returns the stream of the log: the first line of each entry, and the lines of its parts."""
        return self.stream(one_by_one=not self.whole)
