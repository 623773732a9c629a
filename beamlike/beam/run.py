"""A run of a Beam pipeline: its fused stages and groupings, their watermarks, and the order of their steps."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Protocol

from apache_beam.runners import runner as beam_runner
from apache_beam.runners.common import ENCODED_IMPULSE_VALUE
from apache_beam.runners.portability.fn_api_runner import fn_runner, translations
from apache_beam.runners.portability.fn_api_runner.translations import only_element, split_buffer_id
from apache_beam.runners.worker import bundle_processor

from beamlike.beam.bundles import Bundles
from beamlike.beam.checkpoint import NoCheckpoint, Part
from beamlike.beam.columns import ColumnsNode
from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import Context, StageNode
from beamlike.beam.phases import COLUMNS, STREAM, payload_of, stateful_payload
from beamlike.beam.sided import SidedNode
from beamlike.beam.source_node import SourceNode
from beamlike.beam.stateful import StatefulNode
from beamlike.beam.streams import Streams
from beamlike.system.activity import activity
from stages.sides.declarations import ROLE_PREFIX
from windowing.time import MAX_TIME

_POLL: Final = 1.0
"""The longest sleep (s) while timers or residuals wait for the clock of this machine."""


class Rounds(Part, Protocol):
    """An observer of the rounds of a run, in each of which all nodes have a step."""

    def begin(self) -> None:
        """Starts a round."""

    def end(self, *, moved: bool) -> None:
        """Ends a round. `moved`: an element has been emitted, or a watermark has moved."""


def inputs_of(stage: Any) -> dict[str, bytes]:
    """Returns the buffers that a fused stage reads by the name of the reading transform.

    Must be called before the context of the run exists, which replaces the buffers by the ports of its data channel.
    """
    return {
        transform.unique_name: transform.spec.payload
        for transform in stage.transforms
        if transform.spec.urn == bundle_processor.DATA_INPUT_URN
    }


class Run:
    """The nodes of a pipeline in topological order, connected by buffers.

    fused stage  --send-->  pending elements of fused stages, also of their side inputs
                 --send-->  pending elements of a grouping  --panes-->  pending elements of fused stages
    """

    def __init__(
        self,
        runner: Any,
        context: Context,
        handlers: Any,
        streams: list[Any],
        checkpoint: NoCheckpoint,
    ) -> None:
        self.checkpoint = checkpoint
        self.context, self.bundles = context, Bundles(runner, context, handlers)
        self.streams = Streams(streams, context, self._send)
        self.sources: dict[bytes, SourceNode] = {}
        self.groups: dict[bytes, GroupNode | ColumnsNode] = {}
        self.nodes: list[StageNode | GroupNode | ColumnsNode] = []
        self.writers = defaultdict[bytes, list[StageNode]](list)
        self.readers = defaultdict[bytes, list[tuple[StageNode, str]]](list)
        self.side_readers = defaultdict[bytes, list[tuple[StageNode, str]]](list)

    def build(self, stages: Iterable[Any], inputs: Mapping[str, Mapping[str, bytes]]) -> None:
        """Creates the nodes of fused stages, whose input buffers are `inputs`, and of the groupings between them."""
        for stage in stages:
            node = self._node(stage, inputs[stage.name])
            for side in node.sides.inputs.values():
                self.side_readers[side.buffer].append((node, side.name))
            for name, buffer in node.inputs.items():
                self.readers[buffer].append((node, name))
                self._declare_group(buffer)
                if buffer == translations.IMPULSE_BUFFER:
                    node.pending[name].append(ENCODED_IMPULSE_VALUE)
            for buffer in node.outputs.values():
                self.writers[buffer].append(node)
            self.nodes.append(node)
        for buffer in list(self.writers):  # a grouping whose panes are not read receives elements, too
            self._declare_group(buffer)

    def read(self, transforms: Iterable[Any], held: ExitStack) -> None:
        """Creates the nodes of sources of this engine, which are closed with `held`."""
        for transform in transforms:
            node = SourceNode(self.context, transform, self.checkpoint.store, self.now, held)
            self.sources[node.buffer] = node

    @property
    def parts(self) -> dict[str, Part]:
        """The parts that a checkpoint contains."""
        nodes: dict[str, Part] = {f"node {node.key}": node for node in self.nodes}
        nodes |= {f"source {node.key}": node for node in self.sources.values()}
        return {**nodes, "metrics": self.bundles, "streams": self.streams}

    def described(self) -> dict[str, str]:
        """Returns a description of the pipeline. A checkpoint continues only if it is the same."""
        nodes = [*self.nodes, *self.sources.values()]
        return {name: text for node in nodes for name, text in node.described().items()}

    def play(self, rounds: Rounds) -> Any:
        """Runs the pipeline to its end, and returns Beam's result. Continues from the checkpoint, if there is one."""
        self.checkpoint.follow({**self.parts, "records": rounds}, self.described())
        self._settle(rounds)
        self.streams.play(lambda: self._settle(rounds))
        return fn_runner.RunnerResult(beam_runner.PipelineState.DONE, self.bundles.metrics)

    def _node(self, stage: Any, inputs: Mapping[str, bytes]) -> StageNode:
        manager = self.context.bundle_manager_for(stage)
        if any(stateful_payload(transform) is not None for transform in stage.transforms):
            return StatefulNode(stage, manager, inputs, self.bundles, self.now, self.checkpoint.store)
        if any(payload.side_inputs for each in stage.transforms if (payload := payload_of(each)) is not None):
            return SidedNode(stage, manager, inputs, self.bundles, self.checkpoint.store)
        return StageNode(stage, manager, inputs)

    def _declare_group(self, buffer: bytes) -> None:
        if buffer == translations.IMPULSE_BUFFER or buffer in self.groups:
            return
        kind, name = split_buffer_id(buffer)
        if kind == "group":
            transform = self.context.pipeline_components.transforms[name]
            store = self.checkpoint.store
            node: GroupNode | ColumnsNode
            if transform.spec.urn == COLUMNS:
                node = ColumnsNode(buffer, self.context, transform, store, self.now)
            else:
                collection = only_element(transform.inputs.values())
                node = GroupNode(name, self.context, collection, buffer, store)
            self.groups[buffer] = node
            self.nodes.append(node)

    # Watermarks.

    def _written(self, buffer: bytes) -> int:
        """Returns the watermark (us) of the elements that are written to a buffer."""
        return min((node.output for node in self.writers[buffer]), default=MAX_TIME)

    def _read(self, node: StageNode) -> int:
        """Returns the input watermark (us) of a fused stage."""
        return min(map(self.readable, node.inputs.values()), default=MAX_TIME)

    def readable(self, buffer: bytes) -> int:
        """Returns the watermark (us) of the elements that are read from a buffer."""
        if buffer == translations.IMPULSE_BUFFER:
            return MAX_TIME
        kind, name = split_buffer_id(buffer)
        if buffer in self.sources:
            return self.sources[buffer].watermark
        if kind == STREAM:
            return self.streams.watermarks[name]
        return self.groups[buffer].output if buffer in self.groups else self._written(buffer)

    def now(self) -> int:
        """Returns the processing time (us)."""
        simulated = self.streams.processing_time
        return time.time_ns() // 1000 if simulated is None else simulated

    # Steps.

    def _settle(self, rounds: Rounds) -> None:
        """Steps all nodes until none has work. Sleeps while timers or residuals wait for the clock of this machine."""
        while True:
            rounds.begin()
            steps = [self._read_source(node) for node in self.sources.values()]
            steps += [self._step(node) for node in self.nodes]
            moved = any(steps)
            rounds.end(moved=moved)
            self.checkpoint.commit()
            for source in self.sources.values():
                source.committed()
            if moved:
                continue
            wakes = self._wakes()
            if not wakes:
                return
            time.sleep(min(max(0.0, min(wakes) - time.time()), _POLL) + 0.001)

    def _wakes(self) -> list[float]:
        stages = [node for node in self.nodes if isinstance(node, StageNode)]
        nodes: list[StageNode | SourceNode] = [*stages, *self.sources.values()]
        if self.streams.processing_time is None:
            return [wake for node in nodes for wake in node.wakes()]
        # Timers wait for the clock of the stream.
        return [wake for node in stages for wake in StageNode.wakes(node)]

    def _read_source(self, node: SourceNode) -> bool:
        """Reads a batch of a source; true if it has elements, or if its watermark has moved."""
        with activity("source", node.label):
            data, moved = node.step()
        self._send(node.buffer, data)
        return moved

    def _step(self, node: StageNode | GroupNode | ColumnsNode) -> bool:
        """Steps a node; true if it has emitted elements, or if its watermark has moved."""
        with activity("stage", node.label):
            return self._stepped(node)

    def _stepped(self, node: StageNode | GroupNode | ColumnsNode) -> bool:
        if not isinstance(node, StageNode):
            return self._step_group(node)
        return (
            self._step_engine(node) if isinstance(node, StatefulNode | SidedNode) else self._step_stage(node)
        )

    def _step_group(self, node: GroupNode | ColumnsNode) -> bool:
        before = node.output
        panes = node.step(self._written(node.buffer), self.now())
        for reader, name in self.readers[node.buffer]:
            reader.pending[name] += [panes] if panes else []
        return bool(panes) or node.output != before

    def _step_stage(self, node: StageNode) -> bool:
        node.take_due(self.bundles.now())
        watermark, moved = self._read(node), node.has_pending
        if moved:
            data, node.pending = node.pending, {name: [] for name in node.inputs}
            self._send_all(self.bundles.process(node, data, {}))
        return node.advance(watermark) or moved

    def _step_engine(self, node: StatefulNode | SidedNode) -> bool:
        sides = {
            f"{ROLE_PREFIX}{side.name}": self._written(side.buffer) for side in node.sides.inputs.values()
        }
        output, moved = node.step(self._read(node), sides)
        self._send_all(output)
        return moved

    def _send_all(self, output: Iterable[tuple[bytes, bytes]]) -> None:
        for buffer, data in output:
            self._send(buffer, data)

    def _send(self, buffer: bytes, data: bytes) -> None:
        """Adds elements to the nodes and sides that read a buffer."""
        if not data:
            return
        if buffer in self.groups:
            self.groups[buffer].pending.append(data)
            return
        for node, name in self.readers[buffer]:
            node.pending[name].append(data)
        for node, name in self.side_readers[buffer]:
            node.side_pending[name].append(data)
