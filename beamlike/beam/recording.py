"""The records of a run: the watermarks of each transform by its label, what holds them, and the counts of elements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import attrs
from apache_beam.metrics import monitoring_infos

from beamlike.beam.columns import ColumnsNode
from beamlike.beam.described import source_of, stage_of
from beamlike.beam.flow import Flow, Parts
from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import StageNode
from beamlike.beam.sided import SidedNode
from beamlike.beam.stateful import StatefulNode
from beamlike.beam.units import Unit
from beamlike.records.graph import RunDescription, StageDescription
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, Upstream, furthest_behind
from beamlike.runtime.batch.build_records import stage_record
from beamlike.runtime.run.run_records import RunRecords
from beamlike.system.activity import tracked_by
from stages.progress.reports import Report
from stages.sides.declarations import ROLE_PREFIX
from stages.state.index import HoldOwner
from windowing.time import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from beamlike.beam.run import Run

PIPELINE = "beam"
"""The name of a run in its records, since a pipeline of Beam has none."""


class Recording:
    """Writes the record of each round of a run: a batch, in which each node of the run has a step.

    Args:
        path: The file; None if there are no records.
        run: The run, whose nodes exist.
        units: The units of its pipeline.
        flow: The collections of its fused stages.
    """

    def __init__(self, path: str | os.PathLike[str] | None, run: Run, units: list[Unit], flow: Flow) -> None:
        self.run, self.units, self.flow = run, units, flow
        self.writes = path is not None
        self.stages = {node.stage.name: node for node in run.nodes if isinstance(node, StageNode)}
        self.makers = {collection: unit.label for unit in units for collection in unit.outputs}
        self.reads = {collection: [*unit.reads.values()] for unit in units for collection in unit.outputs}
        self.parts = {
            unit.label: flow.parts(
                unit.outputs, {real for each in unit.reads.values() for real in self._real(each)}
            )
            for unit in units
        }
        simulated = run.streams.processing_time is not None
        fresh = not run.checkpoint.begun
        self.records = RunRecords.described(path, self._described, run.now, fresh=fresh, simulated=simulated)
        self.number = 0
        self.counted: dict[str, int] = {}
        before = self.records.last
        self.sources: dict[str, SourceRecord] = {} if before is None else {**before.sources}
        self.last: dict[str, StageRecord] = {} if before is None else {**before.stages}
        self._name_nodes()

    def _name_nodes(self) -> None:
        """Names the nodes by the labels of their units, for the view of a run that is in progress."""
        for node in self.run.nodes:
            labels = [unit.label for unit in self.units if self._contains(unit, node)]
            node.label = " + ".join(labels) or node.label

    def _contains(self, unit: Unit, node: StageNode | GroupNode | ColumnsNode) -> bool:
        if not isinstance(node, StageNode):
            return node.buffer in self.parts[unit.label].groups
        writers = [self.flow.writers.get(each) for each in unit.outputs]
        return any(writer is not None and writer.stage == node.stage.name for writer in writers)

    def follow(self, play: Callable[[Recording], Any]) -> Any:
        """Runs the pipeline with `play`, and closes the records."""
        try:
            with tracked_by(self.records.tracker):
                result = play(self)
            self.records.close("ended")
            return result
        except KeyboardInterrupt:
            self.records.close("stopped")
            raise
        finally:
            self.records.close("failed")

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains: the number of the next batch, and the elements counted before it."""
        yield "batch", (self.number, self.counted)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint. Batches after it are processed again, and their records replaced."""
        self.number, self.counted = saved["batch"]

    # The graph.

    def _described(self) -> RunDescription:
        stages = dict[str, StageDescription]()
        units = {unit.label: unit for unit in self.units}
        read = {
            label: [one for one in self._labels(unit.reads) if one in units] for label, unit in units.items()
        }
        for label in TopologicalSorter(read).static_order():
            unit = units[label]
            if unit.reads:
                inputs = tuple(read[label])
                level = 1 + max((stages[each].level for each in inputs if each in stages), default=0)
                described = stage_of(unit, [*self._nodes(unit)], inputs, level)
                sides = {name: (name,) for name in self._labels(unit.sides)}
                main = self._labels(unit.inputs) if sides else ()
                stages[unit.label] = attrs.evolve(described, sides=sides, main=main)
        sources = {unit.label: source_of(unit) for unit in self.units if not unit.reads}
        return RunDescription(PIPELINE, sources, stages)

    def _labels(self, reads: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.makers[each] for each in reads.values() if each in self.makers))

    def _nodes(self, unit: Unit) -> Iterator[StageNode | GroupNode | ColumnsNode]:
        """Yields the nodes that can hold the watermark of a unit."""
        parts: Parts = self.parts[unit.label]
        yield from (self.run.groups[each] for each in parts.groups if each in self.run.groups)
        yield from (self.stages[each] for each in parts.stages)

    # The records.

    def begin(self) -> None:
        self.records.tracker.begin(self.number)

    def end(self, *, moved: bool) -> None:
        if moved and self.writes:
            self._write()
        self.records.tracker.end()

    def _write(self) -> None:
        now, counts = self.run.now(), self._counts()
        new = {name: count - self.counted.get(name, 0) for name, count in counts.items()}
        self.counted = counts
        for unit in self.units:
            if unit.reads:
                record = self._stage(unit, new, now)
                self.last[unit.label] = record.following(self.last.get(unit.label), now)
            else:
                self.sources[unit.label] = self._source(unit, new, now)
        for node in self.run.nodes:
            if isinstance(node, GroupNode | StatefulNode | SidedNode):
                node.done = None
        batch = BatchRecord(self.number, now, {**self.sources}, {**self.last}, finished=self.run.now())
        self.records.write(batch)
        self.number += 1

    def _counts(self) -> dict[str, int]:
        """Returns the number of elements of each collection so far, as Beam's worker counts them."""
        counts = dict[str, int]()
        for infos in self.run.bundles.metrics.values():
            for info in infos:
                if info.urn == monitoring_infos.ELEMENT_COUNT_URN:
                    # The fused stages that write and read a collection both count it.
                    name = info.labels[monitoring_infos.PCOLLECTION_LABEL]
                    count = monitoring_infos.extract_counter_value(info)
                    counts[name] = max(counts.get(name, 0), count)
        return counts

    def _source(self, unit: Unit, new: Mapping[str, int], now: int) -> SourceRecord:
        elements = sum(new.get(each, 0) for each in unit.outputs)
        before = self.sources.get(unit.label)
        since = now if elements or before is None else before.since
        return SourceRecord(self._output(unit), elements, since=since)

    def _stage(self, unit: Unit, new: Mapping[str, int], now: int) -> StageRecord:
        upstream, sides = self._upstream(unit.inputs), self._sides(unit)
        record, held = self._own(unit, upstream, now)
        before = min((one.watermark for one in upstream.values()), default=MAX_TIME)
        output = self._output(unit)
        if held is not None and held.hold >= before:
            held = None
        holder = "nothing" if output >= MAX_TIME else str(held or furthest_behind(upstream or sides))
        return attrs.evolve(
            record,
            input=before,
            output=output,
            holder=holder,
            window=held,
            upstream=upstream,
            sides=sides,
            elements=sum(new.get(each, 0) for each in unit.inputs.values()),
            panes=record.panes if record.panes else _rows(sum(new.get(each, 0) for each in unit.outputs)),
        )

    def _own(
        self, unit: Unit, upstream: Mapping[str, Upstream], now: int
    ) -> tuple[StageRecord, HoldOwner | None]:
        """Returns the counts of the state of a unit, and what holds its output watermark, if its state does."""
        record = self.last.get(unit.label, StageRecord(MIN_TIME, MIN_TIME, "")).quiet()
        holders = list[HoldOwner]()
        for node in self._nodes(unit):
            if isinstance(node, GroupNode | StatefulNode | SidedNode) and node.done is not None:
                reports = {name: Report(one.watermark) for name, one in upstream.items()}
                record = stage_record(node.done, reports, now, {})
                if not isinstance(node, GroupNode):  # its rows are encoded bundles
                    record = attrs.evolve(record, panes={})
            holders += [] if (holder := node.holder()) is None else [holder]
        least = min(holders, key=lambda holder: holder.hold, default=None)
        return record, least

    def _output(self, unit: Unit) -> int:
        return min(map(self._watermark, unit.outputs), default=MAX_TIME)

    def _watermark(self, collection: str) -> int:
        """Returns the watermark (us) of a collection."""
        return min(map(self._real_watermark, self._real(collection)), default=MAX_TIME)

    def _real(self, collection: str) -> list[str]:
        """Returns the collection, or, if fusion has removed it, the collections that its unit reads."""
        if collection in self.flow.writers:
            return [collection]
        return [real for each in self.reads.get(collection, ()) for real in self._real(each)]

    def _real_watermark(self, collection: str) -> int:
        writer = self.flow.writers[collection]
        if writer.buffer is not None:
            return self.run.readable(writer.buffer)
        return self.stages[writer.stage].output

    def _upstream(self, reads: Mapping[str, str]) -> dict[str, Upstream]:
        reports = dict[str, Upstream]()
        for collection in reads.values():
            if (label := self.makers.get(collection)) is not None:
                mark = self._watermark(collection)
                before = reports.get(label)
                reports[label] = Upstream(mark if before is None else min(mark, before.watermark))
        return reports

    def _sides(self, unit: Unit) -> dict[str, Upstream]:
        known = {self.makers[each]: each for each in unit.sides.values() if each in self.makers}
        return {f"{ROLE_PREFIX}{name}": Upstream(self._watermark(each)) for name, each in known.items()}


def _rows(count: int) -> dict[str, Any]:
    return {"rows": count} if count else {}
