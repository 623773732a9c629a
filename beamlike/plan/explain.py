"""The text of `explain`. It contains names instead of ids, in the order of the plan, so equal pipelines have equal
texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from beamlike.io.refreshed import Refreshed
from beamlike.io.sinks import written_by_tasks
from beamlike.io.sources import Planned, ReadFromMemory, ReadInFiles, ReadInSteps
from beamlike.logical.origins import Promise
from beamlike.plan.description import SinkFacts, SourceFacts, StageFacts, TableFacts, describe_plan
from beamlike.plan.model import Plan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.route import Route
from beamlike.steps.base import Step
from stages.operator import MAIN
from stages.sides.declarations import side_name
from windowing.columns import RESERVED_PREFIX
from windowing.time import format_duration

Tree = Mapping[str, "Tree | None"]
"""A tree of lines: each text, with the lines below it."""

_WIDTH = 12
"""The width of the first column, which has the names of facts."""


def explain(plan: Plan) -> str:
    """Describes a plan as text: sources, stages by level with their windowings, sinks, and the PySpark operators."""
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
    tree["on Spark"] = _operators(plan)
    return "\n".join([f"pipeline {plan.name}", *_lines(tree)]) + "\n"


def _marked(part: SourcePlan | StagePlan | TablePlan) -> str:
    """Returns the name, with a mark if it is derived, because a derived name depends on the order of declarations."""
    return part.name if part.named else f"{part.name} (made name)"


def _lines(tree: Tree, indent: str = "") -> Iterable[str]:
    """Yields the lines of a tree, drawn with branches."""
    for index, (text, below) in enumerate(tree.items(), start=1):
        last = index == len(tree)
        yield f"{indent}{'└─ ' if last else '├─ '}{text}"
        yield from _lines(below or {}, indent + ("   " if last else "│  "))


def _facts(facts: Mapping[str, str], rest: Tree | None = None) -> Tree:
    """Returns facts in aligned columns, followed by `rest`."""
    return {f"{name:{_WIDTH}}{text}": None for name, text in facts.items()} | dict(rest or {})


def _reads(name: str, inputs: Iterable[str]) -> str:
    return f"{name}  <- {', '.join(inputs)}"


def _title(source: SourceFacts) -> str:
    return f"{_marked(source.plan)}  {source.reads}"


def _source(source: SourceFacts) -> Tree:
    facts, plan = {"columns": source.columns}, source.plan
    if plan.timed:
        facts |= {"event time": source.event_time, "watermark": source.watermark}
    if plan.complete:
        facts["over"] = "when all its input is read"
    steps: Tree = {
        f"{when} event time": dict.fromkeys(map(_step, found))
        for when, found in (("before", plan.steps_before_time), ("after", plan.steps_after_time))
        if found
    }
    return _facts(facts, {**steps, **_routes(plan.routes)})


def _title_of(table: TablePlan) -> str:
    return _reads(_marked(table), (source.name for source in table.sources))


def _table(table: TableFacts) -> Tree:
    """Returns a lookup table, and the steps that lead to it."""
    read = f"before the first batch, at most {table.plan.side.limit >> 20} MB in each process"
    steps = [step for source in table.plan.sources for route in source.routes for step in route.steps]
    return _facts({"columns": table.columns, "read": read}, dict.fromkeys(map(_step, steps)))


def _stage(stage: StageFacts) -> Tree:
    promise = stage.plan.promise
    facts = {**stage.facts, **({} if promise is None else {"promise": _promise(promise)})}
    return _facts({**facts, "gives": f"{stage.plan.kind}: {stage.columns}"}, _routes(stage.plan.routes))


def _promise(promise: Promise) -> str:
    held = ", held" if promise.hold else ""
    return f"complete to {promise.complete:g} within {format_duration(promise.within)}{held}"


def _sink(sink: SinkFacts) -> Tree:
    columns = sink.columns if sink.plan.kind == "rows" else f"{sink.plan.kind}: {sink.columns}"
    return _facts({"writes": sink.writes, "columns": columns})


def _routes(routes: Iterable[Route]) -> Tree:
    """Returns routes with their steps. A number distinguishes routes that have the same text."""
    tree: dict[str, Tree | None] = {}
    for route in routes:
        # Lines are keys of the tree, so a second line with the same text would replace the first.
        text = _route_title(route)
        number = 1
        while text in tree:
            number += 1
            text = f"{_route_title(route)} (way {number})"
        tree[text] = dict.fromkeys(map(_step, route.steps))
    return tree


def _step(step: Step) -> str:
    """Returns name, kind and detail of a step. The kind is left out if the name ends with it."""
    derived = step.name.rpartition(".")[2].rstrip("_0123456789") == step.kind
    return f"{step.name}  {step.detail()}" if derived else f"{step.name}  {step.kind} {step.detail()}"


def _route_title(route: Route) -> str:
    if route.dead_letters_only:
        return f"-> table {route.consumer}"
    shipped = [column for column in route.columns if not column.startswith(RESERVED_PREFIX)]
    carried = _carried(route.columns)
    what = {"main": "", "dead_letters": "dead letters ", "late": "late elements "}[route.output]
    if route.before:
        what += f"of {route.before[-1].name} "
    return f"{what}-> {route.consumer}{_as_input(route.role)}  ships {', '.join([*shipped, *carried])}"


def _as_input(role: str) -> str:
    if role == MAIN:
        return ""
    return f" as side {side_name(role)!r}" if side_name(role) != role else f" as input {role!r}"


def _carried(columns: Iterable[str]) -> list[str]:
    """Describes the system columns. All columns of a window are called "window", and those of a pane "pane"."""
    words = {"event_time": "event time", "window_start": "window", "window_end": "window"}
    words["pane_retracted"] = "retracted"
    plain = (column.removeprefix(RESERVED_PREFIX) for column in columns if column.startswith(RESERVED_PREFIX))
    return list(dict.fromkeys(words.get(name, "pane") for name in plain))


def _operators(plan: Plan) -> Tree:
    """Returns a line per PySpark operator, in the order of the query."""
    read = {
        name: source for name, source in plan.sources.items() if not isinstance(source.source, ReadInSteps)
    }
    sources = [f"{name}: {_reader(source)} -> mapInArrow(ingest)" for name, source in read.items()]
    control = f"{'end of input' if read else 'steps'}: readStream(text) -> mapInArrow(control)"
    by_tasks = [name for name, sink in plan.sinks.items() if written_by_tasks(sink.sink)]
    files = f"files: {', '.join([*by_tasks, 'dead letters'])}"
    by_driver = ", ".join([*(name for name in plan.sinks if name not in by_tasks), "records"])
    return {
        **dict.fromkeys([*sources, control]),
        **_stateful(plan.levels, files),
        f"foreachBatch({by_driver})": None,
    }


def _stateful(levels: Sequence[Sequence[str]], files: str) -> Tree:
    """Returns the operators with state, which is in files. A run with several shards has one for each level, a run with
    one shard has one for all of them, and the last one of a run writes the `files`.
    """
    each = [f"level {number}: {', '.join(names)}" for number, names in enumerate(levels, start=1)]
    if not each:
        return {f"mapInArrow({files})": None}
    by_level = [f"mapInArrow({text})" for text in (*each[:-1], f"{each[-1]}; {files}")]
    if len(each) == 1:
        return {f"repartition(shard).{by_level[0]}": None}
    return {
        "repartition(shard), with several shards": dict.fromkeys(by_level),
        "repartition(shard), with one shard": {f"mapInArrow({'; '.join([*each, files])})": None},
    }


def _reader(source: SourcePlan) -> str:
    if isinstance(source.source, ReadFromMemory):
        return "rows kept beside the checkpoint, readStream(lists of files)"
    if isinstance(source.source, Refreshed):
        return "readings kept beside the checkpoint, readStream(lists of files)"
    if isinstance(source.source, Planned) and not isinstance(source.source, ReadInFiles):
        return "readStream(batches that it plans)"
    return "readStream(lists of files)" if isinstance(source.source, ReadInFiles) else "spark reader"
