"""The input and output of ingestion: chunks of a source, and the resulting rows and counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import polars as pl

from beamlike.io.base import Announced, AnyFrame, Faulty, FromFile, Pieces
from beamlike.plan.model import SourcePlan
from beamlike.plan.route import join
from beamlike.rows.dead_letters import DeadLetterCounts
from stages.progress.arrivals import Arrivals, merge_arrivals
from stages.progress.splits import SourceSummary, merge


@attrs.frozen(eq=False)
class AllChunks:
    """All chunks of a source, which are ingested as one chunk."""

    chunks: Sequence[Chunk]


Chunk: TypeAlias = AnyFrame | Faulty | FromFile | Pieces | AllChunks | Announced
"""A chunk of a source: rows or errors of its reader, some with the file that they are from."""

Newest: TypeAlias = Mapping[str, tuple[int, int]]
"""The number of elements and the newest event time (us), by file or group of files (see `FromFile.files`)."""


@attrs.frozen(eq=False)
class Ingested:
    """The result of ingesting chunks: rows by address, the summary for the watermark, and counts.

    Of the rows `read`, `elements` reached the watermark. `lost` counts dead letters from before the watermark: of the
    reader, the event time or a step. `dead_letters` counts those of later steps. `frames` has all dead letters, too.
    `arrivals` are for the records.
    """

    frames: Mapping[str, pl.DataFrame]
    summary: SourceSummary
    read: int = attrs.field(default=0, kw_only=True)
    elements: int = attrs.field(default=0, kw_only=True)
    lost: DeadLetterCounts = attrs.field(factory=DeadLetterCounts, kw_only=True)
    dead_letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts, kw_only=True)
    newest: Newest = attrs.field(factory=dict, kw_only=True)
    arrivals: Arrivals = attrs.field(factory=dict, kw_only=True)

    def merged_without_rows(self, other: Ingested, source: SourcePlan) -> Ingested:
        """Merges the summary and counts with those of a later result. The rows are left out."""
        return Ingested(
            {},
            merge(source.watermark, self.summary, other.summary),
            read=self.read + other.read,
            elements=self.elements + other.elements,
            lost=self.lost.plus(other.lost),
            dead_letters=self.dead_letters.plus(other.dead_letters),
            newest=newest_of([self.newest, other.newest]),
            arrivals=merge_arrivals([self.arrivals, other.arrivals]),
        )


def merged(source: SourcePlan, parts: Sequence[Ingested]) -> Ingested:
    """Merges the results of the parts of a chunk, in their order."""
    if len(parts) == 1:
        return parts[0]
    total = Ingested({}, {})
    for part in parts:
        total = total.merged_without_rows(part, source)
    return attrs.evolve(total, frames=join([part.frames for part in parts]))


def newest_of(parts: Iterable[Newest]) -> Newest:
    """Merges the elements and newest event times of several parts. A file may have been read in several parts."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        for file, (elements, newest) in part.items():
            count, latest = found.get(file, (0, newest))
            found[file] = (count + elements, max(latest, newest))
    return found


@attrs.frozen
class SourceTurn:
    """The counts of a source in a batch, or of one of its tasks, and the files from which its rows are.

    `left_out` and `changed` have the meaning that they have in `SourceRecord`.
    """

    read: int = 0
    elements: int = 0
    dead_letters: int = 0
    newest: Newest = attrs.field(factory=dict)
    left_out: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    changed: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    arrivals: Arrivals = attrs.field(factory=dict, kw_only=True)

    @classmethod
    def of(cls, ingested: Ingested) -> SourceTurn:
        """Returns the counts of an ingestion."""
        return cls(
            ingested.read,
            ingested.elements,
            ingested.lost.total,
            ingested.newest,
            arrivals=ingested.arrivals,
        )

    @classmethod
    def of_all(cls, turns: Iterable[SourceTurn]) -> SourceTurn:
        """Returns the sums of the counts of several tasks."""
        parts = list(turns)
        return cls(
            sum(turn.read for turn in parts),
            sum(turn.elements for turn in parts),
            sum(turn.dead_letters for turn in parts),
            newest_of(turn.newest for turn in parts),
            left_out={name: file for turn in reversed(parts) for name, file in turn.left_out.items()},
            changed={file: how for turn in parts for file, how in turn.changed.items()},
            arrivals=merge_arrivals(turn.arrivals for turn in parts),
        )
