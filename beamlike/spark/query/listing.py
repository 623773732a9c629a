"""Lists the files that a run reads, by batch and in order, on the driver. It uses the same code as a run in process.

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

from beamlike.io.complete import OVER, is_over, require_complete
from beamlike.io.files.changes import Changes, Stamp
from beamlike.io.refreshed import ReadingsAsFiles
from beamlike.io.sources import FoundFile, Planned, ReadInFiles
from beamlike.plan.model import Plan, SourcePlan
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import last_batch
from beamlike.spark.query.driver_log import BEFORE, DriverLog
from beamlike.spark.query.planner import LoggedPart, LoggedPlan, Planner
from beamlike.spark.versions import collected
from beamlike.system.seals import LINES, placed, unsealed_lines
from stages.facts import SPARSE, from_facts
from stages.strategies.validators import SourceFile

FOLDED: Final = 100
"""The smallest number of lists that are merged into one."""

_FOLD: Final = re.compile(r"_\d+-\d+\.json")

PART_BYTES: Final = 32 << 20
"""The size in bytes of a part of a file. A task reads one part, if the format can be divided."""


@attrs.frozen
class ReadFile:
    """A file that was read. `number` is its place in the order in which all files were found.

    `modified` and `size` are from the listing that found the file.
    """

    file: str
    number: int
    modified: int | None = attrs.field(default=None, metadata=SPARSE, kw_only=True)
    size: int | None = attrs.field(default=None, metadata=SPARSE, kw_only=True)


@attrs.frozen
class FilePart(ReadFile):
    """A file to read, or one of its `parts` if several tasks share it.

    If a run in process has read a part of the file before, that was `pieces` of at most `rows` rows each.
    """

    parts: int = 1
    part: int = 0
    pieces: int = attrs.field(default=0, metadata=SPARSE)
    rows: int | None = attrs.field(default=None, metadata=SPARSE)


@attrs.frozen
class KnownFiles:
    """An entry in the first list of a source whose files are splits. It names all known files, also those not
    yet due.
    """

    known: tuple[str, ...]


Entry = FilePart | KnownFiles | LoggedPlan | LoggedPart


def read_entry(line: bytes | str) -> tuple[Entry, str, int]:
    """Parses a line of a list. Returns the entry, and the place and the number of lines of its list.

    Raises `NotAsWritten` if the line is damaged.
    """
    place, facts = placed(line, "a line in beamlike/files or beamlike/batches")
    return _entry(facts), place, facts[LINES]


def _entry(facts: Any) -> Entry:
    entry: Entry = from_facts(Entry, facts)  # type: ignore[arg-type]
    return entry


def _read(part: FilePart) -> ReadFile:
    """Returns the entry of a file that was read. A replay needs to know where the run began in the file."""
    if part.pieces:
        return attrs.evolve(part, parts=1, part=0)
    return ReadFile(part.file, part.number, modified=part.modified, size=part.size)


@attrs.define(slots=False)
class Lists(DriverLog):
    """The lists of files that a run has found for a source. A list is named by the number of its first file."""

    kind: ClassVar[str] = "files"

    @cached_property
    def known(self) -> dict[str, int]:
        """The numbers of all listed files, by path."""
        return {entry.file: entry.number for entry in self._listed}

    @cached_property
    def stamps(self) -> dict[str, Stamp]:
        """The stamps of the files when they were listed."""
        stamps = {entry.file: Stamp.noted(entry.modified, entry.size) for entry in self._listed}
        return {file: stamp for file, stamp in stamps.items() if stamp is not None}

    @cached_property
    def _listed(self) -> list[FilePart]:
        return [
            entry for entries in self.entries().values() for entry in entries if isinstance(entry, FilePart)
        ]

    def entries(self) -> dict[str, list[Entry]]:
        """Returns the entries of all lists, by the name of the list. Merged lists have names of their own."""
        before = self.checkpoint.files.latest(f"{self.folder}/{BEFORE}")
        texts = {} if before is None else {BEFORE: before}
        texts |= {name: self._text(name) for name in self._folds()}
        texts |= self._unmerged()
        return {name: self._entries(name, text) for name, text in texts.items()}

    def _unmerged(self) -> dict[str, str]:
        """Returns the texts of the lists that are not merged."""
        names = self.checkpoint.files.names(self.folder)
        # A replay may read a checkpoint on this machine without a session.
        if self.checkpoint.session is None or not names:
            return {name: self._text(name) for name in names}
        lists = self.checkpoint.session.read.text(self.folder, wholetext=True)
        # As bytes, because a damaged list may be no text.
        named = lists.selectExpr("input_file_name() AS name", "CAST(value AS BINARY) AS content")
        return {
            os.path.basename(name): content.decode(errors="replace") for name, content in collected(named)
        }

    def _text(self, name: str) -> str:
        return self.checkpoint.files.read(f"{self.folder}/{name}") or ""

    def _entries(self, name: str, text: str) -> list[Entry]:
        """Returns the entries of the list with this name."""
        try:
            found = [_entry(facts) for facts in unsealed_lines(text, self.place(name))]
        except (ValueError, TypeError, KeyError, AttributeError):
            found = []
        # The file of removed entries is empty if nothing was read yet.
        if not found and (text or name != BEFORE):
            raise self.checkpoint.damaged(
                f"the list of files {self.folder}/{name} is not whole, or not what was written"
            )
        return found

    def taken(self, batch: int) -> list[str]:
        """Returns the files that were read by the end of a batch, in order."""
        left = {*self.checkpoint.files.names(self.folder)} - self.read_by(batch).keys()
        end = min((int(name.removesuffix(".json")) for name in left), default=len(self.known))
        return [file for file, number in sorted(self.known.items(), key=itemgetter(1)) if number < end]

    def tidy(self) -> None:
        """Replaces all lists that were read by one hidden list. Spark identifies lists by their paths, so after a
        checkpoint was moved, it would read them again.

        Raises `CheckpointError` if a list is missing, or was moved although a batch must be replayed with it.
        """
        files, batch = self.checkpoint.files, last_batch(self.checkpoint, "commits")
        read = self.read_by(batch)
        self._require_lists(read)
        self.require_here(read)
        folds, there = self._folds(), read.keys() & {*files.names(self.folder)}
        if folds or there:
            self.keep(self.taken(batch))
            files.remove_files(f"{self.folder}/{name}" for name in [*folds, *there])

    def _folds(self) -> list[str]:
        """Returns the names of hidden lists that replaced others during a run."""
        return [name for name in self.checkpoint.files.hidden(self.folder) if _FOLD.fullmatch(name)]

    def fold(self, names: Sequence[str], level: int = 1) -> None:
        """Replaces these lists by one hidden list. Spark must have read them in batches that are done.

        When a level has `FOLDED` hidden lists, they are merged into one of the next level. So even a long run has few
        lists, and writes each line only a few times.
        """
        entries = [entry for name in names for entry in self._entries(name, self._text(name))]
        files = {one.number: one for one in entries if isinstance(one, FilePart)}
        name, read = f"_{level}-{min(files):012d}.json", [_read(files[number]) for number in sorted(files)]
        self.checkpoint.files.write(f"{self.folder}/{name}", self.text(name, read))
        self.checkpoint.files.remove_files(f"{self.folder}/{name}" for name in names)
        if len(alike := [name for name in self._folds() if name.startswith(f"_{level}-")]) >= FOLDED:
            self.fold(alike, level + 1)

    def _require_lists(self, read: Iterable[str]) -> None:
        """Raises `CheckpointError` if a list is missing. Its files would be read again, with other numbers."""
        numbers = {*self.known.values()}
        due = {*range(max(numbers, default=-1)), *(int(name.removesuffix(".json")) for name in read)}
        if gone := due - numbers:
            name = f"{self.folder}/{min(gone):012d}.json"
            raise self.checkpoint.damaged(f"the list of files {name}, or one before it, is gone")

    def keep(self, read: Sequence[str], cut: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        """Stores that the files in `read` were read completely, and for each file in `cut`, how many pieces of at most
        how many rows.
        """
        known = {one.file: _read(one) for one in self._listed}
        entries = [
            attrs.evolve(known.get(file, ReadFile(file, number)), number=number)
            for number, file in enumerate(read)
        ]
        # An empty list would look like a truncated one.
        text = self.text(BEFORE, entries or [KnownFiles(())])
        self.checkpoint.files.replace(f"{self.folder}/{BEFORE}", text)
        for number, (file, (pieces, rows)) in enumerate(cut.items(), start=len(read)):
            entry = FilePart(file, number, pieces=pieces, rows=rows)
            self.put(number, [entry])


@attrs.define(slots=False)
class Listing(Lists):
    """The lists of a source, which a run writes.

    Spark reads the lists as files, and stores which ones it has read. With `max_files_per_trigger`, a list has that
    many files and is a batch. Otherwise a batch reads all lists that exist. `apart`: each file is a split of the
    source. `whole`: the first batch reads the source to its end, and files that arrive later do not belong to the run.
    `complete`: the source is over with the last file of the first listing. An entry in the list of that file says so.
    """

    source: ReadInFiles
    apart: bool
    whole: bool = False
    complete: bool = False
    was_over: bool = attrs.field(default=False, init=False)
    """True if the source was over after the last batch of the earlier runs."""
    _lists: int = attrs.field(default=0, init=False)
    """An upper bound for the number of lists that are not merged."""
    _changes: Changes | None = attrs.field(default=None, init=False)

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: SourcePlan) -> Listing:
        """Creates the lists for a source of a plan. Relative paths are relative to this process's working directory."""
        source = cast(ReadInFiles, plan.source)
        apart = isinstance(plan.watermark.per_split, SourceFile)
        if plan.whole:
            source = attrs.evolve(cast(Any, source), max_files_per_trigger=None)
        listing = cls(checkpoint, plan.name, source.from_anywhere(), apart, plan.whole, plan.complete)
        checkpoint.files.make(listing.folder)
        listing.tidy()
        require_complete(plan.name, complete=plan.complete, over=listing.is_over)
        listing.was_over = listing.is_over and OVER in listing.taken(last_batch(checkpoint, "commits"))
        return listing

    def look(self) -> bool:
        """Lists new files. Returns True if there are any."""
        if self.whole and (self.known or self.checkpoint.has_ended(self.name)):
            return False
        if self._lists >= 2 * FOLDED:
            self._fold_read()
        found = self.source.found(later=True)
        if self._changes is None:
            self._changes = Changes.of(self.source, self.stamps)
        new = [file for file in found if file.path not in self.known]
        if self.is_over:
            self._changes.look(file for file in found if file.path in self.known)
            self._changes.look_after_end(new)
            return False
        self._changes.look(found)
        size = self.source.max_files_per_trigger or max(1, len(new))
        for first in range(0, len(new) or int(self.complete), size):
            # If files are splits, the first list names all of them, because files that are not yet read must
            # hold the watermark.
            known = [KnownFiles(tuple(file.path for file in new))] if self.apart and not first else []
            self._write(new[first : first + size], known, over=self.complete and first + size >= len(new))
        return bool(new) or self.complete

    @property
    def is_over(self) -> bool:
        """True if the source is complete, and its last input is logged."""
        return is_over(self.known)

    def changed(self) -> dict[str, str]:
        """Returns the files that were changed since the last call, as `Changes.report` does."""
        return {} if self._changes is None else self._changes.report()

    def _fold_read(self) -> None:
        """Merges lists that no batch needs any more, if there are enough of them."""
        read = self.read_by(last_batch(self.checkpoint, "commits"))
        names = self.checkpoint.files.names(self.folder)
        if len(done := [name for name in names if name in read]) >= FOLDED:
            self.fold(done)
            names = [name for name in names if name not in read]
        # If there are still many unread lists, the next check is after as many more.
        self._lists = len(names) if len(names) < 2 * FOLDED else FOLDED

    def _write(self, files: Sequence[FoundFile], known: Sequence[KnownFiles], *, over: bool) -> None:
        first = len(self.known)
        entries: list[FilePart | KnownFiles] = [*known]
        for number, file in enumerate(files, start=first):
            entries += self._parts(number, file)
        paths = [file.path for file in files]
        if over:
            entries.append(FilePart(OVER, first + len(files)))
            paths.append(OVER)
        self.put(first, entries)
        self._lists += 1
        self.known.update({path: number for number, path in enumerate(paths, start=first)})

    def _parts(self, number: int, file: FoundFile) -> list[FilePart]:
        """Returns the parts of a file. A large file has several if its format can be divided."""
        parts = max(1, -(-file.size // PART_BYTES)) if self.source.splits else 1
        stamp = attrs.asdict(Stamp.of(file))
        return [FilePart(file.path, number, parts, part, **stamp) for part in range(parts)]

    def read(self) -> DataFrame:
        return self.stream(one_by_one=self.source.max_files_per_trigger is not None)


@attrs.frozen
class Listings:
    """The logs of those sources of a run that are files or plan their batches, by name."""

    sources: Mapping[str, Listing | Planner]

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: Plan) -> Listings:
        """Opens the logs for the sources of a plan, and logs the available input."""
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
        """The logs of the sources that plan their batches."""
        return [listing for listing in self.sources.values() if isinstance(listing, Planner)]

    @property
    def waiting(self) -> list[Planner]:
        """The logs of sources that plan a batch only when the previous one is committed."""
        return [planner for planner in self.planners if planner.waits]

    def look(self) -> bool:
        """Logs new input. Returns True if there is something to read."""
        found = {name: listing.look() for name, listing in self.sources.items()}
        # A refreshed source always has a further reading, and a run need not wait for it.
        return any(
            new for name, new in found.items() if not isinstance(self.sources[name].source, ReadingsAsFiles)
        )

    def look_on(self) -> bool:
        """Logs input that did not fit into the previous batch. Returns True if there is something to read."""
        found = [planner.look_on() for planner in self.waiting]
        return any(found)

    def changed(self) -> dict[str, dict[str, str]]:
        """Returns the files that were changed since the last call, by source."""
        return {name: found for name, listing in self.sources.items() if (found := listing.changed())}

    @property
    def over(self) -> list[str]:
        """The names of the complete sources that were over after the last batch of the earlier runs."""
        return [name for name, listing in self.sources.items() if listing.was_over]

    def close(self) -> None:
        """Notifies sources of the batches that are committed, and closes them."""
        for planner in self.planners:
            planner.close()
