"""The plan of a Beam pipeline: its groupings and ParDos with state are stages, and its other fused stages are steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs
import polars as pl
from apache_beam.runners.common import ENCODED_IMPULSE_VALUE
from apache_beam.runners.portability.fn_api_runner import translations
from apache_beam.runners.worker import bundle_processor

from beamlike.beam.grouped import GroupNode
from beamlike.beam.nodes import StageNode
from beamlike.beam.planned.job import METRICS, Job
from beamlike.beam.planned.operators import JobHost, PlannedParDo
from beamlike.beam.planned.sources import AT, EVENTS, impulse, scripts_of
from beamlike.beam.planned.steps import CHUNKS, Bundle, Elements, Keyed, OfJob, Only, Panes
from beamlike.beam.recording import PIPELINE
from beamlike.beam.stateful import StatefulNode
from beamlike.io.base import Sink, Source
from beamlike.io.memory import Memory, Rows
from beamlike.logical.origins import EventTime
from beamlike.logical.watermark import NoEventTime
from beamlike.plan.model import Plan, SinkPlan, SourcePlan, StagePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from stages.graph import StageGraph
from stages.operator import MAIN, Operator
from stages.stage import Stage
from stages.strategies.announced import AnnouncedWatermark
from windowing.columns import PANE_FIRST, PANE_INDEX, PANE_LAST, PANE_NONSPECULATIVE_INDEX, PANE_TIMING

OUTPUT: Final = "metrics"
"""The name of the sink, which receives the metrics of all bundles."""
_BUFFERS: Final = (bundle_processor.DATA_INPUT_URN, bundle_processor.DATA_OUTPUT_URN)
_PANES: Final = (PANE_FIRST, PANE_LAST, PANE_TIMING, PANE_INDEX, PANE_NONSPECULATIVE_INDEX)


def labels_of(node: StageNode) -> str:
    """Returns the labels of the transforms of a fused stage."""
    names = [each.unique_name for each in node.stage.transforms if each.spec.urn not in _BUFFERS]
    return " + ".join(names) or node.stage.name


@attrs.define
class PlanBuilder:
    """The routes between the sources, stages and the sink of a pipeline.

    Attributes:
        job: The pipeline, which the steps of the plan have.
        streams: The TestStreams of the pipeline.
    """

    job: Job
    streams: list[Any]
    sources: dict[str, SourcePlan] = attrs.field(factory=dict, init=False)
    stages: dict[str, tuple[Operator, tuple[Route, ...]]] = attrs.field(factory=dict, init=False)

    def plan(self, metrics: Memory) -> Plan:
        """Returns the plan, which writes the metrics of its bundles to `metrics`."""
        self._add_sources()
        for buffer, group in self.run.groups.items():
            way = (Panes(f"{self.name_of(group)}.panes", self.job, group.name, buffer, self._columns(group)),)
            self.stages[self.name_of(group)] = group.stage.operator, tuple(self._read(buffer, way))
        for node in self._waiting():
            host = JobHost(self.job, node.stage.name, labels_of(node))
            operator = PlannedParDo(host, node.lateness)
            self.stages[self.name_of(node)] = operator, tuple(self._after(node, ()))
        return self._connected(metrics)

    @property
    def run(self) -> Any:
        """The nodes of the pipeline in this process."""
        return self.job.worker().run

    def _waiting(self) -> Iterator[StatefulNode]:
        yield from (node for node in self.run.nodes if isinstance(node, StatefulNode))

    def name_of(self, node: StageNode | GroupNode) -> str:
        """Returns the name of the stage of a node: the label of the transform that has the state."""
        transforms = self.run.context.pipeline_components.transforms
        if isinstance(node, GroupNode):
            label: str = transforms[node.name].unique_name
            return label
        return labels_of(node)

    def _columns(self, group: GroupNode) -> tuple[str, ...]:
        return (*group.schema, *_PANES)

    # Sources.

    def _add_sources(self) -> None:
        scripts = scripts_of(self.streams, self.run.context) if self.streams else {}
        for buffer, script in scripts.items():
            self._add_source(self._label(buffer), script, buffer, timed=True)
        if self.run.readers[translations.IMPULSE_BUFFER]:
            buffer = translations.IMPULSE_BUFFER
            element = pl.DataFrame([(buffer, ENCODED_IMPULSE_VALUE, 0)], EVENTS, orient="row")
            source = impulse(buffer, ENCODED_IMPULSE_VALUE) if scripts else Rows(element)
            self._add_source("Impulse", source, buffer, timed=False)

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
            time=EventTime(AT, EVENTS[AT], "us") if timed else None,
            watermark=AnnouncedWatermark() if timed else NoEventTime(),
            raw=EVENTS,
            schema=EVENTS,
            routes=tuple(self._read(buffer, ())),
            on_error="fail",
        )

    # Routes.

    def _read(self, buffer: bytes, way: tuple[Step, ...]) -> Iterator[Route]:
        """Yields the routes of elements that are read from a buffer."""
        for node, reads in self.run.readers[buffer]:
            said, name = labels_of(node), f"{node.stage.name}.{reads}"
            if isinstance(node, StatefulNode):
                yield self._route(self.name_of(node), way, Keyed(name, self.job, said, node.stage.name))
            else:
                bundle = Bundle(name, self.job, said, node.stage.name, reads)
                yield from self._after(node, (*way, bundle))

    def _after(self, node: StageNode, way: tuple[Step, ...]) -> Iterator[Route]:
        """Yields the routes of the output of a fused stage, and of its metrics."""
        yield Route(OUTPUT, (*way, Only("metrics", METRICS)), tuple(CHUNKS))
        for buffer in dict.fromkeys(node.outputs.values()):
            only = Only(buffer.decode(), buffer)
            if buffer in self.run.groups:
                group = self.run.groups[buffer]
                name = self.name_of(group)
                yield self._route(
                    name, (*way, only), Elements(f"{name}.elements", self.job, group.name, buffer)
                )
            else:
                yield from self._read(buffer, (*way, only))

    def _route(self, stage: str, way: tuple[Step, ...], last: OfJob) -> Route:
        return Route(stage, (*way, last), ())

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
            stages={name: self._stage(name, graph) for name in names},
            sinks={OUTPUT: self._sink(metrics, routes)},
            graph=graph,
            levels=graph.levels()[1:],
        )

    def _typed(self, routes: Iterable[Route]) -> tuple[Route, ...]:
        """Sets the columns that routes deliver to a stage."""
        return tuple(
            attrs.evolve(route, columns=tuple(self.stages[route.consumer][0].inputs[MAIN].schema))
            if route.consumer in self.stages
            else route
            for route in routes
        )

    def _stage(self, name: str, graph: StageGraph) -> StagePlan:
        operator, routes = self.stages[name]
        return StagePlan(
            name=name,
            stage=Stage(name, operator),
            inputs=graph.inputs(name),
            level=graph.level(name),
            keyed=operator.inputs[MAIN].shared,
            schema=CHUNKS,
            routes=self._typed(routes),
            on_error="fail",
        )

    def _sink(self, metrics: Sink, routes: dict[str, tuple[Route, ...]]) -> SinkPlan:
        inputs = tuple(sorted(name for name, own in routes.items() if OUTPUT in _consumers(own)))
        return SinkPlan(OUTPUT, metrics, inputs, CHUNKS)


def _consumers(routes: Iterable[Route]) -> set[str]:
    return {route.consumer for route in routes}
