"""Sources that plan their batches: the driver logs each plan beside the checkpoint, and tasks read it from there."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.errors import CheckpointError, naming_source
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.io.planned import PlannedReader
from beamlike.io.sources import AcceptsCommits, Planned, PlannedBatch, Position, ReadInParts
from beamlike.plan.model import SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.driver_log import BEFORE, DriverLog, note_name
from beamlike.system.activity import activity
from beamlike.system.path_names import file_name
from beamlike.system.seals import sealed_lines, unsealed_lines
from stages.facts import from_facts, to_facts


@attrs.frozen
class LoggedPlan:
    """A planned batch with its number; `position` is the position of the source after the batch.

    It is the first line of a log entry. If the batch has parts, their lines follow, and `input` is None.
    """

    planned: int
    input: Any
    position: dict[str, Any]
    watermark: int | None

    @property
    def taken(self) -> PlannedBatch:
        """The batch as its source has planned it."""
        return PlannedBatch(self.input, self.position, watermark=self.watermark)

    @property
    def file(self) -> str:
        """The name of its log entry."""
        return note_name(self.planned)


@attrs.frozen
class LoggedPart:
    """A part of the batch of this number, and its place among them."""

    noted: int
    place: int
    what: Any


class PlanLog(DriverLog):
    """The log of the batches that a run has planned for a source."""

    kind: ClassVar[str] = "batches"

    def last(self, batch: int) -> LoggedPlan | None:
        """The last plan that Spark had read by the end of a batch; None if there is none."""
        return self._last(self.read_by(batch))

    def _last(self, read: Mapping[str, str]) -> LoggedPlan | None:
        """The last of the plans that were read. Raises `CheckpointError` if it is missing."""
        self._require_notes_of_now()
        before = self.checkpoint.files.latest(f"{self.folder}/{BEFORE}")
        known = [] if before is None else [self._parsed(before, BEFORE)]
        there = sorted(read.keys() & {*self.checkpoint.files.names(self.folder)})
        known += [self.noted(name) for name in there[-1:]]
        last = max(known, key=lambda noted: noted.planned, default=None)
        if read and (last is None or last.file < max(read)):
            raise self.checkpoint.damaged(f"the note {self.folder}/{max(read)} is gone")
        return last

    def _require_notes_of_now(self) -> None:
        older = self.checkpoint.at("parts", file_name(self.name))
        if self.checkpoint.files.names(older) or self.checkpoint.files.latest(f"{older}/{BEFORE}"):
            raise CheckpointError(
                f"the checkpoint {self.checkpoint.path} has what batches of source {self.name!r} take as an earlier "
                "version of beamlike has noted it, in beamlike/parts: continue with that version, or take a savepoint "
                "with it and restore that with this one"
            )

    def noted(self, name: str) -> LoggedPlan:
        """The plan in the log entry of this name, with all parts."""
        return self._parsed(self.checkpoint.files.read(f"{self.folder}/{name}") or "", name)

    def _parsed(self, text: str, name: str) -> LoggedPlan:
        try:
            first, *parts = unsealed_lines(text)
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

    def keep(self, last: LoggedPlan) -> None:
        """Stores that a plan is done, and all before it."""
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", sealed_lines([to_facts(last)]))

    def begin_from(self, position: Position) -> None:
        """Begins the log of a new checkpoint with a position of the source."""
        self.checkpoint.files.make(self.folder)
        self.keep(LoggedPlan(0, None, dict(position), None))


@attrs.define(slots=False)
class Planner(PlanLog):
    """Lets a source plan batches; Spark reads one log entry per batch.

    If the source must be informed of commits, the next batch is planned when the one before is committed; other sources
    plan as long as there is input. `whole`: the source is read in the first batch, and ends there.
    """

    source: Planned
    whole: bool = False
    _reader: PlannedReader = attrs.field(init=False)
    _number: int = attrs.field(default=0, init=False)
    _due: list[LoggedPlan] = attrs.field(factory=list, init=False)
    _more: bool = attrs.field(default=True, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Self:
        """Creates the planner of a source of a plan, at the position of the checkpoint."""
        planner = cls(checkpoint, plan.name, cast(Planned, plan.source), plan.whole)
        checkpoint.files.make(planner.folder)
        planner._go_on()
        return planner

    @property
    def waits(self) -> bool:
        """True if the next batch is planned when the one before is committed."""
        return isinstance(self.source, AcceptsCommits) and not self.whole

    def _go_on(self) -> None:
        read = self.read_by(last_batch(self.checkpoint, "commits"))
        self.require_here(read)
        last = self._last(read)
        rows = sys.maxsize if isinstance(self.source, ReadInParts) else CHUNK_ROWS
        with activity("source", self.name), naming_source(self.name):
            self._reader = PlannedReader(self.source, {} if last is None else last.position, rows)
        there = sorted(self.checkpoint.files.names(self.folder))
        if last is not None:
            # A run that was killed right after the commit has not informed the sources.
            self._done([last], [name for name in there if name in read])
            self._number = last.planned + 1
        self._take_up([name for name in there if name not in read])

    def _take_up(self, names: list[str]) -> None:
        """Continues with plans that no batch has finished. Raises `CheckpointError` if one before them is missing."""
        for name in names:
            if name != note_name(self._number):
                raise self.checkpoint.damaged(f"the note {self.folder}/{note_name(self._number)} is gone")
            self._add(self.noted(name))

    def _add(self, noted: LoggedPlan) -> None:
        self._due.append(noted)
        self._number += 1
        self._reader.go_on_from(noted.taken)

    def _done(self, batches: Sequence[LoggedPlan], names: Iterable[str]) -> None:
        """Informs the source of committed batches, stores that, and removes the log entries of these names."""
        with activity("source", self.name), naming_source(self.name):
            for noted in batches:
                self._reader.committed(noted.taken)
        for last in batches[-1:]:
            # All facts that a source may have to be informed of again are stored.
            self.keep(last if self.waits else attrs.evolve(last, input=None))
        for name in names:
            self.checkpoint.files.remove(f"{self.folder}/{name}")

    def settle(self) -> bool:
        """Informs the source of the batches committed by now; True if no batch is under way."""
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
        """Plans batches of the available input; True if there is something to read."""
        with self._turn:
            if not self._settle() and self.waits:
                return False
            if self.whole and (self._number or self.checkpoint.has_ended(self.name)):
                return False
            found = self._plan()
            while self._more and not self.waits:
                found = self._plan() or found
            return found

    def _plan(self) -> bool:
        """Plans the next batch, if there is one; True if there is something to read."""
        with activity("source", self.name), naming_source(self.name):
            taken = self._reader.new()
        self._more = taken is not None and taken.more
        if taken is None:
            return False
        noted = self._noted(taken)
        parts = noted.input if isinstance(self.source, ReadInParts) else None
        lines: list[LoggedPlan | LoggedPart] = [noted]
        if parts is not None:
            first = attrs.evolve(noted, input=None)
            lines = [first, *(LoggedPart(noted.planned, place, part) for place, part in enumerate(parts))]
        self.put(noted.planned, sealed_lines(map(to_facts, lines)))
        self._add(noted)
        return taken.more or taken.input is not None

    def _noted(self, taken: PlannedBatch) -> LoggedPlan:
        position = {**self._reader.position, **taken.position}
        return LoggedPlan(self._number, taken.input, position, cast("int | None", taken.watermark))

    def look_on(self) -> bool:
        """Plans more batches, if the batch before has left input."""
        return self.settle() and self._more and self.look()

    def close(self) -> None:
        """Informs the source of committed batches, and closes it."""
        if self.waits:
            self.settle()
        self._reader.close()

    def read(self) -> DataFrame:
        """A stream of lines: the first line of each log entry, and its parts."""
        return self.stream(one_by_one=not self.whole)
