"""Batches of sources that plan them: the driver notes each beside the checkpoint, and a task reads what it says."""

from __future__ import annotations

import json
import threading
from typing import Any, ClassVar, Self, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.io.announcing import PlannedIntake, ReadAsPlanned
from beamlike.io.sources import Position, Taken
from beamlike.plan.model import SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.notes import BEFORE, Notes
from beamlike.system.in_hand import at
from stages.facts import from_json, to_facts

BATCH_ROWS = 250_000


@attrs.frozen
class Noted:
    """A batch that was planned, and its number; `position` is all of where the source is after it."""

    planned: int
    input: Any
    position: dict[str, Any]
    watermark: int | None

    @property
    def taken(self) -> Taken:
        """As the source has planned it."""
        return Taken(self.input, self.position, watermark=self.watermark)

    @property
    def file(self) -> str:
        """The name of its note."""
        return f"{self.planned:012d}.json"


class NotedBatches(Notes):
    """The batches of a source that a run has planned."""

    kind: ClassVar[str] = "batches"

    def last(self, batch: int) -> Noted | None:
        """The last one that Spark had taken by the end of a batch; None before there is one."""
        there = sorted(self.read_by(batch).keys() & {*self.checkpoint.files.names(self.folder)})
        return self.noted(there[-1]) if there else self._before()

    def _before(self) -> Noted | None:
        text = self.checkpoint.files.latest(f"{self.folder}/{BEFORE}")
        return None if text is None else self._parsed(text)

    def noted(self, name: str) -> Noted:
        """What the note of this name says."""
        return self._parsed(self.checkpoint.files.read(f"{self.folder}/{name}") or "")

    def _parsed(self, text: str) -> Noted:
        try:
            return from_json(Noted, text)
        except (ValueError, TypeError, KeyError):
            raise self.checkpoint.damaged(f"a note in {self.folder} is not whole") from None

    def keep(self, last: Noted) -> None:
        """Notes that it is done, and all before it."""
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", _line(last))

    def begin_from(self, position: Position) -> None:
        """Of a new checkpoint: the source is there."""
        self.checkpoint.files.make(self.folder)
        self.keep(Noted(0, None, dict(position), None))


def _line(noted: Noted) -> str:
    return f"{json.dumps(to_facts(noted))}\n"


@attrs.define(slots=False)
class Takings(NotedBatches):
    """Batches that are planned, each when the one before is committed; Spark takes one note in a batch."""

    source: ReadAsPlanned
    _intake: PlannedIntake = attrs.field(init=False)
    _number: int = attrs.field(default=0, init=False)
    _due: Noted | None = attrs.field(default=None, init=False)
    _more: bool = attrs.field(default=True, init=False)
    _turn: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Self:
        """That of a source of a plan, from where the checkpoint is."""
        takings = cls(checkpoint, plan.name, cast(ReadAsPlanned, plan.source))
        checkpoint.files.make(takings.folder)
        takings._go_on()
        return takings

    def _go_on(self) -> None:
        files, batch = self.checkpoint.files, last_batch(self.checkpoint, "commits")
        read = self.read_by(batch)
        self.require_here(read)
        last = self.last(batch)
        self._intake = PlannedIntake(self.source, {} if last is None else last.position, BATCH_ROWS)
        if last is not None:
            # Who was killed right after the commit has not told of it.
            self._done(last)
        for name in files.names(self.folder):
            if name in read:
                files.remove(f"{self.folder}/{name}")
            else:
                self._due = self.noted(name)
                self._number = self._due.planned + 1

    def _done(self, noted: Noted) -> None:
        with at("source", self.name):
            self._intake.committed(noted.taken)
        self.keep(noted)
        self._number, self._due = noted.planned + 1, None

    def settle(self) -> bool:
        """Tells the source of a batch that is committed by now; says whether none is under way."""
        with self._turn:
            return self._settle()

    def _settle(self) -> bool:
        if self._due is not None:
            if self._due.file not in self.read_by(last_batch(self.checkpoint, "commits")):
                return False
            name = self._due.file
            self._done(self._due)
            self.checkpoint.files.remove(f"{self.folder}/{name}")
        return True

    def look(self) -> bool:
        """Has the next batch planned, if none is under way, and says whether there is something to read."""
        with self._turn:
            if not self._settle():
                return False
            with at("source", self.name):
                taken = self._intake.new()
            if taken is None:
                self._more = False
                return False
            position = {**self._intake.position, **taken.position}
            self._due = Noted(self._number, taken.input, position, cast("int | None", taken.watermark))
            self._more = taken.more
            self.put(self._number, _line(self._due))
            return taken.more or taken.input is not None

    def look_on(self) -> bool:
        """The same, if the batch before has left something."""
        return self.settle() and self._more and self.look()

    def close(self) -> None:
        """The run is over."""
        self.settle()
        self._intake.close()

    def read(self) -> DataFrame:
        """A stream of lines, one in a batch."""
        return self.stream(one_by_one=True)
