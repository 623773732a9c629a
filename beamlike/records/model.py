"""The record of a batch: all watermarks and what holds each of them, and the counts of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import attrs

from beamlike.records.shares import WindowShare, merged_shares
from beamlike.records.shown import ShownBatch, ShownSource, ShownStage
from beamlike.rows.uses import StepUsage
from beamlike.system.printable import printable
from stages.facts import SPARSE, from_json, to_json
from stages.progress.arrivals import merge_records
from stages.progress.reports import held_percentiles
from stages.state.index import HoldOwner
from stages.strategies.histogram import Histogram, merge_histograms
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME


@attrs.frozen
class SplitRecord:
    """A split of a source: its watermark (us), and the processing time (us) of its last rows, if it has had any."""

    watermark: int
    spoke: int | None = None


def _readable(splits: Mapping[str, SplitRecord]) -> dict[str, SplitRecord]:
    """Makes the names of the splits printable, since names come from data."""
    return {printable(name): one for name, one in splits.items()}


MOST_SPLITS: Final = 20
"""The greatest number of splits of a source in a record; only those that are furthest behind are recorded."""

MOST_UNREAD: Final = 20
"""The greatest number of changed files, and of columns that are left out, in the record of a source."""


def readable_pairs(pairs: Mapping[str, str]) -> dict[str, str]:
    """Returns the first `MOST_UNREAD` pairs. Names and texts are made printable, since both come from data."""
    return {printable(name): printable(text) for name, text in islice(pairs.items(), MOST_UNREAD)}


@attrs.frozen(repr=False)
class SourceRecord(ShownSource):
    r"""A source in a batch: its watermark (us) after the batch, and the counts of its rows.

    Of the rows `read` (None: not counted), `elements` got an event time and were passed on, and `dead_letters` failed
    in the reader, the event time or a step before it; the other rows were filtered by steps.

    `split`: the split that holds the watermark; None if splits are not tracked. `awaited`: the splits that must report
    before there is a watermark. `since`: the processing time (us) since when no rows of the source have arrived.
    `idle`: the source does not hold the watermarks of stages. `splits`: those that are furthest behind.

    `changed`: the files that changed after they were listed, or came after the source was over, each with the kind of
    change. `left_out`: columns of files that a source without `schema=` does not read, each with a file that has it. A
    record has at most `MOST_UNREAD` of each.
    `arrivals`: the event times of the elements by split, in the form of `to_record` of `stages.progress.arrivals`.
    """

    watermark: int
    elements: int = 0
    dead_letters: int = 0
    idle: bool = attrs.field(default=False, kw_only=True)
    split: str | None = attrs.field(
        default=None, converter=attrs.converters.optional(printable), kw_only=True
    )
    since: int | None = attrs.field(default=None, kw_only=True)
    percentiles: Mapping[int, int] = attrs.field(factory=dict, kw_only=True)
    awaited: str = attrs.field(default="", kw_only=True)
    read: int | None = attrs.field(default=None, kw_only=True)
    splits: Mapping[str, SplitRecord] = attrs.field(factory=dict, converter=_readable, kw_only=True)
    changed: Mapping[str, str] = attrs.field(
        factory=dict, converter=readable_pairs, metadata=SPARSE, kw_only=True
    )
    left_out: Mapping[str, str] = attrs.field(
        factory=dict, converter=readable_pairs, metadata=SPARSE, kw_only=True
    )
    arrivals: dict[str, Any] = attrs.field(factory=dict, metadata=SPARSE, repr=False, kw_only=True)

    @property
    def over(self) -> bool:
        """True if the source has ended: its watermark is at the end of time."""
        return self.watermark >= MAX_TIME

    @property
    def filtered(self) -> int | None:
        """The number of rows that steps filtered, minus those that they added; None if rows read were not counted."""
        return None if self.read is None else self.read - self.elements - self.dead_letters

    def then(self, later: SourceRecord) -> SourceRecord:
        """Merges the records of two consecutive batches: the state after the later one, and the sums of the counts."""
        return attrs.evolve(
            later,
            elements=self.elements + later.elements,
            dead_letters=self.dead_letters + later.dead_letters,
            read=_sum(self.read, later.read),
            changed={**self.changed, **later.changed},
            left_out={**later.left_out, **self.left_out},
            arrivals=merge_records(self.arrivals, later.arrivals),
        )

    def plus(self, other: SourceRecord) -> SourceRecord:
        """Merges the records of two tasks of a batch. The one with the greater watermark says what holds it."""
        ahead = max(self, other, key=lambda task: task.watermark)
        return attrs.evolve(
            ahead,
            elements=self.elements + other.elements,
            dead_letters=self.dead_letters + other.dead_letters,
            idle=self.idle and other.idle,
            read=_sum(self.read, other.read),
            changed={**self.changed, **other.changed},
            left_out={**other.left_out, **self.left_out},
            arrivals={},
        )


@attrs.frozen
class Upstream:
    """The last report of a source or stage to a stage that reads it: its watermark (us), and True if it is idle."""

    watermark: int
    idle: bool = False


def _with_readable_key(window: HoldOwner | None) -> HoldOwner | None:
    """Makes the key of the window printable, since keys come from data."""
    return None if window is None else attrs.evolve(window, key=printable(window.key))


@attrs.frozen(repr=False)
class StageRecord(ShownStage):
    r"""A stage in a batch: its watermarks (us) after the batch, what holds the output watermark (`holder`), and counts.

    `elements` arrived. `placed` counts each element once for every window that contains it (None: not counted). Of
    these and of those that were `pending` before, `emitted` are in a pane for the first time, `dropped` were dropped,
    and `pending` wait in the state for a pane. `dropped` is by reason: "late" (behind the watermark), "closed" (the
    trigger had finished), or "no window" (in no window, which counts as one placed).

    `panes`: counts by timing, and of those "retracted"; or "rows" for output that is not panes. `live`: the number of
    rows, each of a key and window, in the state. `keys`: the number of keys; a key in several buckets of the state
    counts in each. `bytes`: the size of the state.

    `percentiles`: the percentiles of the output watermark; before a call of `following`, those of the input. `holds`:
    the holds of pending elements, of one shard or of all, which bound the output percentiles.

    `since`: the processing time (us) at which the output watermark reached its value. `finished`: the processing time
    (us) at which the stage was done with the batch.

    `window`: the key and window with the least hold in the stage's own state, if that holds the output watermark.
    `timers`: the number of pending timers. `fired`: the number of timers that fired in this batch. `sides`: the inputs
    that are not the main input, by the name of their clock.

    `drained`: the number of panes of windows that the end of the run closed before the watermark passed them.

    `shares`: the stated completeness of windows with panes, if the pipeline asks for it; of this batch only.
    `promised`: the number of on-time panes by how they kept the promise, such as "kept".

    `shards`: the number of shards that had the batch, if they are several, and `most` the elements of the shard that
    received most of them.
    """

    input: int
    output: int
    holder: str = attrs.field(converter=printable)
    elements: int = attrs.field(default=0, kw_only=True)
    panes: Mapping[str, int] = attrs.field(factory=dict, kw_only=True)
    dropped: Mapping[str, int] = attrs.field(factory=dict, kw_only=True)
    live: int = attrs.field(default=0, kw_only=True)
    keys: int = attrs.field(default=0, kw_only=True)
    bytes: int = attrs.field(default=0, kw_only=True)
    percentiles: Mapping[int, int] = attrs.field(factory=dict, kw_only=True)
    since: int | None = attrs.field(default=None, kw_only=True)
    finished: int | None = attrs.field(default=None, kw_only=True)
    upstream: Mapping[str, Upstream] = attrs.field(factory=dict, kw_only=True)
    window: HoldOwner | None = attrs.field(default=None, converter=_with_readable_key, kw_only=True)
    placed: int | None = attrs.field(default=None, kw_only=True)
    emitted: int | None = attrs.field(default=None, kw_only=True)
    pending: int | None = attrs.field(default=None, kw_only=True)
    holds: Histogram = attrs.field(factory=dict, metadata=SPARSE, kw_only=True)
    timers: int = attrs.field(default=0, metadata=SPARSE, kw_only=True)
    fired: int = attrs.field(default=0, metadata=SPARSE, kw_only=True)
    sides: Mapping[str, Upstream] = attrs.field(factory=dict, metadata=SPARSE, kw_only=True)
    drained: int = attrs.field(default=0, metadata=SPARSE, kw_only=True)
    shares: tuple[WindowShare, ...] = attrs.field(default=(), metadata=SPARSE, kw_only=True)
    promised: Mapping[str, int] = attrs.field(factory=dict, metadata=SPARSE, kw_only=True)
    shards: int = attrs.field(default=0, metadata=SPARSE, kw_only=True)
    most: int = attrs.field(default=0, metadata=SPARSE, kw_only=True)

    @property
    def skew(self) -> float | None:
        """The elements of the largest shard, divided by the mean of all; None without elements or for one shard."""
        return self.most * self.shards / self.elements if self.shards > 1 and self.elements else None

    @property
    def lag(self) -> int:
        """The difference of input and output watermark (us): the delay of event time that the stage itself adds."""
        return self.input - self.output

    def quiet(self) -> StageRecord:
        """Returns the record that the stage has in a batch in which nothing arrives."""
        none = None if self.placed is None else 0
        counts: dict[str, Any] = dict.fromkeys(("elements", "fired", "drained", "most"), 0)
        by_name: dict[str, Any] = {name: {} for name in ("panes", "dropped", "promised")}
        quiet = attrs.evolve(self, **counts, **by_name, shares=(), finished=None)
        return attrs.evolve(quiet, placed=none, emitted=none)

    def then(self, later: StageRecord) -> StageRecord:
        """Merges the records of two consecutive batches: the state after the later one, and the sums of the counts."""
        return attrs.evolve(
            later,
            elements=self.elements + later.elements,
            panes=_added(self.panes, later.panes),
            dropped=_added(self.dropped, later.dropped),
            placed=_sum(self.placed, later.placed),
            emitted=_sum(self.emitted, later.emitted),
            fired=self.fired + later.fired,
            drained=self.drained + later.drained,
            promised=_added(self.promised, later.promised),
            most=self.most + later.most,
        )

    def plus(self, other: StageRecord) -> StageRecord:
        """Merges the records of two shards: the least watermarks, and what holds those of the shard that is behind."""
        # The sort key also decides between equal watermarks: the order of the shards does not matter.
        behind = min(self, other, key=lambda shard: (shard.output, shard.input, shard.holder))
        return StageRecord(
            min(self.input, other.input),
            min(self.output, other.output),
            behind.holder,
            elements=self.elements + other.elements,
            panes=_added(self.panes, other.panes),
            dropped=_added(self.dropped, other.dropped),
            live=self.live + other.live,
            keys=self.keys + other.keys,
            bytes=self.bytes + other.bytes,
            percentiles=_least(self.percentiles, other.percentiles),
            since=None,
            finished=max((one for one in (self.finished, other.finished) if one is not None), default=None),
            upstream=_heard(self.upstream, other.upstream),
            window=behind.window,
            placed=_sum(self.placed, other.placed),
            emitted=_sum(self.emitted, other.emitted),
            pending=_sum(self.pending, other.pending),
            holds=merge_histograms(self.holds, other.holds),
            timers=self.timers + other.timers,
            fired=self.fired + other.fired,
            sides=_heard(self.sides, other.sides),
            drained=self.drained + other.drained,
            shares=merged_shares(self.shares, other.shares),
            promised=_added(self.promised, other.promised),
            shards=(self.shards or 1) + (other.shards or 1),
            most=max(one.most if one.shards else one.elements for one in (self, other)),
        )

    def following(self, before: StageRecord | None, now: int) -> StageRecord:
        """Returns the record with `since` and the output percentiles, which depend on the record of the batch before.

        `now`: the processing time (us) of this batch.
        """
        reached = {} if before is None else before.percentiles
        stands = before is not None and before.output == self.output and before.since is not None
        return attrs.evolve(
            self,
            percentiles=held_percentiles(self.percentiles, self.holds, self.output, reached),
            holds={},
            since=before.since if before is not None and stands else now,
        )


@attrs.frozen(repr=False)
class BatchRecord(ShownBatch):
    """The record of a batch.

    Args:
        batch: The number of the batch.
        processing_time: The processing time of the batch (us).
        sources: The record of each source.
        stages: The record of each stage.
        finished: The processing time (us) at which the whole batch was done.
        sinks: The number of rows that each sink received.
        dead_letters: The number of dead letters of each stage, and of each step after the watermark. Dead letters
            before it are counted by their source.
        errors: The reason of the last dead letter, for each source and step that has some.
        batches: The number of batches that are merged in the record, up to `batch`; more than one only in old records.
        uses: The steps that could use at least one of their rows, and those that could use none.
        retries: The number of requests that were repeated, as a service was briefly unwell.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Memory())
        <Collection 'plays': user String, points Int64, at String>
        >>> first, *others = p.run().batches
        >>> first.sources["plays"].elements, first.sinks
        (1, {'out': 1})
    """

    batch: int
    processing_time: int
    sources: Mapping[str, SourceRecord]
    stages: Mapping[str, StageRecord]
    finished: int | None = attrs.field(default=None, kw_only=True)
    sinks: Mapping[str, int] = attrs.field(factory=dict, kw_only=True)
    dead_letters: Mapping[str, int] = attrs.field(factory=dict, kw_only=True)
    errors: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    batches: int = attrs.field(default=1, kw_only=True)
    uses: StepUsage = attrs.field(factory=StepUsage, kw_only=True)
    retries: int = attrs.field(default=0, kw_only=True, metadata=SPARSE)

    @property
    def set_aside(self) -> Counter[str]:
        """The number of dead letters of each source and step that has some."""
        counts = Counter({name: source.dead_letters for name, source in self.sources.items()})
        counts.update(self.dead_letters)
        return +counts

    def watermark(self, name: str) -> int:
        """Returns the watermark (us) of a source, or the output watermark of a stage."""
        return self.sources[name].watermark if name in self.sources else self.stages[name].output

    def lag(self, watermark: int) -> int | None:
        """Returns the duration (us) by which a watermark is behind processing time; None at the ends of time."""
        return self.processing_time - watermark if is_a_time(watermark) else None

    def input_system_lag(self, name: str) -> int:
        """Returns the duration (us) of the oldest operation before a stage: the processing-time lag of its input."""
        upstream = [one for one in self.stages[name].upstream if one in self.stages]
        return max((self.output_system_lag(one) for one in upstream), default=0)

    def output_system_lag(self, name: str) -> int:
        """Returns the duration (us) until a stage was done with the batch: the processing-time lag of its output."""
        finished = self.stages[name].finished
        own = 0 if finished is None else finished - self.processing_time
        return max(own, self.input_system_lag(name))

    def following(self, before: BatchRecord | None) -> BatchRecord:
        """Returns the record after the batch `before`, on which `since` and the output percentiles of stages depend."""
        earlier = {} if before is None else before.stages
        stages = {
            name: stage.following(earlier.get(name), self.processing_time)
            for name, stage in self.stages.items()
        }
        return attrs.evolve(self, stages=stages)

    def then(self, later: BatchRecord) -> BatchRecord:
        """Merges the records of this and of later batches: the state after the last one, and the sums of the counts."""
        return attrs.evolve(
            later,
            sources=_each(self.sources, later.sources),
            stages=_each(self.stages, later.stages),
            sinks=_added(self.sinks, later.sinks),
            dead_letters=_added(self.dead_letters, later.dead_letters),
            errors={**self.errors, **later.errors},
            batches=self.batches + later.batches,
            uses=self.uses.then(later.uses),
            retries=self.retries + later.retries,
        )

    def to_json(self) -> str:
        """Converts the record to a line of JSON, which begins with the number of the batch."""
        return to_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchRecord:
        """Reads the result of `to_json`."""
        return from_json(cls, text)


def is_a_time(watermark: int) -> bool:
    """True for a watermark that is a time: there was a report, and the input has not ended."""
    return MIN_TIME < watermark < GLOBAL_WINDOW_END - 1


def furthest_behind(upstream: Mapping[str, Upstream]) -> str:
    """Returns the input that holds the input watermark: the least that is not idle, or the least if all are idle."""
    active = {name: one for name, one in upstream.items() if not one.idle} or upstream
    return min(active, key=lambda name: (active[name].watermark, name))


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _each(before: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Merges records by name. A record that only the earlier batch has is kept, since its counts matter."""
    both = {name: before[name].then(later[name]) for name in later if name in before}
    return {**before, **later, **both}


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _least(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {share: min(one[share], other[share]) for share in sorted({*one} & {*other})}


def _heard(one: Mapping[str, Upstream], other: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """Merges the inputs that two shards know: each has the least watermark that a shard has received from it."""
    both = {name: [known[name] for known in (one, other) if name in known] for name in {**one, **other}}
    return {
        name: Upstream(min(report.watermark for report in heard), all(report.idle for report in heard))
        for name, heard in both.items()
    }


def merged(records: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Merges the records of tasks or shards, by name."""
    total: dict[str, Any] = {}
    for name, record in records:
        total[name] = total[name].plus(record) if name in total else record
    return total
