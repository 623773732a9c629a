"""The input and output of ingestion: chunks of a source, and the rows and counts that result from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import polars as pl

from beamlike.io.base import Announced, Faulty, FromFile, Pieces
from beamlike.plan.model import SourcePlan
from beamlike.plan.route import join
from beamlike.rows.dead_letters import DeadLetterCounts
from stages.progress.splits import SourceSummary, merge


@attrs.frozen(eq=False)
class AllChunks:
    """All chunks of a source, read as one."""

    chunks: Sequence[Chunk]


Chunk: TypeAlias = pl.LazyFrame | Faulty | FromFile | Pieces | AllChunks | Announced
"""A chunk of a source: rows, or errors of its reader, perhaps with their files."""

Newest: TypeAlias = Mapping[str, tuple[int, int]]
"""Per file or group of files, as `FromFile.files` names it: its elements, and their newest event time (us)."""


@attrs.frozen(eq=False)
class Ingested:
    """The result of ingesting chunks: rows by address, the summary for the watermark, and counts of rows.

    Of the rows `read`, `elements` reached the watermark, and `lost` are dead letters of the reader, the event time or
    a step before the watermark. `dead_letters` are those of the steps after it. All of them are in `frames`, too.
    """

    frames: Mapping[str, pl.DataFrame]
    summary: SourceSummary
    read: int = attrs.field(default=0, kw_only=True)
    elements: int = attrs.field(default=0, kw_only=True)
    lost: DeadLetterCounts = attrs.field(factory=DeadLetterCounts, kw_only=True)
    dead_letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts, kw_only=True)
    newest: Newest = attrs.field(factory=dict, kw_only=True)

    def merged_without_rows(self, other: Ingested, source: SourcePlan) -> Ingested:
        """The summary and counts of this and a later result, without the rows."""
        return Ingested(
            {},
            merge(source.watermark, self.summary, other.summary),
            read=self.read + other.read,
            elements=self.elements + other.elements,
            lost=self.lost.plus(other.lost),
            dead_letters=self.dead_letters.plus(other.dead_letters),
            newest=newest_of([self.newest, other.newest]),
        )


def merged(source: SourcePlan, parts: Sequence[Ingested]) -> Ingested:
    """The results of the parts of a chunk as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    total = Ingested({}, {})
    for part in parts:
        total = total.merged_without_rows(part, source)
    return attrs.evolve(total, frames=join([part.frames for part in parts]))


def newest_of(parts: Iterable[Newest]) -> Newest:
    """The elements and newest event times of all parts, since a file may have been read in several."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        for file, (elements, newest) in part.items():
            count, latest = found.get(file, (0, newest))
            found[file] = (count + elements, max(latest, newest))
    return found


@attrs.frozen
class SourceTurn:
    """The counts of a source in a batch, or of one of its tasks, and the files of its rows.

    `left_out` and `changed` are those of `SourceRecord`.
    """

    read: int = 0
    elements: int = 0
    dead_letters: int = 0
    newest: Newest = attrs.field(factory=dict)
    left_out: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    changed: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)

    @classmethod
    def of(cls, ingested: Ingested) -> SourceTurn:
        """The counts of what was ingested."""
        return cls(ingested.read, ingested.elements, ingested.lost.total, ingested.newest)

    @classmethod
    def of_all(cls, turns: Iterable[SourceTurn]) -> SourceTurn:
        """The counts of all tasks together."""
        parts = list(turns)
        return cls(
            sum(turn.read for turn in parts),
            sum(turn.elements for turn in parts),
            sum(turn.dead_letters for turn in parts),
            newest_of(turn.newest for turn in parts),
            left_out={name: file for turn in reversed(parts) for name, file in turn.left_out.items()},
            changed={file: how for turn in parts for file, how in turn.changed.items()},
        )
