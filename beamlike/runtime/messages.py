"""What tasks tell beside rows: each other where watermarks are, and the driver what they have done.

Each kind of message is a class, whose fields are its JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

import attrs

from beamlike.records.model import SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.ingest import Ingested, Newest
from beamlike.runtime.source_turns import SourceTurn
from stages.facts import SPARSE
from stages.progress.reports import Report
from stages.progress.splits import SourceSummary


class Kind(StrEnum):
    """What a payload is: rows, or a message of a class below."""

    DATA = "data"
    SUMMARY = "summary"
    REPORT = "report"
    SOURCE = "source"
    STAGE = "stage"
    SINK = "sink"
    AGAIN = "again"


@attrs.frozen
class SummaryMessage:
    """From a task of a source to the stages that read it: what it saw, whether that is the end, and when (us)."""

    kind: ClassVar[Kind] = Kind.SUMMARY

    summary: SourceSummary
    ended: bool
    now: int


@attrs.frozen
class ReportMessage:
    """From a shard of a stage to the stages that read it: where it stands, and when (us)."""

    kind: ClassVar[Kind] = Kind.REPORT

    report: Report
    now: int


@attrs.frozen
class SourceCounts:
    """How many rows a task read, how many were elements, and how many never became any."""

    read: int
    elements: int
    dead_letters: int


@attrs.frozen
class SourceMessage:
    """From a task of a source to the driver: what the stages hear, and what became of the rows, at `now` (us)."""

    kind: ClassVar[Kind] = Kind.SOURCE

    summary: SourceSummary
    ended: bool
    now: int
    source: SourceCounts
    newest: Newest
    lost: DeadLetterCounts
    letters: DeadLetterCounts
    left_out: Mapping[str, str] = attrs.field(factory=dict, metadata=SPARSE)

    @property
    def turn(self) -> SourceTurn:
        """What it has to tell of the batch."""
        counts = self.source
        return SourceTurn(counts.read, counts.elements, counts.dead_letters, self.newest, self.left_out)

    @classmethod
    def of(
        cls, ingested: Ingested, now: int, *, ended: bool, left_out: Mapping[str, str] = MappingProxyType({})
    ) -> SourceMessage:
        """Of all that the task has ingested; `left_out` is that of `SourceRecord`."""
        counts = SourceCounts(ingested.read, ingested.elements, ingested.dead_letters)
        return cls(
            *(ingested.summary, ended, now, counts, ingested.newest, ingested.lost, ingested.letters),
            left_out=left_out,
        )


@attrs.frozen
class StageMessage:
    """From a shard of a stage to the driver: its record, those of the sources that it reads, and when (us)."""

    kind: ClassVar[Kind] = Kind.STAGE

    stage: StageRecord
    sources: Mapping[str, SourceRecord]
    letters: DeadLetterCounts
    now: int


@attrs.frozen
class SinkMessage:
    """From a task that has written to a sink to the driver: how many rows, and which files are to be shown as what."""

    kind: ClassVar[Kind] = Kind.SINK

    rows: int
    files: Mapping[str, str]


@attrs.frozen
class AgainMessage:
    """From a task to the driver: that there was an attempt at it before."""

    kind: ClassVar[Kind] = Kind.AGAIN


Message = SummaryMessage | ReportMessage | SourceMessage | StageMessage | SinkMessage | AgainMessage

MESSAGES: Final[Mapping[str, type[Message]]] = {
    message.kind: message
    for message in (SummaryMessage, ReportMessage, SourceMessage, StageMessage, SinkMessage, AgainMessage)
}
"""The class of the messages of each kind."""
