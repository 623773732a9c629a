"""Which files a run reads, in which order and batches: the driver lists them, with the code of a run in process.

Spark's own source of files takes those of one modification time in whatever order a folder gives them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, cast

import attrs
from pyspark.sql import DataFrame

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import path_text, uri
from beamlike.io.refreshed import ReadingsAsFiles
from beamlike.io.sources import Found, ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch, offset_lines, taken
from beamlike.system.path_names import file_name
from stages.facts import SPARSE, from_json, to_facts
from stages.strategies.validators import SourceFile

PART_BYTES: Final = 32 << 20
"""How much of a file a task reads at once, where its format can be split."""

_FIRST_TIME: Final = 1_000_000_000  # of lists, in seconds: long past
_BEFORE: Final = "_before.json"  # a hidden name, which Spark does not read


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


Entry = FilePart | KnownFiles


def read_entry(line: str) -> Entry:
    """A line of a list."""
    entry: Entry = from_json(Entry, line)  # type: ignore[arg-type]
    return entry


def _line(entry: ReadFile | KnownFiles) -> str:
    return f"{json.dumps(to_facts(entry))}\n"


@attrs.define(slots=False)
class Lists:
    """The files of a source that a run has found: lists of them in a folder of the checkpoint, in order."""

    checkpoint: Checkpoint
    name: str

    @property
    def folder(self) -> str:
        """Where the lists are; each is named by the number of its first file."""
        return uri(self.checkpoint.at("files", file_name(self.name)))

    @cached_property
    def known(self) -> dict[str, int]:
        """The files that are listed, each with its number."""
        entries = self._entries(self.checkpoint.files.latest(f"{self.folder}/{_BEFORE}") or "")
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
        left = {*self.checkpoint.files.names(self.folder)} - self._read(batch).keys()
        end = min((int(name.removesuffix(".json")) for name in left), default=len(self.known))
        return [file for file, number in sorted(self.known.items(), key=itemgetter(1)) if number < end]

    def _read(self, batch: int) -> dict[str, str]:
        """The lists that Spark had read by then, and where they were."""
        mine = self.folder.split("/")[-3:]  # of whatever checkpoint
        return {
            os.path.basename(path): path
            for number, offset in enumerate(offset_lines(self.checkpoint, batch)[2:])
            for path in taken(self.checkpoint, f"sources/{number}", offset)
            if path.split("/")[-4:-1] == mine
        }

    def tidy(self) -> None:
        """Makes one hidden list of those that were read: Spark knows them by their paths, and a checkpoint may move.

        Raises `CheckpointError` where a list is gone, or is elsewhere while a batch is to be done again with it.
        """
        files, batch = self.checkpoint.files, last_batch(self.checkpoint, "commits")
        read = self._read(batch)
        self._require_lists(read)
        self._require_here(read)
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

    def _require_here(self, read: Mapping[str, str]) -> None:
        """What the next batch has planned: Spark would take a list in another place for another one."""
        begun = self._read(last_batch(self.checkpoint, "offsets"))
        for name in begun.keys() - read.keys():
            if begun[name] != path_text(f"{self.folder}/{name}"):
                raise CheckpointError(
                    f"the checkpoint {self.checkpoint.path} was moved within a batch, of which the input is in "
                    f"{begun[name]}: move it back and run it once more, to the end of that batch"
                )

    def keep(self, read: Sequence[str], cut: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        """Notes that these files were read, and of others so many pieces of at most so many rows: the rest is due."""
        lines = [_line(ReadFile(file, number)) for number, file in enumerate(read)]
        self.checkpoint.files.replace(f"{self.folder}/{_BEFORE}", "".join(lines))
        for number, (file, (pieces, rows)) in enumerate(cut.items(), start=len(read)):
            entry = FilePart(file, number, pieces=pieces, rows=rows)
            self._put(number, [entry])

    def _put(self, first: int, entries: Iterable[Entry]) -> None:
        """Makes a list; its first file has this number."""
        name = f"{self.folder}/{first:012d}.json"
        self.checkpoint.files.write(name, "".join(map(_line, entries)), _FIRST_TIME + first)


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
        entries: list[Entry] = [*known]
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
        reader = self.checkpoint.session.readStream.format("text")
        if self.source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", 1)
        # Otherwise Spark passes over files that are a week older than the newest that it has seen.
        reader = reader.option("maxFileAge", "36500d")
        # A glob for just this folder: by its path, Spark would refuse what it has read where a checkpoint was before.
        folder, _, name = self.folder.rpartition("/")
        return reader.load(f"{folder}/{{{name}}}")


@attrs.frozen
class Listings:
    """Those of all sources of a run that are files, by name."""

    sources: dict[str, Listing]

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: Plan) -> Listings:
        """Those of a plan, with the files that are there."""
        files = {
            name: source for name, source in plan.sources.items() if isinstance(source.source, ReadInFiles)
        }
        listings = cls({name: Listing.of(checkpoint, source) for name, source in files.items()})
        listings.look()
        return listings

    def look(self) -> bool:
        """Lists the files that are new, and says whether there are any."""
        found = {name: listing.look() for name, listing in self.sources.items()}
        # There is always another reading to come, for which nobody need wait.
        return any(
            new for name, new in found.items() if not isinstance(self.sources[name].source, ReadingsAsFiles)
        )
