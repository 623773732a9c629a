"""Lists the files that a run reads, in order and by batch, on the driver, with the same code as in process.

Spark's own file source reads files of equal modification time in an arbitrary order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from beamlike.io.files.changes import Changes, Stamp
from beamlike.io.refreshed import ReadingsAsFiles
from beamlike.io.sources import FoundFile, Planned, ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.driver_log import BEFORE, DriverLog
from beamlike.spark.query.planner import LoggedPart, LoggedPlan, Planner
from beamlike.system.seals import sealed_lines, unsealed_json, unsealed_lines
from stages.facts import SPARSE, from_facts, to_facts
from stages.strategies.validators import SourceFile

FOLDED: Final = 100
"""The least number of lists that are merged into one."""

_FOLD: Final = re.compile(r"_\d+-\d+\.json")

PART_BYTES: Final = 32 << 20
"""The size of a part of a file, for one task, if its format can be split."""


@attrs.frozen
class ReadFile:
    """A file in the list of files that were read; `number` is its place in the order of all.

    `modified` and `size` are those of the listing that found it.
    """

    file: str
    number: int
    modified: int | None = attrs.field(default=None, metadata=SPARSE, kw_only=True)
    size: int | None = attrs.field(default=None, metadata=SPARSE, kw_only=True)


@attrs.frozen
class FilePart(ReadFile):
    """A listed file, or one of its `parts` if several tasks read it.

    A run in process that read it in part has read `pieces` of at most `rows` rows.
    """

    parts: int = 1
    part: int = 0
    pieces: int = attrs.field(default=0, metadata=SPARSE)
    rows: int | None = attrs.field(default=None, metadata=SPARSE)


@attrs.frozen
class KnownFiles:
    """The entry in the first list of a source whose files are splits: all known files, also those that wait."""

    known: tuple[str, ...]


Entry = FilePart | KnownFiles | LoggedPlan | LoggedPart


def read_entry(line: bytes | str) -> Entry:
    """Reads a line of a list. Raises `NotAsWritten`."""
    return _entry(unsealed_json(line, "a line in beamlike/files or beamlike/batches"))


def _entry(facts: Any) -> Entry:
    entry: Entry = from_facts(Entry, facts)  # type: ignore[arg-type]
    return entry


@attrs.define(slots=False)
class Lists(DriverLog):
    """The lists of the files that a run has found of a source, each named by the number of its first file."""

    kind: ClassVar[str] = "files"

    @cached_property
    def known(self) -> dict[str, int]:
        """The listed files, each with its number."""
        return {entry.file: entry.number for entry in self._listed}

    @cached_property
    def stamps(self) -> dict[str, Stamp]:
        """The state of the files when they were listed."""
        stamps = {entry.file: Stamp.noted(entry.modified, entry.size) for entry in self._listed}
        return {file: stamp for file, stamp in stamps.items() if stamp is not None}

    @cached_property
    def _listed(self) -> list[FilePart]:
        before = self.checkpoint.files.latest(f"{self.folder}/{BEFORE}")
        texts = {} if before is None else {BEFORE: before}
        texts |= {name: self._text(name) for name in self._folds()}
        if self.checkpoint.files.names(self.folder):
            lists = self.checkpoint.session.read.text(self.folder, wholetext=True)
            content = F.col("value").cast("binary").alias("content")  # of a damaged list it is no text
            named = lists.select(F.input_file_name().alias("name"), content).toArrow().to_pylist()
            texts |= {os.path.basename(row["name"]): row["content"].decode(errors="replace") for row in named}
        entries = [entry for name, text in texts.items() for entry in self._entries(name, text)]
        return [entry for entry in entries if isinstance(entry, FilePart)]

    def _text(self, name: str) -> str:
        return self.checkpoint.files.read(f"{self.folder}/{name}") or ""

    def _entries(self, name: str, text: str) -> list[Entry]:
        """The entries of the list of this name."""
        try:
            found = [_entry(facts) for facts in unsealed_lines(text)]
        except (ValueError, TypeError, KeyError, AttributeError):
            found = []
        if not found and (text or name != BEFORE):  # it is empty if nothing was read yet
            raise self.checkpoint.damaged(
                f"the list of files {self.folder}/{name} is not whole, or not what was written"
            )
        return found

    def taken(self, batch: int) -> list[str]:
        """The files that were read by the end of a batch, in order."""
        left = {*self.checkpoint.files.names(self.folder)} - self.read_by(batch).keys()
        end = min((int(name.removesuffix(".json")) for name in left), default=len(self.known))
        return [file for file, number in sorted(self.known.items(), key=itemgetter(1)) if number < end]

    def tidy(self) -> None:
        """Merges the lists of files that were read into a hidden one: Spark knows lists by path, and checkpoints move.

        Raises `CheckpointError` if a list is missing, or has moved although a batch must be replayed with it.
        """
        files, batch = self.checkpoint.files, last_batch(self.checkpoint, "commits")
        read = self.read_by(batch)
        self._require_lists(read)
        self.require_here(read)
        folds, there = self._folds(), read.keys() & {*files.names(self.folder)}
        if folds or there:
            self.keep(self.taken(batch))
            for name in [*folds, *there]:
                files.remove(f"{self.folder}/{name}")

    def _folds(self) -> list[str]:
        """The hidden lists that replaced others while a run was running."""
        return [name for name in self.checkpoint.files.hidden(self.folder) if _FOLD.fullmatch(name)]

    def fold(self, names: Sequence[str], level: int = 1) -> None:
        """Merges these lists, which Spark has read in batches that are done, into a hidden one.

        As many merged lists of a level as were merged into one become a list of the next level. So a run has few lists
        however long it lasts, and writes each line a few times.
        """
        entries = [entry for name in names for entry in self._entries(name, self._text(name))]
        files = {one.number: one for one in entries if isinstance(one, FilePart)}
        read = [
            ReadFile(files[n].file, n, modified=files[n].modified, size=files[n].size) for n in sorted(files)
        ]
        lines = [to_facts(one) for one in read]
        self.checkpoint.files.write(f"{self.folder}/_{level}-{min(files):012d}.json", sealed_lines(lines))
        for name in names:
            self.checkpoint.files.remove(f"{self.folder}/{name}")
        if len(alike := [name for name in self._folds() if name.startswith(f"_{level}-")]) >= FOLDED:
            self.fold(alike, level + 1)

    def _require_lists(self, read: Iterable[str]) -> None:
        """Raises `CheckpointError` if a list is missing: its files would be read once more, under another number."""
        numbers = {*self.known.values()}
        due = {*range(max(numbers, default=-1)), *(int(name.removesuffix(".json")) for name in read)}
        if gone := due - numbers:
            name = f"{self.folder}/{min(gone):012d}.json"
            raise self.checkpoint.damaged(f"the list of files {name}, or one before it, is gone")

    def keep(self, read: Sequence[str], cut: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        """Stores that these files were read, and of files in `cut` that many pieces of at most that many rows."""
        lines = [to_facts(ReadFile(file, number, **self._noted(file))) for number, file in enumerate(read)]
        lines = lines or [to_facts(KnownFiles(()))]  # an empty list would look like a truncated one
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", sealed_lines(lines))
        for number, (file, (pieces, rows)) in enumerate(cut.items(), start=len(read)):
            entry = FilePart(file, number, pieces=pieces, rows=rows)
            self._put(number, [entry])

    def _noted(self, file: str) -> dict[str, int]:
        stamp = self.stamps.get(file)
        return {} if stamp is None else attrs.asdict(stamp)

    def _put(self, first: int, entries: Iterable[FilePart | KnownFiles]) -> None:
        """Writes a list; its first file has this number."""
        self.put(first, sealed_lines(map(to_facts, entries)))


@attrs.define(slots=False)
class Listing(Lists):
    """The lists of a source that a run writes.

    Spark reads the lists as files, and stores which of them it has read. With `max_files_per_trigger`, a list has that
    many files and is a batch; otherwise a batch reads all lists that exist. `apart`: each file is a split of the
    source. `whole`: the source is read in the first batch, and ends there; files that arrive later are not part of the
    run.
    """

    source: ReadInFiles
    apart: bool
    whole: bool = False
    _lists: int = attrs.field(default=0, init=False)
    """The upper bound of the number of lists that are not merged."""
    _changes: Changes | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Listing:
        """Creates the listing of a source of a plan; relative paths are those of this process."""
        source = cast(ReadInFiles, plan.source)
        apart = isinstance(plan.watermark.per_split, SourceFile)
        if plan.whole:
            source = attrs.evolve(cast(Any, source), max_files_per_trigger=None)
        listing = cls(checkpoint, plan.name, source.from_anywhere(), apart, plan.whole)
        checkpoint.files.make(listing.folder)
        listing.tidy()
        return listing

    def look(self) -> bool:
        """Lists new files; True if there are any."""
        if self.whole and (self.known or self.checkpoint.has_ended(self.name)):
            return False
        if self._lists >= 2 * FOLDED:
            self._fold_read()
        found = self.source.found(later=True)
        if self._changes is None:
            self._changes = Changes.of(self.source, self.stamps)
        self._changes.look(found)
        new = [file for file in found if file.path not in self.known]
        size = self.source.max_files_per_trigger or max(1, len(new))
        for first in range(0, len(new), size):
            # If files are splits, the first list names all of them: those that still wait hold the watermark.
            known = [KnownFiles(tuple(file.path for file in new))] if self.apart and not first else []
            self._write(new[first : first + size], known)
        return bool(new)

    def changed(self) -> dict[str, str]:
        """Returns the files that changed since the last call, as `Changes.report` does."""
        return {} if self._changes is None else self._changes.report()

    def _fold_read(self) -> None:
        """Merges lists that no batch needs any more, if there are enough of them."""
        read = self.read_by(last_batch(self.checkpoint, "commits"))
        names = self.checkpoint.files.names(self.folder)
        if len(done := [name for name in names if name in read]) >= FOLDED:
            self.fold(done)
            names = [name for name in names if name not in read]
        # If batches read few lists, the next check is after as many more.
        self._lists = len(names) if len(names) < 2 * FOLDED else FOLDED

    def _write(self, files: Sequence[FoundFile], known: Sequence[KnownFiles]) -> None:
        first = len(self.known)
        entries: list[FilePart | KnownFiles] = [*known]
        for number, file in enumerate(files, start=first):
            entries += self._parts(number, file)
        self._put(first, entries)
        self._lists += 1
        self.known.update({file.path: number for number, file in enumerate(files, start=first)})

    def _parts(self, number: int, file: FoundFile) -> list[FilePart]:
        """The parts of a file: one, or as many as its size needs."""
        parts = max(1, -(-file.size // PART_BYTES)) if self.source.splits else 1
        stamp = attrs.asdict(Stamp.of(file))
        return [FilePart(file.path, number, parts, part, **stamp) for part in range(parts)]

    def read(self) -> DataFrame:
        return self.stream(one_by_one=self.source.max_files_per_trigger is not None)


@attrs.frozen
class Listings:
    """The logs of the sources of a run that are files, or plan their batches, by name."""

    sources: Mapping[str, Listing | Planner]

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: Plan) -> Listings:
        """Opens the logs of the sources of a plan, and lists the available input."""
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
        """The logs of sources that plan their batches."""
        return [listing for listing in self.sources.values() if isinstance(listing, Planner)]

    @property
    def waiting(self) -> list[Planner]:
        """The logs of sources that plan the next batch when the one before is committed."""
        return [planner for planner in self.planners if planner.waits]

    def look(self) -> bool:
        """Logs new input; True if there is something to read."""
        found = {name: listing.look() for name, listing in self.sources.items()}
        # A refreshed source always has another reading, for which a run need not wait.
        return any(
            new for name, new in found.items() if not isinstance(self.sources[name].source, ReadingsAsFiles)
        )

    def look_on(self) -> bool:
        """Logs input that did not fit into the batch before; True if there is something to read."""
        found = [planner.look_on() for planner in self.waiting]
        return any(found)

    def changed(self) -> dict[str, dict[str, str]]:
        """Returns, by source, the files that changed since the last call."""
        files = {name: one for name, one in self.sources.items() if isinstance(one, Listing)}
        return {name: found for name, listing in files.items() if (found := listing.changed())}

    def close(self) -> None:
        """Informs sources of the batches that are committed, and closes them."""
        for planner in self.planners:
            planner.close()
