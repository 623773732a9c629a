"""The collections of a fused pipeline: which fused stage or grouping writes each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import attrs
from apache_beam.runners.worker import bundle_processor

from beamlike.beam.phases import is_splittable, payload_of, stateful_payload


@attrs.frozen
class Writer:
    """The transform that writes a collection: a read of a buffer, or another transform of a fused stage.

    `holds`: the transform can hold the watermark of the stage, by state, residuals or side inputs.
    """

    stage: str
    reads: tuple[str, ...] = ()
    buffer: bytes | None = None
    holds: bool = False


@attrs.frozen
class Parts:
    """The parts of a unit that can hold its watermark: the buffers of groupings, and the names of fused stages."""

    groups: tuple[bytes, ...]
    stages: tuple[str, ...]


@attrs.define
class Flow:
    """The writer of each collection, and the collections that are written to each buffer."""

    writers: dict[str, Writer] = attrs.field(factory=dict)
    written: dict[bytes, list[str]] = attrs.field(factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, stages: Iterable[Any]) -> Flow:
        """Reads the transforms of fused stages.

        Must be called before the context of the run exists, which replaces the buffers by the ports of its data
        channel.
        """
        flow = cls()
        for stage in stages:
            for transform in stage.transforms:
                flow._add(stage.name, transform)
        return flow

    def _add(self, stage: str, transform: Any) -> None:
        urn, buffer = transform.spec.urn, transform.spec.payload
        if urn == bundle_processor.DATA_OUTPUT_URN:
            self.written[buffer] += transform.inputs.values()
            return
        is_read = urn == bundle_processor.DATA_INPUT_URN
        for collection in transform.outputs.values():
            if not is_read:
                reads = tuple(transform.inputs.values())
                self.writers[collection] = Writer(stage, reads, holds=_holds(transform))
            elif collection not in self.writers or self.writers[collection].buffer is not None:
                self.writers[collection] = Writer(stage, buffer=buffer)

    def parts(self, outputs: Iterable[str], inputs: Iterable[str]) -> Parts:
        """Returns the parts of a unit, with these inputs and outputs, that can hold its watermark."""
        seen, groups, stages = {*inputs}, dict[bytes, None](), dict[str, None]()
        left = [each for each in outputs if each in self.writers]
        while left:
            collection = left.pop()
            if collection in seen:
                continue
            seen.add(collection)
            writer = self.writers[collection]
            if writer.holds:
                stages[writer.stage] = None
            reads = writer.reads
            if writer.buffer is not None:
                groups[writer.buffer] = None
                reads = tuple(self.written[writer.buffer])
            left += [each for each in reads if each in self.writers]
        return Parts(tuple(groups), tuple(stages))


def _holds(transform: Any) -> bool:
    payload = payload_of(transform)
    has_sides = payload is not None and bool(payload.side_inputs)
    return is_splittable(transform) or has_sides or stateful_payload(transform) is not None
