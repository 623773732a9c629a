"""What a run tells of each batch: where every watermark stands, what holds it, what came and what was dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from stages.stage import Step
from stages.watermarks import Watermarks
from windowing.columns import PANE_TIMING
from windowing.time import MAX_TIME


@attrs.frozen
class SourceRecord:
    """A source in a batch: its watermark (us) after it, its elements, and its rows without a readable event time."""

    watermark: int
    elements: int = 0
    dead_letters: int = 0

    def plus(self, other: SourceRecord) -> SourceRecord:
        """Of two tasks of one batch."""
        return SourceRecord(
            max(self.watermark, other.watermark),
            self.elements + other.elements,
            self.dead_letters + other.dead_letters,
        )


@attrs.frozen
class StageRecord:
    """A stage in a batch: watermarks (us) after it, what holds the output one, and counts of this batch.

    `panes` counts by timing, `dropped` by reason ("late": behind the watermark, "closed": the trigger had
    finished); `live` is the number of (key, window) rows in state.
    """

    input: int
    output: int
    holder: str
    elements: int = 0
    panes: Mapping[str, int] = attrs.field(factory=dict)
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    live: int = 0

    @property
    def lag(self) -> int:
        """Event time, in microseconds, that the stage itself adds: input - output."""
        return self.input - self.output

    def quiet(self) -> StageRecord:
        """The same in a batch in which nothing came."""
        return attrs.evolve(self, elements=0, panes={}, dropped={})

    def plus(self, other: StageRecord) -> StageRecord:
        """Of two shards: the stage's watermarks are the least, and the shard behind says what holds it."""
        behind = min(self, other, key=lambda shard: (shard.output, shard.input, shard.holder))
        return StageRecord(
            min(self.input, other.input),
            min(self.output, other.output),
            behind.holder,
            self.elements + other.elements,
            _added(self.panes, other.panes),
            _added(self.dropped, other.dropped),
            self.live + other.live,
        )


@attrs.frozen
class BatchRecord:
    """A batch: its number, its processing time (us), and every source and stage by name."""

    batch: int
    processing_time: int
    sources: Mapping[str, SourceRecord]
    stages: Mapping[str, StageRecord]


def stage_record(step: Step, upstream: Mapping[str, int]) -> StageRecord:
    """The record of one step, given the watermarks (us) of what is upstream by name."""
    panes = step.panes[PANE_TIMING].value_counts()
    return StageRecord(
        step.watermarks.input,
        step.watermarks.output,
        held_by(step, upstream),
        step.elements,
        dict(sorted(panes.rows())),
        {reason: count for reason, count in step.dropped.items() if count},
        step.live,
    )


def held_by(step: Step, upstream: Mapping[str, int]) -> str:
    """What the output watermark waits for: a key and window in state, else who is furthest behind upstream."""
    marks: Watermarks = step.watermarks
    if marks.output >= MAX_TIME:
        return "nothing"
    if step.holder is not None and marks.output < marks.input:
        return str(step.holder)
    return min(upstream, key=lambda name: (upstream[name], name))


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def merged(records: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Records of tasks or shards by name -> one record per name."""
    total: dict[str, Any] = {}
    for name, record in records:
        total[name] = total[name].plus(record) if name in total else record
    return total
