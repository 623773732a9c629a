"""The plan of a Beam pipeline: its groupings and ParDos with state are stages, and its other fused stages are steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.worker import bundle_processor

from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import StageNode
from beamlike.beam.planned.job import METRICS, Job
from beamlike.beam.planned.operators import JobHost, PlannedParDo
from beamlike.beam.planned.residuals import SplittableParDo
from beamlike.beam.planned.sources import Impulse, StreamWatermark, impulse_beside_streams, scripts_of
from beamlike.beam.planned.steps import (
    CHUNKS,
    Bundle,
    Divided,
    Elements,
    Encoded,
    Firings,
    Keyed,
    Only,
    Panes,
    Placed,
    SideElements,
)
from beamlike.beam.recording import PIPELINE
from beamlike.beam.sided import SidedNode, SidesParDo
from beamlike.beam.stateful import StatefulNode
from beamlike.beam.strategies import coder_text
from beamlike.beam.streams import Streams
from beamlike.io.base import Sink, Source
from beamlike.io.memory import Memory
from beamlike.logical.watermark import NoEventTime
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from stages.graph import StageGraph
from stages.operator import MAIN, Operator
from stages.sides.declarations import ROLE_PREFIX
from stages.stage import Stage
from windowing.columns import PANE_FIRST, PANE_INDEX, PANE_LAST, PANE_NONSPECULATIVE_INDEX, PANE_TIMING

OUTPUT: Final = "metrics"
"""The name of the sink, which receives the metrics of all bundles."""
_BUFFERS: Final = (bundle_processor.DATA_INPUT_URN, bundle_processor.DATA_OUTPUT_URN)
_PANES: Final = (PANE_FIRST, PANE_LAST, PANE_TIMING, PANE_INDEX, PANE_NONSPECULATIVE_INDEX)


def labels_of(node: StageNode) -> str:
    """Returns the labels of the transforms of a fused stage."""
    names = [each.unique_name for each in node.stage.transforms if each.spec.urn not in _BUFFERS]
    return " + ".join(sorted(names)) or node.key


def waits(node: StageNode | GroupNode) -> bool:
    """True if a node is a fused stage that needs state: for itself, for its sides, or for the rest of the input of a
    splittable DoFn.
    """
    return isinstance(node, StatefulNode | SidedNode) or (isinstance(node, StageNode) and node.splittable)


@attrs.define
class PlanBuilder:
    """The routes between the sources, stages and the sink of a pipeline.

    Attributes:
        job: The pipeline, which the steps of the plan have.
        streams: The TestStreams of the pipeline.
        reads: The label and the source of each collection that is read from a source of this engine.
        fired: The collections that are read as sides, and whose firings replace each other.
    """

    job: Job
    streams: list[Any]
    reads: Mapping[str, tuple[str, SourcePlan]]
    fired: frozenset[str] = frozenset()
    sources: dict[str, SourcePlan] = attrs.field(factory=dict, init=False)
    stages: dict[str, tuple[Operator, tuple[Route, ...]]] = attrs.field(factory=dict, init=False)

    def plan(self, metrics: Memory) -> Plan:
        """Returns the plan, which writes the metrics of its bundles to `metrics`."""
        self._add_sources()
        for buffer, group in self.run.groups.items():
            name, fires = self.name_of(group), self._reaches_fired(buffer)
            panes = Firings if fires else Panes
            way = (panes(f"{name}.panes", self.job, group.coder_text, buffer, self._columns(group)),)
            self.stages[name] = group.stage.operator, tuple(self._read(buffer, way, fires=fires))
        for node in self.run.nodes:
            if waits(node):
                self.stages[self.name_of(node)] = self._operator(node), tuple(self._after(node, ()))
        return self._connected(metrics)

    @property
    def run(self) -> Any:
        """The nodes of the pipeline in this process."""
        return self.job.worker().run

    def _operator(self, node: StageNode) -> Operator:
        host, said = JobHost(self.job, node.key), labels_of(node)
        sides = node.sides.declared(host, self.fired)
        if isinstance(node, StatefulNode):
            return PlannedParDo(host, node.lateness, sides, node.side_lateness, said)
        if node.splittable:
            simulated = bool(self.streams)
            return SplittableParDo(host, sides, node.side_lateness, said, simulated=simulated)
        return SidesParDo(host, sides, node.side_lateness, said)

    def name_of(self, node: StageNode | GroupNode) -> str:
        """Returns the name of the stage of a node: the label of the transform that has the state."""
        transforms = self.run.context.pipeline_components.transforms
        if isinstance(node, GroupNode):
            label: str = transforms[node.key].unique_name
            return label
        return node.first.removesuffix("/Process") if node.splittable else node.first

    def _inputs(self, node: StageNode) -> set[str]:
        """Returns the collections that a fused stage reads from buffers."""
        reads = [each for each in node.stage.transforms if each.unique_name in node.inputs]
        return {collection for each in reads for collection in each.outputs.values()}

    def _columns(self, group: GroupNode) -> tuple[str, ...]:
        return (*group.schema, *_PANES)

    # Sources.

    def _add_sources(self) -> None:
        scripts = scripts_of(self.streams, self.run.context) if self.streams else {}
        for buffer, script in scripts.items():
            self._add_source(self._label(buffer), script, buffer, timed=True)
        for collection, (label, read) in self.reads.items():
            buffer = Streams.buffer(collection)
            way = Encoded(f"{label}.rows", self.job, label, buffer, (*read.schema, *read.system), collection)
            routes = tuple(self._read(buffer, (way,)))
            self.sources[label] = attrs.evolve(read, name=label, routes=routes)
        if self.run.readers[translations.IMPULSE_BUFFER]:
            source = impulse_beside_streams() if scripts else Impulse()
            self._add_source("Impulse", source, translations.IMPULSE_BUFFER, timed=False)

    def _label(self, buffer: bytes) -> str:
        _, collection = translations.split_buffer_id(buffer)
        for stream in self.streams:
            for tag, output in stream.outputs.items():
                if output == collection:
                    only = len(stream.outputs) == 1
                    return stream.unique_name if only else f"{stream.unique_name}.{tag}"
        raise LookupError(collection)

    def _add_source(self, name: str, source: Source, buffer: bytes, *, timed: bool) -> None:
        self.sources[name] = SourcePlan(
            name=name,
            source=source,
            time=None,
            watermark=StreamWatermark() if timed else NoEventTime(),
            raw=CHUNKS,
            schema=CHUNKS,
            routes=tuple(self._read(buffer, ())),
            on_error="fail",
        )

    # Routes.

    def _reaches_fired(self, buffer: bytes) -> bool:
        """True if panes that are read from a buffer reach a side whose firings replace each other."""
        nodes = [node for node, _ in self.run.readers[buffer] if not waits(node)]
        outputs = {each for node in nodes for each in node.outputs.values()}
        return any(
            reader.sides.inputs[side].collection in self.fired
            for each in outputs
            for reader, side in self.run.side_readers[each]
        ) or any(self._reaches_fired(each) for each in outputs if each not in self.run.groups)

    def _read(self, buffer: bytes, way: tuple[Step, ...], *, fires: bool = False) -> Iterator[Route]:
        """Yields the routes of elements that are read from a buffer. `fires`: each row has the firing it is from."""
        for node, reads in self.run.readers[buffer]:
            said, name = labels_of(node), f"{reads}.bundle"
            if waits(node):
                kind = _decoding(node)
                yield self._route(self.name_of(node), way, kind(name, self.job, self._coder(node), node.key))
            else:
                bundle = Bundle(name, self.job, said, fires, node.key, reads)
                yield from self._after(node, (*way, bundle), fires=fires)

    def _coder(self, node: StageNode) -> str:
        """Returns the kinds of the coders of the elements that a fused stage reads."""
        return ", ".join(sorted(map(self._coder_of, self._inputs(node))))

    def _coder_of(self, collection: str) -> str:
        context = self.run.context
        return coder_text(context.pipeline_components.coders, context.data_channel_coders[collection])

    def _after(self, node: StageNode, way: tuple[Step, ...], *, fires: bool = False) -> Iterator[Route]:
        """Yields the routes of the output of a fused stage, and of its metrics."""
        yield Route(OUTPUT, (*way, Only("metrics", METRICS)), tuple(CHUNKS))
        for buffer in dict.fromkeys(node.outputs.values()):
            only = Only(buffer.decode(), buffer)
            if buffer in self.run.groups:
                group = self.run.groups[buffer]
                name = self.name_of(group)
                yield self._route(
                    name, (*way, only), Elements(f"{name}.elements", self.job, group.coder_text, buffer)
                )
            else:
                yield from self._read(buffer, (*way, only), fires=fires)
            for reader, side in self.run.side_readers[buffer]:
                name, role = self.name_of(reader), f"{ROLE_PREFIX}{side}"
                said = self._coder_of(reader.sides.inputs[side].collection)
                last = SideElements(f"{name}.{role}", self.job, said, fires, reader.key, side)
                yield self._route(name, (*way, only), last, role)

    def _route(self, stage: str, way: tuple[Step, ...], last: Step, role: str = MAIN) -> Route:
        return Route(stage, (*way, last), (), role=role)

    # The plan.

    def _connected(self, metrics: Sink) -> Plan:
        routes = {name: source.routes for name, source in self.sources.items()}
        routes |= {name: own for name, (_, own) in self.stages.items()}
        graph = StageGraph.from_inputs(
            {name: [each for each, own in routes.items() if name in _consumers(own)] for name in routes}
        )
        names = [name for name in graph.order() if name in self.stages]
        sources = {
            name: attrs.evolve(source, routes=self._typed(source.routes))
            for name, source in self.sources.items()
        }
        return Plan(
            name=PIPELINE,
            sources=sources,
            stages={name: self._stage(name, graph, routes) for name in names},
            sinks={OUTPUT: self._sink(metrics, routes)},
            graph=graph,
            levels=graph.levels()[1:],
        )

    def _typed(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        """Sets the columns that routes deliver to a stage."""
        return tuple(
            attrs.evolve(route, columns=tuple(self.stages[route.consumer][0].inputs[route.role].schema))
            if route.consumer in self.stages
            else route
            for route in routes
        )

    def _stage(self, name: str, graph: StageGraph, ways: Mapping[str, tuple[Route, ...]]) -> StagePlan:
        operator, routes = self.stages[name]
        roles = {
            role: tuple(each for each in graph.inputs(name) if name in _consumers(ways[each], role))
            for role in operator.inputs
        }
        return StagePlan(
            name=name,
            stage=Stage(name, operator),
            inputs=graph.inputs(name),
            level=graph.level(name),
            keyed=operator.inputs[MAIN].shared,
            schema=CHUNKS,
            routes=self._typed(routes),
            on_error="fail",
            roles=roles if len(roles) > 1 else {},
        )

    def _sink(self, metrics: Sink, routes: dict[str, tuple[Route, ...]]) -> SinkPlan:
        inputs = tuple(sorted(name for name, own in routes.items() if OUTPUT in _consumers(own)))
        return SinkPlan(OUTPUT, metrics, inputs, CHUNKS)


def _decoding(node: StageNode) -> type[Keyed | Placed | Divided]:
    """Returns the kind of step that decodes the elements of a fused stage which is a stage of the plan."""
    if isinstance(node, StatefulNode):
        return Keyed
    return Divided if node.splittable else Placed


def _consumers(routes: Iterable[Route], role: str | None = None) -> set[str]:
    """Returns the consumers of routes, or of those that lead to a role."""
    return {route.consumer for route in routes if role in (None, route.role)}
