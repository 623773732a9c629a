"""Which files a run reads, in which order and batches: the driver lists them, with the code of a run in process.

Spark's own source of files takes those of one modification time in whatever order a folder gives them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.io.refreshed import ReadingsAsFiles
from beamlike.io.sources import Found, Planned, ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.notes import BEFORE, Notes
from beamlike.spark.query.planner import Noted, NotedPart, Planner
from stages.facts import SPARSE, from_json, to_facts
from stages.strategies.validators import SourceFile

PART_BYTES: Final = 32 << 20
"""How much of a file a task reads at once, where its format can be split."""


@attrs.frozen
class ReadFile:
    """A file that was read, in the list of those; `number` is its place in the order of all."""

    file: str
    number: int


@attrs.frozen
class FilePart(ReadFile):
    """A file on a list, or one of its `parts` if it is read in several.

    Of one that was cut in process, `pieces` of at most `rows` rows were read before.
    """

    parts: int = 1
    part: int = 0
    pieces: int = attrs.field(default=0, metadata=SPARSE)
    rows: int | None = attrs.field(default=None, metadata=SPARSE)


@attrs.frozen
class KnownFiles:
    """On the first list of a source whose files are splits: all that are known, also those that wait."""

    known: tuple[str, ...]


Entry = FilePart | KnownFiles | Noted | NotedPart


def read_entry(line: str) -> Entry:
    """A line of a list."""
    entry: Entry = from_json(Entry, line)  # type: ignore[arg-type]
    return entry


def _line(entry: ReadFile | KnownFiles) -> str:
    return f"{json.dumps(to_facts(entry))}\n"


@attrs.define(slots=False)
class Lists(Notes):
    """The files of a source that a run has found: lists of them, each named by the number of its first file."""

    kind: ClassVar[str] = "files"

    @cached_property
    def known(self) -> dict[str, int]:
        """The files that are listed, each with its number."""
        entries = self._entries(self.checkpoint.files.latest(f"{self.folder}/{BEFORE}") or "")
        if self.checkpoint.files.names(self.folder):
            lists = self.checkpoint.session.read.text(self.folder).toArrow()
            entries += self._entries("\n".join(lists["value"].to_pylist()))
        return {entry.file: entry.number for entry in entries if isinstance(entry, FilePart)}

    def _entries(self, lines: str) -> list[Entry]:
        try:
            return [read_entry(line) for line in lines.splitlines()]
        except (ValueError, TypeError, KeyError):
            raise self.checkpoint.damaged(f"a list in {self.folder} is not whole") from None

    def taken(self, batch: int) -> list[str]:
        """The files that were read by the end of a batch, in order."""
        left = {*self.checkpoint.files.names(self.folder)} - self.read_by(batch).keys()
        end = min((int(name.removesuffix(".json")) for name in left), default=len(self.known))
        return [file for file, number in sorted(self.known.items(), key=itemgetter(1)) if number < end]

    def tidy(self) -> None:
        """Makes one hidden list of those that were read: Spark knows them by their paths, and a checkpoint may move.

        Raises `CheckpointError` where a list is gone, or is elsewhere while a batch is to be done again with it.
        """
        files, batch = self.checkpoint.files, last_batch(self.checkpoint, "commits")
        read = self.read_by(batch)
        self._require_lists(read)
        self.require_here(read)
        if there := read.keys() & {*files.names(self.folder)}:
            self.keep(self.taken(batch))
            for name in there:
                files.remove(f"{self.folder}/{name}")

    def _require_lists(self, read: Iterable[str]) -> None:
        """What they have would be read once more, under another number."""
        numbers = {*self.known.values()}
        due = {*range(max(numbers, default=-1)), *(int(name.removesuffix(".json")) for name in read)}
        if gone := due - numbers:
            name = f"{self.folder}/{min(gone):012d}.json"
            raise self.checkpoint.damaged(f"the list of files {name}, or one before it, is gone")

    def keep(self, read: Sequence[str], cut: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        """Notes that these files were read, and of others so many pieces of at most so many rows: the rest is due."""
        lines = [_line(ReadFile(file, number)) for number, file in enumerate(read)]
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", "".join(lines))
        for number, (file, (pieces, rows)) in enumerate(cut.items(), start=len(read)):
            entry = FilePart(file, number, pieces=pieces, rows=rows)
            self._put(number, [entry])

    def _put(self, first: int, entries: Iterable[FilePart | KnownFiles]) -> None:
        """Makes a list; its first file has this number."""
        self.put(first, "".join(map(_line, entries)))


@attrs.define(slots=False)
class Listing(Lists):
    """Lists that are written.

    Spark reads them as it reads any files, and keeps which of them it has read. It takes them in order of their times,
    so these are a second apart; where a storage keeps no times that are given, in order of their names. With
    `max_files_per_trigger`, a list has that many files and is a batch; else a batch takes all lists that there are.
    `apart`: each file is a split of the source. One that is `whole` is read in the first batch, and is over then: what
    comes later is not for this run.
    """

    source: ReadInFiles
    apart: bool
    whole: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Listing:
        """That of a source of a plan, whose path is meant from here."""
        source = cast(ReadInFiles, plan.source)
        apart = isinstance(plan.watermark.per_split, SourceFile)
        if plan.whole:
            source = attrs.evolve(cast(Any, source), max_files_per_trigger=None)
        listing = cls(checkpoint, plan.name, source.from_anywhere(), apart, plan.whole)
        checkpoint.files.make(listing.folder)
        listing.tidy()
        return listing

    def look(self) -> bool:
        """Lists the files that are new, and says whether there are any."""
        if self.whole and (self.known or self.checkpoint.has_ended(self.name)):
            return False
        new = [file for file in self.source.found(later=True) if file.path not in self.known]
        size = self.source.max_files_per_trigger or max(1, len(new))
        for first in range(0, len(new), size):
            # Where files are splits, the first list tells of all: those that still wait hold the watermark.
            known = [KnownFiles(tuple(file.path for file in new))] if self.apart and not first else []
            self._write(new[first : first + size], known)
        return bool(new)

    def _write(self, files: Sequence[Found], known: Sequence[KnownFiles]) -> None:
        first = len(self.known)
        entries: list[FilePart | KnownFiles] = [*known]
        for number, file in enumerate(files, start=first):
            entries += self._parts(number, file)
        self._put(first, entries)
        self.known.update({file.path: number for number, file in enumerate(files, start=first)})

    def _parts(self, number: int, file: Found) -> list[FilePart]:
        """Each part of the file: one, or as many as its size asks for."""
        parts = max(1, -(-file.size // PART_BYTES)) if self.source.splits else 1
        return [FilePart(file.path, number, parts, part) for part in range(parts)]

    def read(self) -> DataFrame:
        """A stream of lines, one for each part of a file."""
        return self.stream(one_by_one=self.source.max_files_per_trigger is not None)


@attrs.frozen
class Listings:
    """What the driver notes of the sources of a run that are files, or plan their batches, by name."""

    sources: Mapping[str, Listing | Planner]

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: Plan) -> Listings:
        """Those of a plan, with what is there."""
        listings = dict[str, Listing | Planner]()
        for name, source in plan.sources.items():
            if isinstance(source.source, ReadInFiles):
                listings[name] = Listing.of(checkpoint, source)
            elif isinstance(source.source, Planned):
                listings[name] = Planner.of(checkpoint, source)
        listed = cls(listings)
        listed.look()
        return listed

    @property
    def planners(self) -> list[Planner]:
        """Those of sources that plan their batches."""
        return [listing for listing in self.sources.values() if isinstance(listing, Planner)]

    @property
    def waiting(self) -> list[Planner]:
        """Those of which the next batch is planned when the one before is committed."""
        return [planner for planner in self.planners if planner.waits]

    def look(self) -> bool:
        """Notes what is new, and says whether there is anything to read."""
        found = {name: listing.look() for name, listing in self.sources.items()}
        # There is always another reading to come, for which nobody need wait.
        return any(
            new for name, new in found.items() if not isinstance(self.sources[name].source, ReadingsAsFiles)
        )

    def look_on(self) -> bool:
        """Notes what was there and did not fit into the batch before, and says whether there is anything to read."""
        found = [planner.look_on() for planner in self.waiting]
        return any(found)

    def close(self) -> None:
        """The run is over; what is committed by now is told."""
        for planner in self.planners:
            planner.close()
