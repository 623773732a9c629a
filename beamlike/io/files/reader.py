"""Reads files from the position of an earlier run on: first the rest of files that were read in part, then
new files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Protocol, Self

import attrs

from beamlike.io.base import FromFile, Pieces
from beamlike.io.files.changes import Changes, Stamp
from beamlike.io.files.chunking import together
from beamlike.io.files.paths import unreadable
from beamlike.io.sources import FoundFile, PlannedBatch, Position
from beamlike.system.path_names import is_remote
from stages.facts import SPARSE, from_facts, to_facts


class FileSource(Protocol):
    """The methods of a source of files that its reader needs."""

    @property
    def max_files_per_trigger(self) -> int | None: ...

    def found(self, *, later: bool = False) -> Sequence[FoundFile]: ...

    def ending_pieces(self, files: list[str], rows: int) -> Iterator[tuple[FromFile, int]]:
        """Yields pieces of at most `rows` rows, each with its number of rows.

        The last piece of each file is marked as `over`.
        """


@attrs.frozen
class FileProgress:
    """The progress in a file. It was read completely, or the first `pieces` of it, each with at most `rows` rows.

    `number` is the place of the file in the order in which files were found. `modified` (ms) and `size` (bytes) are
    from the listing.
    """

    number: int
    pieces: int | None = attrs.field(default=None, metadata=SPARSE)
    rows: int | None = attrs.field(default=None, metadata=SPARSE)
    modified: int | None = attrs.field(default=None, metadata=SPARSE)
    size: int | None = attrs.field(default=None, metadata=SPARSE)


@attrs.frozen(kw_only=True)
class Cut:
    """Consecutive pieces of a file in a batch: `count` pieces from number `first` on, each with at most `rows` rows."""

    file: str
    number: int
    first: int
    count: int
    rows: int
    over: bool
    modified: int | None = attrs.field(default=None, metadata=SPARSE)
    size: int | None = attrs.field(default=None, metadata=SPARSE)

    @property
    def place(self) -> FileProgress:
        """The progress in the file after these pieces."""
        pieces, rows = (None, None) if self.over else (self.first + self.count, self.rows)
        return FileProgress(self.number, pieces, rows, self.modified, self.size)


@attrs.frozen
class FileBatch:
    """The input of a batch: pieces of files. `known`: if each file is a split, the files that were found with this
    batch.
    """

    cuts: tuple[Cut, ...]
    known: tuple[str, ...] = attrs.field(default=(), metadata=SPARSE)


@attrs.frozen(eq=False)
class _Ahead:
    """A piece that was already read for a later batch, with its number of rows."""

    cut: Cut
    piece: FromFile
    height: int


@attrs.define(eq=False)
class FileReader:
    """A reader of files. Its position has a `FileProgress` for each path.

    A batch has `max_files_per_trigger` files, or as many pieces as fit into `rows` rows, as in a run without a
    checkpoint. When all listed files are read, the files are listed again. `apart`: each file is a split of the source.
    """

    source: FileSource
    places: dict[str, FileProgress]
    rows: int
    apart: bool = False
    _changes: Changes = attrs.field(init=False)
    _ahead: Iterator[_Ahead] = attrs.field(factory=lambda: iter(()), init=False)
    _peeked: _Ahead | None = attrs.field(default=None, init=False)
    _known: tuple[str, ...] = attrs.field(default=(), init=False)
    _next: tuple[PlannedBatch, list[FromFile]] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        stamps = {file: Stamp.noted(place.modified, place.size) for file, place in self.places.items()}
        self._changes = Changes.of(self.source, stamps)

    @classmethod
    def of(cls, source: FileSource, position: Position, rows: int, *, apart: bool) -> Self:
        """Creates a reader that continues at the position of an earlier reader."""
        return cls(
            source, {file: from_facts(FileProgress, facts) for file, facts in position.items()}, rows, apart
        )

    def new(self) -> PlannedBatch | None:
        if self._next is None:
            if self._peek() is None:
                self._list()
            if pieces := self._batch():
                cuts, known = tuple(_joined(ahead.cut for ahead in pieces)), self._known
                self._known = ()
                position = {cut.file: to_facts(cut.place) for cut in cuts}
                batch = PlannedBatch(to_facts(FileBatch(cuts, known)), position, self._peek() is not None)
                self._next = batch, [ahead.piece for ahead in pieces]
        return None if self._next is None else self._next[0]

    def read(self, batch: PlannedBatch) -> Pieces:
        """Returns the pieces of a batch. They were read already, or are read again."""
        planned = from_facts(FileBatch, batch.input)
        if self._next is not None and self._next[0].input == batch.input:
            pieces, self._next = self._next[1], None
        else:
            pieces = [piece for cut in planned.cuts for piece in self._again(cut)]
        self.places.update({cut.file: cut.place for cut in planned.cuts})
        return Pieces(pieces, planned.known) if self.apart else together(pieces)

    def look_after_end(self) -> None:
        """Reports files that arrived after the source was over, and files that changed."""
        found = self.source.found(later=True)
        self._changes.look(file for file in found if file.path in self.places)
        self._changes.look_after_end(file for file in found if file.path not in self.places)

    def changed(self) -> dict[str, str]:
        """Returns the files that were changed since the last call, as `Changes.report` does."""
        return self._changes.report()

    def close(self) -> None:
        """Does nothing, as no file stays open."""

    def _list(self) -> None:
        """Lists the files. The next pieces are from files that were read in part, then from new files."""
        cut = {file: place for file, place in self.places.items() if place.pieces is not None}
        found = self.source.found(later=True)
        self._changes.look(found)
        new = [file for file in found if file.path not in self.places]
        # New numbers follow those of known files. A savepoint lists files in this order.
        files = cut | {
            file.path: FileProgress(number, modified=file.modified, size=file.size)
            for number, file in enumerate(new, start=len(self.places))
        }
        self._known = tuple(file.path for file in new) if self.apart else ()
        self._ahead = (ahead for file, place in files.items() for ahead in self._rest(file, place))

    def _rest(self, file: str, place: FileProgress) -> Iterator[_Ahead]:
        """Yields the pieces of a file that are not read yet."""
        # The pieces have the same bounds only if the row limit is that of the run that began the file.
        first, rows = place.pieces or 0, place.rows or self.rows
        for index, (piece, height) in enumerate(self.source.ending_pieces([file], rows)):
            if index >= first:
                cut = Cut(
                    file=file,
                    number=place.number,
                    first=index,
                    count=1,
                    rows=rows,
                    over=piece.over,
                    modified=place.modified,
                    size=place.size,
                )
                yield _Ahead(cut, piece, height)

    def _batch(self) -> list[_Ahead]:
        """Returns the pieces of the next batch."""
        pieces: list[_Ahead] = []
        while (ahead := self._peek()) is not None and not (pieces and self._is_full(pieces, ahead)):
            pieces.append(ahead)
            self._peeked = None
        return pieces

    def _is_full(self, pieces: Sequence[_Ahead], ahead: _Ahead) -> bool:
        if (count := self.source.max_files_per_trigger) is not None:
            return sum(one.cut.over for one in pieces) == count
        return sum(one.height for one in pieces) + ahead.height > self.rows

    def _peek(self) -> _Ahead | None:
        """Returns the next piece of the listed files without removing it; None if there is none."""
        if self._peeked is None:
            self._peeked = next(self._ahead, None)
        return self._peeked

    def _again(self, cut: Cut) -> list[FromFile]:
        if not (is_remote(cut.file) or os.path.exists(cut.file) or unreadable(cut.file, ())):
            raise FileNotFoundError(f"the file {cut.file!r} is gone")
        pieces = islice(self.source.ending_pieces([cut.file], cut.rows), cut.first, cut.first + cut.count)
        found = [piece for piece, _ in pieces]
        if len(found) < cut.count or found[-1].over != cut.over:
            raise LookupError(f"the file {cut.file!r} was changed")
        return found


def _joined(cuts: Iterable[Cut]) -> Iterator[Cut]:
    """Joins consecutive pieces of the same file."""
    for _, group in groupby(cuts, key=lambda cut: cut.file):
        first, *others = group
        last = others[-1] if others else first
        yield attrs.evolve(first, count=1 + len(others), over=last.over)
