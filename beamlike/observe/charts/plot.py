"""Draws a pipeline's graph: sources, stages and sinks from left to right."""

from __future__ import annotations

from beamlike.observe.charts.figure import Picture
from beamlike.observe.charts.graph_picture import SINK, SOURCE, STAGE, Node, draw_graph
from beamlike.plan.model import Plan
from beamlike.plan.run_graph import describe_run
from beamlike.records.graph import RunDescription, StageDescription


def plot(plan: Plan) -> Picture:
    """Draws the plan's graph: sources with watermark strategies, stages with windows and triggers, and sinks."""
    return draw_graph(nodes(describe_run(plan)))


def nodes(run: RunDescription) -> list[Node]:
    """Returns a box for each source, stage and sink."""
    return [
        *(
            Node(name, SOURCE, [source.kind or source.reads, source.watermark])
            for name, source in run.sources.items()
        ),
        *(
            Node(name, STAGE, stage_facts(stage), (*stage.inputs, *stage.tables))
            for name, stage in run.stages.items()
        ),
        *(
            Node(name, SINK, [sink.kind or sink.writes], (*sink.inputs, *sink.tables))
            for name, sink in run.sinks.items()
        ),
    ]


def stage_facts(stage: StageDescription) -> list[str]:
    """Returns windows, trigger, keys and aggregates of a stage as text. Without windows, returns its operator
    and keys.
    """
    aggregates = ", ".join(f"{name} = {text}" for name, text in stage.aggregates.items())
    keys = [f"by {', '.join(stage.keys)}"] if stage.keys else []
    if not stage.windowed:
        return [stage.what, *keys]
    return [stage.choices["windows"], stage.choices["trigger"], *keys, aggregates]
