"""The input that a batch took from a source, from the log of its run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import attrs

from beamlike.io.files.changes import Stamp
from beamlike.io.files.reader import Cut
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.io.sources import PlannedBatch, Position


@attrs.frozen
class TakenFile:
    """A file that a batch read, or consecutive pieces of it: `count` pieces from number `first` on, each with at most
    `rows` rows.

    `count` is None if the batch read the file to its end. `stamp` is that of the listing that found the file; None for
    files that were listed by versions without stamps.
    """

    file: str
    first: int = 0
    count: int | None = None
    rows: int = CHUNK_ROWS
    stamp: Stamp | None = None

    @classmethod
    def of(cls, cut: Cut) -> TakenFile:
        """Creates the file from the pieces that a run in process has logged."""
        whole = cut.over and cut.first == 0
        return cls(
            cut.file, cut.first, None if whole else cut.count, cut.rows, Stamp.noted(cut.modified, cut.size)
        )

    def __str__(self) -> str:
        if self.count is not None:
            return f"{self.file}, pieces {self.first} to {self.first + self.count - 1} of {self.rows:,} rows"
        return f"{self.file}, from piece {self.first} of {self.rows:,} rows on" if self.first else self.file


@attrs.frozen
class FilesTaken:
    """Files that a batch read, in order. `known`: if each file is a split, the files that were found with this batch;
    None if the log no longer has them. `over`: the source is over with this batch.
    """

    files: tuple[TakenFile, ...]
    known: tuple[str, ...] | None = ()
    over: bool = False

    def texts(self) -> Iterator[str]:
        """Yields a line for each part of the input."""
        yield from map(str, self.files)


@attrs.frozen
class BatchTaken:
    """Input that the source or its reader planned: one batch, or several if the source is read as a whole.

    `before` is the position of the source before the batch. `in_process`: the run was in process, where the input of a
    source that is read as a whole is a list of inputs. `over`: the source is over with this batch.
    """

    planned: tuple[PlannedBatch, ...]
    before: Position = attrs.field(factory=dict)
    in_process: bool = True
    over: bool = False

    def inputs(self, *, whole: bool) -> list[PlannedBatch]:
        """Returns the batches to read. `whole`: the source is read as a whole, and its batches move no position."""
        if not whole:
            return [*self.planned]
        given = [one for batch in self.planned for one in (batch.input if self.in_process else [batch.input])]
        return [PlannedBatch(one, {}) for one in given]

    def texts(self) -> Iterator[str]:
        """Yields a line for each part of the input."""
        for batch in self.planned:
            yield from _texts(batch.input)


@attrs.frozen
class SpanTaken:
    """Rows that Spark's reader read between two offsets, in the form of Spark's offset log."""

    begin: str
    end: str

    def texts(self) -> Iterator[str]:
        """Yields a line for each part of the input."""
        yield f"{self.begin} to {self.end}"


@attrs.frozen
class StepTaken:
    """The steps of all test streams with a number."""

    step: int

    def texts(self) -> Iterator[str]:
        """Yields a line for each part of the input."""
        yield f"step {self.step}"


@attrs.frozen
class NotLogged:
    """Input that cannot be read again, with the reason."""

    why: str

    def texts(self) -> Iterator[str]:
        """Yields a line for each part of the input."""
        yield self.why


Taken: TypeAlias = FilesTaken | BatchTaken | SpanTaken | StepTaken | NotLogged
"""The input that a batch took from one source."""


def _spans(begin: Position, end: Position) -> Iterator[str]:
    for split, last in end.items():
        if (first := begin.get(split, 0)) != last:
            yield f"{split}, {first} to {last}"


def _texts(given: Any) -> Iterator[str]:
    """Yields a line for each part of planned input, which any source may have defined."""
    if isinstance(given, list) and given and not all(isinstance(one, int) for one in given):
        yield from map(str, given)
    elif isinstance(given, dict) and {*given} == {"begin", "end"}:
        yield from _spans(given["begin"], given["end"])
    elif given is not None:
        yield str(given)
