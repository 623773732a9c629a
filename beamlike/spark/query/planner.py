"""Sources that are read in parts: the driver plans batches ahead, and tasks read the parts of each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.io.sources import Position, ReadInParts, Taken
from beamlike.plan.model import SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.notes import BEFORE, Notes
from stages.facts import from_json, to_facts


@attrs.frozen
class PlannedPart:
    """A part of what a batch takes of a source, as that says it, and its place in the list with this number."""

    what: Any
    list: int
    place: int


@attrs.frozen
class Reached:
    """Which entries of the position of a source a list changes; no task reads it."""

    reached: dict[str, Any]


def _line(entry: PlannedPart | Reached) -> str:
    return f"{json.dumps(to_facts(entry))}\n"


@attrs.define
class _Known:
    """How many lists there are, and where the source is after them."""

    lists: int
    position: dict[str, Any]


@attrs.define(slots=False)
class Plans(Notes):
    """Lists of which each has what one batch takes, and where the source is then."""

    kind: ClassVar[str] = "parts"

    @cached_property
    def known(self) -> _Known:
        """By the lists that are there, and those that were."""
        return self._by(self.checkpoint.files.names(self.folder))

    def _follow(self, known: _Known, name: str) -> None:
        """On to where the source is after a list."""
        if name != f"{known.lists:012d}.json":
            raise self.checkpoint.damaged(f"the list {self.folder}/{known.lists:012d}.json is gone")
        lines = (self.checkpoint.files.read(f"{self.folder}/{name}") or "").splitlines()
        try:
            position = from_json(Reached, lines[0]).reached
        except (ValueError, TypeError, KeyError, IndexError):
            raise self.checkpoint.damaged(f"the list {self.folder}/{name} is not whole") from None
        known.lists += 1
        known.position.update(position)

    def position(self, batch: int) -> Position:
        """Where the source is after a batch."""
        return self._by(self.read_by(batch)).position

    def _by(self, read: Iterable[str]) -> _Known:
        """By some of the lists, and those that were."""
        before = json.loads(self.checkpoint.files.latest(f"{self.folder}/{BEFORE}") or "{}")
        known = _Known(before.get("lists", 0), before.get("position", {}))
        for name in sorted({*read} & {*self.checkpoint.files.names(self.folder)}):
            self._follow(known, name)
        return known

    def keep(self, lists: int, position: Position) -> None:
        """Notes that so many lists were read, and where the source is after them."""
        text = json.dumps({"lists": lists, "position": dict(position)})
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", text)

    def tidy(self) -> None:
        """Removes those that were read: Spark knows them by their paths, and a checkpoint may move.

        Raises `CheckpointError` where a list is gone, or is elsewhere while a batch is to be done again with it.
        """
        read = self.read_by(last_batch(self.checkpoint, "commits"))
        self.require_here(read)
        after = self._by(read)
        if there := read.keys() & {*self.checkpoint.files.names(self.folder)}:
            self.keep(after.lists, after.position)
            for name in there:
                self.checkpoint.files.remove(f"{self.folder}/{name}")


@attrs.define(slots=False)
class Planner(Plans):
    """Lists that are written. A source that is `whole` is read in the first batch, and is over then."""

    source: ReadInParts
    whole: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Planner:
        """That of a source of a plan, whose path is meant from here."""
        given = cast(Any, plan.source)
        source = given.from_anywhere() if hasattr(given, "from_anywhere") else given
        planner = cls(checkpoint, plan.name, source, plan.whole)
        checkpoint.files.make(planner.folder)
        planner.tidy()
        return planner

    def look(self) -> bool:
        """Plans batches of what there is now, and says whether there are any."""
        if self.whole and (self.known.lists or self.checkpoint.has_ended(self.name)):
            return False
        before, taken = self.known.lists, self._next()
        while taken is not None:
            self._write(taken)
            taken = self._next() if taken.more else None
        return self.known.lists > before

    def _next(self) -> Taken | None:
        return self.source.take(self.known.position, None)

    def _write(self, taken: Taken) -> None:
        number, position = self.known.lists, dict(taken.position)
        parts = (PlannedPart(part, number, index) for index, part in enumerate(taken.input))
        self.put(number, "".join([_line(Reached(position)), *map(_line, parts)]))
        self.known.lists += 1
        self.known.position.update(position)

    def read(self) -> DataFrame:
        """A stream of lines, one for each part."""
        return self.stream(one_by_one=not self.whole)
