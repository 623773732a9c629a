"""Writes the output of a batch in a single Spark job: tasks write files, and the driver writes the other sinks.

After the job, the driver publishes the files of the attempts that count. A replayed batch writes the same parts again,
so that no row is doubled. Files that it does not write again are removed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import polars as pl
from pyspark.sql import DataFrame, SparkSession

from beamlike.io.base import Part, Sink, WrittenBySpark, output_frame
from beamlike.plan.model import Plan
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, merged
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.runtime.batch.batch_sinks import Leftovers, take_back
from beamlike.runtime.batch.build_records import with_letters
from beamlike.runtime.batch.envelope import RECORDS, Envelope
from beamlike.runtime.batch.ingested import SourceTurn
from beamlike.runtime.batch.messages import (
    AgainMessage,
    Message,
    RetriesMessage,
    SinkMessage,
    SourceMessage,
    StageMessage,
    StateMessage,
)
from beamlike.runtime.batch.writing import write_part, written
from beamlike.runtime.run.source_turns import SourceTurns
from beamlike.spark.state.versions import StatePublisher
from beamlike.spark.versions import collected, frame_of
from beamlike.system.activity import ActivityTracker, activity, taken_retries, tracked_by
from stages.progress.inputs import Arrived, Inputs
from stages.progress.splits import SourceState, SourceSummary, merge
from windowing.time import MIN_TIME

Note = tuple[str, Message]
"""A message from a task to the driver, with the name of its source, stage or sink."""


@attrs.define(kw_only=True)
class BatchWriter:
    """The `foreachBatch` function of a run.

    `on_batch` receives the record of each batch. `latest` is the record of the previous batch; at first it may be from
    an earlier run. `clock` returns the processing time (us); it is None for test streams. `tracker` tracks the activity
    of the driver. `leftovers` publishes the files of a batch, and removes files of attempts that do not count.
    `may_replay`: an earlier run may have begun the first batch. `changed` returns the files that changed since the last
    call, by source, as in `SourceRecord`. `require_read` compares the messages of tasks with what a batch is to read.
    `state` publishes the state, if it is in files.
    """

    plan: Plan
    run: str
    on_batch: Callable[[BatchRecord], None]
    latest: BatchRecord | None
    clock: Callable[[], int] | None
    tracker: ActivityTracker
    leftovers: Leftovers
    may_replay: bool
    changed: Callable[[], Mapping[str, Mapping[str, str]]]
    require_read: Callable[[int, list[Message]], None]
    state: StatePublisher | None = None
    writing: bool = attrs.field(default=False, init=False)
    """True once sinks may have received rows of the current batch."""
    _sources: SourceTurns = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        known = self.latest.sources if self.latest else {}
        inputs = {
            name: Inputs({name: SourceState(known[name].watermark if name in known else MIN_TIME)})
            for name in self.plan.sources
        }
        self._sources = SourceTurns(self.plan, inputs)

    def __call__(self, envelopes: DataFrame, batch: int) -> None:
        with tracked_by(self.tracker):
            self.tracker.begin(batch)
            self._take(envelopes, batch)
            self.tracker.end()

    def _take(self, envelopes: DataFrame, batch: int) -> None:
        self.writing = not self.leftovers.hides
        arrived = [Envelope(*row) for row in collected(envelopes)]
        notes = [(sent.origin, sent.message()) for sent in arrived if sent.target == RECORDS]
        self.require_read(batch, [message for _, message in notes])
        self.writing = True
        # Spark returns rows in any order. Sorted, a replay gives each sink the same rows in the same order.
        arrived.sort(key=lambda envelope: (envelope.origin, envelope.sequence))
        rows = {}
        for name, sink in self.plan.sinks.items():
            frames = [envelope.frame() for envelope in arrived if envelope.target == name]
            if frames:
                with activity("sink", name):
                    self._write(sink.sink, pl.concat(frames), self._part(name, batch), envelopes)
                rows[name] = sum(map(len, frames))
            else:
                given = partial(_given, envelopes.sparkSession)
                take_back(sink, self._part(name, batch), may_replay=self.may_replay, given=given)
        self._settle(batch, notes)
        if self.state is not None:
            self.state.publish(batch, [message for _, message in notes if isinstance(message, StateMessage)])
        self.may_replay = False
        self.latest = self._record(batch, notes, rows)
        self.on_batch(self.latest)

    def _settle(self, batch: int, notes: list[Note]) -> None:
        """Publishes the files of tasks. Only the driver knows which attempts count."""
        parts = defaultdict[str, dict[str, str]](dict)
        for name, message in notes:
            if isinstance(message, SinkMessage):
                parts[name].update(message.files)
        again = any(isinstance(message, AgainMessage) for _, message in notes)
        self.leftovers.settle(batch, parts, again=again)

    def _part(self, name: str, batch: int) -> Part:
        return Part(self.run, batch, sink=self.plan.sinks[name].own_name or name)

    @staticmethod
    def _write(sink: Sink, frame: pl.DataFrame, part: Part, envelopes: DataFrame) -> None:
        """Writes to a sink. A failure fails the batch and the query, and the next run repeats the batch."""
        rows = output_frame(frame)
        if not isinstance(sink, WrittenBySpark):
            return write_part(sink, rows, part)

        def write(repeated: bool) -> None:
            sink.write_by_spark(_given(envelopes.sparkSession, sink, rows), part)

        return written(sink, part.sink, part.batch, write)

    def _record(self, batch: int, notes: list[Note], rows: dict[str, int]) -> BatchRecord:
        of_sources = [message for _, message in notes if isinstance(message, SourceMessage)]
        of_stages = [(name, message) for name, message in notes if isinstance(message, StageMessage)]
        of_both: list[SourceMessage | StageMessage] = [*of_sources, *(message for _, message in of_stages)]
        now = max((message.now for message in of_both), default=0)
        stages = merged((name, message.stage) for name, message in of_stages)
        for name, message in notes:
            if isinstance(message, SinkMessage):
                rows[name] = rows.get(name, 0) + message.rows
        known = self.latest.stages if self.latest else {}
        lost = DeadLetterCounts.of_all(message.lost for message in of_sources)
        made = DeadLetterCounts.of_all(message.dead_letters for message in of_both)
        changed = self.changed()
        record = BatchRecord(
            batch,
            now,
            {name: self._source(name, notes, now, changed.get(name, {})) for name in self.plan.sources},
            {name: stages.get(name) or _quiet(known.get(name)) for name in self.plan.stages},
            finished=now if self.clock is None else max(now, self.clock()),
            sinks=rows,
            retries=taken_retries() + sum(one.count for _, one in notes if isinstance(one, RetriesMessage)),
        )
        return with_letters(record, lost, made).following(self.latest)

    def _source(self, name: str, notes: list[Note], now: int, changed: Mapping[str, str]) -> SourceRecord:
        """Returns the record of a source. It is built by a stage that reads the source, or else by the driver."""
        mine = [message for origin, message in notes if origin == name and isinstance(message, SourceMessage)]
        before = self.latest.sources.get(name) if self.latest else None
        records = (message.sources for _, message in notes if isinstance(message, StageMessage))
        kept = next((sources[name] for sources in records if name in sources), None)
        if kept is not None:
            record = kept
        elif any(name in stage.inputs for stage in self.plan.stages.values()):
            record = before or SourceRecord(MIN_TIME)
        else:
            record = self._seen(name, mine, now)
        turn = attrs.evolve(SourceTurn.of_all(message.turn for message in mine), changed=changed)
        return self._sources.with_counts(name, record, turn, before)

    def _seen(self, name: str, mine: list[SourceMessage], now: int) -> SourceRecord:
        """Returns the record of a source that only sinks read. Without rows, its watermark stays, or it
        becomes idle.
        """
        strategy = self.plan.sources[name].watermark
        summary: SourceSummary = {}
        for message in mine:
            summary = merge(strategy, summary, message.summary)
        ended = frozenset({name} if any(message.ended for message in mine) else ())
        # A test stream has its own time.
        times = [message.now for message in mine] if self.clock is None else [now]
        arrived = Arrived({name: summary}, ended, now=max(times, default=MIN_TIME))
        return self._sources.receive(name, arrived)


def _quiet(before: StageRecord | None) -> StageRecord:
    return before.quiet() if before else StageRecord(MIN_TIME, MIN_TIME, "no input has arrived yet")


_FOR_SPARK: Mapping[Any, Any] = {
    pl.UInt8: pl.Int16,
    pl.UInt16: pl.Int32,
    pl.UInt32: pl.Int64,
    pl.UInt64: pl.Decimal(20, 0),
    pl.Categorical: pl.String,
    pl.Enum: pl.String,
}
"""For types that Spark lacks, a type of Spark that can hold their values."""


def _given(session: SparkSession, sink: Sink, rows: pl.DataFrame) -> Any:
    return on_spark(session, rows) if isinstance(sink, WrittenBySpark) else rows


def on_spark(session: SparkSession, frame: pl.DataFrame) -> DataFrame:
    """Converts rows to a Spark frame with one partition, which is written as a single file. The rows are on the driver
    anyway.
    """
    return frame_of(session, frame.cast(_FOR_SPARK).to_arrow()).coalesce(1)
