"""What a run tells of each batch: where every watermark stands, what holds it, what came and what was dropped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import polars as pl

from stages.alignment import Report
from stages.index import Holder
from stages.inputs import Inputs
from stages.stage import Step
from stages.strategies import WatermarkStrategy
from stages.watermarks import Watermarks
from windowing.columns import PANE_RETRACTED, PANE_TIMING
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME


def _percentiles(times: Mapping[Any, int]) -> dict[int, int]:
    """Also after JSON has made text of the keys."""
    return {int(share): time for share, time in times.items()}


@attrs.frozen
class SourceRecord:
    """A source in a batch: its watermark (us) after it, its elements, and its rows without a readable event time.

    The watermark waits for `split` to go on (None: the source is not looked at split by split), or for those that
    are `awaited` to speak at all; `since` is the processing time (us) since when nothing has come of it. An `idle`
    source is left out of the minimum downstream.
    """

    watermark: int
    elements: int = 0
    dead_letters: int = 0
    idle: bool = False
    split: str | None = None
    since: int | None = None
    percentiles: Mapping[int, int] = attrs.field(factory=dict, converter=_percentiles)
    awaited: str = ""

    def plus(self, other: SourceRecord) -> SourceRecord:
        """Of two tasks of one batch: the one that is further on says what the source waits for."""
        ahead = max(self, other, key=lambda task: task.watermark)
        return attrs.evolve(
            ahead,
            elements=self.elements + other.elements,
            dead_letters=self.dead_letters + other.dead_letters,
            idle=self.idle and other.idle,
        )


@attrs.frozen
class Upstream:
    """What a stage has heard of a source or stage that it reads: its watermark (us), and whether it is left out."""

    watermark: int
    idle: bool = False


def _upstream(known: Mapping[str, Any]) -> dict[str, Upstream]:
    return {
        name: one if isinstance(one, Upstream) else Upstream(one["watermark"], one["idle"])
        for name, one in known.items()
    }


def _holder(window: Holder | Mapping[str, Any] | None) -> Holder | None:
    return window if window is None or isinstance(window, Holder) else Holder(**window)


@attrs.frozen
class StageRecord:
    """A stage in a batch: watermarks (us) after it, what holds the output one, and counts of this batch.

    `panes` counts by timing, and those that were "retracted"; `dropped` by reason ("late": behind the watermark,
    "closed": the trigger had finished); `live` is the number of (key, window) rows in state, `keys` that of keys (one
    that is in several buckets of state counts in each), `bytes` what they take.
    `percentiles` are those of the output watermark. `since` is the processing time (us) at which the output
    watermark reached where it is, and `finished` that at which the stage was done with the batch. `window` is the
    key and window in its own state with the least hold, where that holds the output back.
    """

    input: int
    output: int
    holder: str
    elements: int = 0
    panes: Mapping[str, int] = attrs.field(factory=dict)
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    live: int = 0
    keys: int = 0
    bytes: int = 0
    percentiles: Mapping[int, int] = attrs.field(factory=dict, converter=_percentiles)
    since: int | None = None
    finished: int | None = None
    upstream: Mapping[str, Upstream] = attrs.field(factory=dict, converter=_upstream)
    window: Holder | None = attrs.field(default=None, converter=_holder)

    @property
    def lag(self) -> int:
        """Event time, in microseconds, that the stage itself adds: input - output."""
        return self.input - self.output

    def quiet(self) -> StageRecord:
        """The same in a batch in which nothing came."""
        return attrs.evolve(self, elements=0, panes={}, dropped={}, finished=None)

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
            self.keys + other.keys,
            self.bytes + other.bytes,
            _least(self.percentiles, other.percentiles),
            None,
            max((one for one in (self.finished, other.finished) if one is not None), default=None),
            _heard(self.upstream, other.upstream),
            behind.window,
        )


@attrs.frozen
class BatchRecord:
    """A batch: its number, its processing time (us), every source and stage, and the rows that each sink got.

    `finished` is the processing time (us) at which all of it was done.
    """

    batch: int
    processing_time: int
    sources: Mapping[str, SourceRecord]
    stages: Mapping[str, StageRecord]
    finished: int | None = None
    sinks: Mapping[str, int] = attrs.field(factory=dict)

    def watermark(self, name: str) -> int:
        """The watermark (us) of a source, or the output watermark of a stage."""
        return self.sources[name].watermark if name in self.sources else self.stages[name].output

    def lag(self, watermark: int) -> int | None:
        """How far in event time (us) a watermark is behind processing time; None at the ends of time."""
        return self.processing_time - watermark if is_a_time(watermark) else None

    def input_system_lag(self, name: str) -> int:
        """How long (us) the oldest operation upstream of a stage took: the lag of its input in processing time."""
        upstream = [one for one in self.stages[name].upstream if one in self.stages]
        return max((self.output_system_lag(one) for one in upstream), default=0)

    def output_system_lag(self, name: str) -> int:
        """How long (us) it took until a stage was done with the batch: the lag of its output in processing time."""
        finished = self.stages[name].finished
        own = 0 if finished is None else finished - self.processing_time
        return max(own, self.input_system_lag(name))

    def following(self, before: BatchRecord | None) -> BatchRecord:
        """With the time since when each stage's output watermark has stood where it is. `before`: the batch before."""
        return attrs.evolve(
            self,
            stages={
                name: attrs.evolve(
                    stage, since=self._since(stage, before.stages.get(name) if before else None)
                )
                for name, stage in self.stages.items()
            },
        )

    def _since(self, stage: StageRecord, before: StageRecord | None) -> int:
        if before is None or before.since is None or before.output != stage.output:
            return self.processing_time
        return before.since

    def facts(self) -> dict[str, Any]:
        """As data that JSON can hold; the number of the batch comes first."""
        return attrs.asdict(self)

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(self.facts(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchRecord:
        """What `to_json` gave."""
        return cls.load(json.loads(text))

    @classmethod
    def load(cls, facts: Mapping[str, Any]) -> BatchRecord:
        """What `facts` gave."""
        sources = {name: SourceRecord(**source) for name, source in facts["sources"].items()}
        stages = {name: StageRecord(**stage) for name, stage in facts["stages"].items()}
        return cls(**{**facts, "sources": sources, "stages": stages})


def is_a_time(watermark: int) -> bool:
    """Whether it is somewhere in time: not before anything is known, nor at the end of input."""
    return MIN_TIME < watermark < GLOBAL_WINDOW_END - 1


def stage_record(step: Step, upstream: Mapping[str, Report], finished: int) -> StageRecord:
    """The record of one step, given where what is upstream stands, and when (us) the stage was done with the batch."""
    heard = {name: Upstream(report.watermark, report.idle) for name, report in upstream.items()}
    return StageRecord(
        step.watermarks.input,
        step.watermarks.output,
        held_by(step, heard),
        step.elements,
        _panes(step),
        {reason: count for reason, count in step.dropped.items() if count},
        step.live,
        step.keys,
        step.bytes,
        step.percentiles,
        finished=finished,
        upstream=heard,
        window=step.holder if _holds(step) else None,
    )


def source_record(name: str, inputs: Inputs, strategy: WatermarkStrategy) -> SourceRecord:
    """Where a source stands and what it waits for, without the counts of the batch."""
    state, holder = inputs.sources[name], inputs.holder(name, strategy)
    if holder is None:
        return SourceRecord(state.watermark, idle=state.idle, percentiles=state.percentiles)
    return SourceRecord(
        state.watermark,
        idle=state.idle,
        split=holder.split,
        since=inputs.times[name] - holder.silent,
        percentiles=state.percentiles,
        awaited=holder.awaited,
    )


def _panes(step: Step) -> dict[str, int]:
    """How many by timing, and how many earlier ones were taken back."""
    timings = step.panes.select(pl.when(PANE_RETRACTED).then(pl.lit("retracted")).otherwise(PANE_TIMING))
    return dict(sorted(timings.to_series().value_counts().rows()))


def held_by(step: Step, upstream: Mapping[str, Upstream]) -> str:
    """What the output watermark waits for: a key and window in state, else who is furthest behind upstream."""
    if step.watermarks.output >= MAX_TIME:
        return "nothing"
    return str(step.holder) if _holds(step) else furthest_behind(upstream)


def _holds(step: Step) -> bool:
    """Whether it is something in its own state that holds its output watermark."""
    marks: Watermarks = step.watermarks
    return step.holder is not None and marks.output < min(marks.input, MAX_TIME)


def furthest_behind(upstream: Mapping[str, Upstream]) -> str:
    """The name of who holds the input watermark: the least of those that are not idle, or of all if all are."""
    active = {name: one for name, one in upstream.items() if not one.idle} or upstream
    return min(active, key=lambda name: (active[name].watermark, name))


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _least(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {share: min(one[share], other[share]) for share in sorted({*one} & {*other})}


def _heard(one: Mapping[str, Upstream], other: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """Of two shards: what has not come to one of them has not come to the stage."""
    both = {name: [known[name] for known in (one, other) if name in known] for name in {**one, **other}}
    return {
        name: Upstream(min(report.watermark for report in heard), all(report.idle for report in heard))
        for name, heard in both.items()
    }


def merged(records: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Records of tasks or shards by name -> one record per name."""
    total: dict[str, Any] = {}
    for name, record in records:
        total[name] = total[name].plus(record) if name in total else record
    return total
