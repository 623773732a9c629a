"""Messages that tasks send in addition to rows: watermarks to other tasks, and records to the driver.

Each kind of message is a class, and its fields are stored as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

import attrs

from beamlike.records.model import SourceRecord, StageRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch.ingested import Ingested, Newest, SourceTurn
from stages.facts import SPARSE
from stages.progress.arrivals import Arrivals
from stages.progress.reports import Report
from stages.progress.splits import SourceSummary


class Kind(StrEnum):
    """The kind of a payload: rows, or one of the messages in this module."""

    DATA = "data"
    SUMMARY = "summary"
    REPORT = "report"
    SOURCE = "source"
    STAGE = "stage"
    SINK = "sink"
    AGAIN = "again"
    STATE = "state"
    READ = "read"
    RETRIES = "retries"


@attrs.frozen
class SummaryMessage:
    """A message from a source's task to the stages that read the source: its summary, whether it ended, and the time
    (us).
    """

    kind: ClassVar[Kind] = Kind.SUMMARY

    summary: SourceSummary
    ended: bool
    now: int


@attrs.frozen
class ReportMessage:
    """A message from a shard of a stage to the stages that read it: its watermark report, and the time (us)."""

    kind: ClassVar[Kind] = Kind.REPORT

    report: Report
    now: int


@attrs.frozen
class SourceCounts:
    """The counts of rows that a task read, of those that became elements, and of those that became dead letters before
    that.
    """

    read: int
    elements: int
    dead_letters: int


@attrs.frozen
class SourceMessage:
    """A message from a source's task to the driver: its summary, and the counts of its rows, at time `now` (us)."""

    kind: ClassVar[Kind] = Kind.SOURCE

    summary: SourceSummary
    ended: bool
    now: int
    source: SourceCounts = attrs.field(kw_only=True)
    newest: Newest = attrs.field(kw_only=True)
    lost: DeadLetterCounts = attrs.field(kw_only=True)
    dead_letters: DeadLetterCounts = attrs.field(kw_only=True)
    left_out: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, metadata=SPARSE)
    arrivals: Arrivals = attrs.field(factory=dict, kw_only=True, metadata=SPARSE)

    @property
    def turn(self) -> SourceTurn:
        """The counts of the task in the batch."""
        counts = self.source
        return SourceTurn(
            counts.read,
            counts.elements,
            counts.dead_letters,
            self.newest,
            left_out=self.left_out,
            arrivals=self.arrivals,
        )

    @classmethod
    def of(
        cls, ingested: Ingested, now: int, *, ended: bool, left_out: Mapping[str, str] = MappingProxyType({})
    ) -> SourceMessage:
        """Creates the message from the result of an ingestion."""
        counts = SourceCounts(ingested.read, ingested.elements, ingested.lost.total)
        return cls(
            ingested.summary,
            ended,
            now,
            source=counts,
            newest=ingested.newest,
            lost=ingested.lost,
            dead_letters=ingested.dead_letters,
            left_out=left_out,
            arrivals=ingested.arrivals,
        )


@attrs.frozen
class StageMessage:
    """A message from a shard of a stage to the driver: its record, the records of its sources, and the time (us)."""

    kind: ClassVar[Kind] = Kind.STAGE

    stage: StageRecord
    sources: Mapping[str, SourceRecord]
    dead_letters: DeadLetterCounts
    now: int


@attrs.frozen
class SinkMessage:
    """A message from a task that wrote to a sink, for the driver: the number of rows, and the files to publish."""

    kind: ClassVar[Kind] = Kind.SINK

    rows: int
    files: Mapping[str, str]


@attrs.frozen
class AgainMessage:
    """A message from a task to the driver: an earlier attempt of this task exists."""

    kind: ClassVar[Kind] = Kind.AGAIN


@attrs.frozen
class StateMessage:
    """A message from a task to the driver: the task has written the state of a shard of an operator. `head` is the last
    file of the state, which has `size` bytes; `unused` are the files that it no longer needs.
    """

    kind: ClassVar[Kind] = Kind.STATE

    operator: int
    shard: int
    head: str
    size: int
    unused: tuple[str, ...]


@attrs.frozen
class ReadMessage:
    """A message from a task to the driver: by file that defines the input of the batch, the number of lines that the
    task has read, and of all lines in the file.
    """

    kind: ClassVar[Kind] = Kind.READ

    files: Mapping[str, tuple[int, int]]


@attrs.frozen
class RetriesMessage:
    """A message from a task to the driver: the number of requests that the task has repeated."""

    kind: ClassVar[Kind] = Kind.RETRIES

    count: int


Message = (
    SummaryMessage
    | ReportMessage
    | SourceMessage
    | StageMessage
    | SinkMessage
    | AgainMessage
    | StateMessage
    | ReadMessage
    | RetriesMessage
)

MESSAGES: Final[Mapping[str, type[Message]]] = {
    message.kind: message
    for message in (
        SummaryMessage,
        ReportMessage,
        SourceMessage,
        StageMessage,
        SinkMessage,
        AgainMessage,
        StateMessage,
        ReadMessage,
        RetriesMessage,
    )
}
"""The class of each kind of message."""
