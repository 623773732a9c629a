"""The plan as text to read: names and no ids, in the order of the plan, so the same for the same pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from beamlike.io.refreshed import Refreshed
from beamlike.io.sinks import written_by_tasks
from beamlike.io.sources import Planned, ReadFromMemory, ReadInFiles, ReadInSteps
from beamlike.plan.description import SinkFacts, SourceFacts, StageFacts, TableFacts, describe_plan
from beamlike.plan.model import Plan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from stages.operator import MAIN, side_name
from windowing.columns import RESERVED_PREFIX

Tree = Mapping[str, "Tree | None"]
"""Lines by what stands on them, each with the lines below it."""

_WIDTH = 12
"""Facts begin in one column: `keys        user`."""


def explain(plan: Plan) -> str:
    """Returns sources, stages by level with their windowing, sinks, and the PySpark operators of all that."""
    described = describe_plan(plan)
    tree: dict[str, Tree | None] = {
        "sources": {_title(source): _source(source) for source in described.sources.values()}
    }
    if described.tables:
        tree["tables"] = {_title_of(table.plan): _table(table) for table in described.tables.values()}
    for level, names in enumerate(plan.levels, start=1):
        stages = [described.stages[name] for name in names]
        tree[f"level {level}"] = {_reads(_marked(one.plan), one.plan.inputs): _stage(one) for one in stages}
    tree["sinks"] = {_reads(name, sink.plan.inputs): _sink(sink) for name, sink in described.sinks.items()}
    tree["on Spark"] = dict.fromkeys(_operators(plan))
    return "\n".join([f"pipeline {plan.name}", *_lines(tree)]) + "\n"


def _marked(part: SourcePlan | StagePlan | TablePlan) -> str:
    """The name, and whether it was made: such a name depends on the order in which steps are declared."""
    return part.name if part.named else f"{part.name} (made name)"


def _lines(tree: Tree, indent: str = "") -> Iterable[str]:
    """The tree with its branches drawn."""
    for index, (text, below) in enumerate(tree.items(), start=1):
        last = index == len(tree)
        yield f"{indent}{'└─ ' if last else '├─ '}{text}"
        yield from _lines(below or {}, indent + ("   " if last else "│  "))


def _facts(facts: Mapping[str, str], rest: Tree | None = None) -> Tree:
    """Named facts, aligned, with what else stands below."""
    return {f"{name:{_WIDTH}}{text}": None for name, text in facts.items()} | dict(rest or {})


def _reads(name: str, inputs: Iterable[str]) -> str:
    return f"{name}  <- {', '.join(inputs)}"


def _title(source: SourceFacts) -> str:
    return f"{_marked(source.plan)}  {source.reads}"


def _source(source: SourceFacts) -> Tree:
    facts, plan = {"columns": source.columns}, source.plan
    if plan.timed:
        facts |= {"event time": source.event_time, "watermark": source.watermark}
    steps: Tree = {
        f"{when} event time": dict.fromkeys(map(_step, found))
        for when, found in (("before", plan.prelude), ("after", plan.interlude))
        if found
    }
    return _facts(facts, {**steps, **_routes(plan.routes)})


def _title_of(table: TablePlan) -> str:
    return _reads(_marked(table), (source.name for source in table.sources))


def _table(table: TableFacts) -> Tree:
    """Returns a side that is looked up without a stage, and the steps that lead to it."""
    read = f"before the first batch, at most {table.plan.side.limit >> 20} MB in each process"
    steps = [step for source in table.plan.sources for route in source.routes for step in route.steps]
    return _facts({"columns": table.columns, "read": read}, dict.fromkeys(map(_step, steps)))


def _stage(stage: StageFacts) -> Tree:
    return _facts({**stage.facts, "gives": stage.columns}, _routes(stage.plan.routes))


def _sink(sink: SinkFacts) -> Tree:
    return _facts({"writes": sink.writes, "columns": sink.columns})


def _routes(routes: Iterable[Route]) -> Tree:
    """Where the rows go; two routes that read the same are told apart by a count."""
    tree: dict[str, Tree | None] = {}
    for route in routes:
        text = _route_title(route)
        number = 1
        while text in tree:
            number += 1
            text = f"{_route_title(route)} (way {number})"
        tree[text] = dict.fromkeys(map(_step, route.steps))
    return tree


def _step(step: Step) -> str:
    """Name, kind and detail; a derived name says the kind itself."""
    derived = step.name.rpartition(".")[2].rstrip("_0123456789") == step.kind
    return f"{step.name}  {step.detail()}" if derived else f"{step.name}  {step.kind} {step.detail()}"


def _route_title(route: Route) -> str:
    if route.silent:
        return f"-> table {route.consumer}"
    shipped = [column for column in route.columns if not column.startswith(RESERVED_PREFIX)]
    carried = _carried(route.columns)
    what = {"main": "", "dead_letters": "dead letters ", "late": "late elements "}[route.output]
    if route.before:
        what += f"of {route.before[-1].name} "
    side = f" as side {side_name(route.role)!r}" if route.role != MAIN else ""
    return f"{what}-> {route.consumer}{side}  ships {', '.join([*shipped, *carried])}"


def _carried(columns: Iterable[str]) -> list[str]:
    """The system columns in words, those of a window and of a pane as one."""
    words = {"event_time": "event time", "window_start": "window", "window_end": "window"}
    words["pane_retracted"] = "retracted"
    plain = (column.removeprefix(RESERVED_PREFIX) for column in columns if column.startswith(RESERVED_PREFIX))
    return list(dict.fromkeys(words.get(name, "pane") for name in plain))


def _operators(plan: Plan) -> Iterable[str]:
    """One PySpark operator per line, in the order of the query."""
    read = {
        name: source for name, source in plan.sources.items() if not isinstance(source.source, ReadInSteps)
    }
    for name, source in read.items():
        yield f"{name}: {_reader(source)} -> mapInArrow(ingest)"
    yield f"{'end of input' if read else 'steps'}: readStream(text) -> mapInArrow(control)"
    by_tasks = [name for name, sink in plan.sinks.items() if written_by_tasks(sink.sink)]
    files = f"files: {', '.join([*by_tasks, 'dead letters'])}"
    for level, names in enumerate(plan.levels, start=1):
        writes = f"; {files}" if level == len(plan.levels) else ""
        yield f"groupBy(shard).transformWithStateInPandas(level {level}: {', '.join(names)}{writes})"
    if not plan.levels:
        yield f"mapInArrow({files})"
    yield f"foreachBatch({', '.join([*(name for name in plan.sinks if name not in by_tasks), 'records'])})"


def _reader(source: SourcePlan) -> str:
    if isinstance(source.source, ReadFromMemory):
        return "rows kept beside the checkpoint, readStream(lists of files)"
    if isinstance(source.source, Refreshed):
        return "readings kept beside the checkpoint, readStream(lists of files)"
    if isinstance(source.source, Planned) and not isinstance(source.source, ReadInFiles):
        return "readStream(batches that it plans)"
    return "readStream(lists of files)" if isinstance(source.source, ReadInFiles) else "spark reader"
