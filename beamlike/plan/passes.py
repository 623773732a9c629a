"""The passes of the compiler. Each is a function of the results of earlier passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import attrs
import polars as pl

from beamlike.errors import PlanError
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Group, OfStage, Read
from beamlike.logical.registry import Write
from beamlike.plan.paths import Path, paths_to
from beamlike.plan.route import Route
from beamlike.steps.base import WindowInto
from stages.graph import StageGraph
from stages.grouping.grouping import Grouping
from stages.operator import MAIN, Operator
from stages.sides.declarations import Side
from windowing.columns import EVENT_TIME, PANE_RETRACTED, PREVIOUS_END, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows

Tables = Mapping[str, tuple[Node, Side]]
"""Sides that are read before the run, by name."""


@attrs.frozen(kw_only=True)
class Paths:
    """The paths to each stage and to each sink, by the name of the stage or sink."""

    to_stages: Mapping[str, tuple[Path, ...]]
    to_sinks: Mapping[str, tuple[Path, ...]]


def find_reachable(writes: Iterable[Write], tables: Tables) -> dict[str, Node]:
    """Returns the sources and stages that lead to a sink or a lookup table, sorted by name."""
    seen: dict[str, Node] = {}
    waiting = [write.node for write in writes] + [node for node, _ in tables.values()]
    while waiting:
        node = waiting.pop()
        if node.name not in seen:
            seen[node.name] = node
            waiting += node.inputs
    # Sorted, so that a plan does not depend on the order of declarations.
    return {name: seen[name] for name in sorted(seen) if isinstance(seen[name].origin, Read | OfStage)}


def build_paths(nodes: Mapping[str, Node], writes: Iterable[Write]) -> Paths:
    """Returns the paths from sources and stages to each stage and sink."""
    stages = {name: node for name, node in nodes.items() if isinstance(node.origin, OfStage)}
    return Paths(
        to_stages={name: tuple(_paths_to_stage(node)) for name, node in stages.items()},
        to_sinks={write.name: tuple(paths_to(write.node)) for write in writes},
    )


def build_graph(nodes: Iterable[str], paths: Paths) -> StageGraph:
    """Returns the graph of sources and stages."""
    return StageGraph.from_inputs({name: producers(paths.to_stages.get(name, ())) for name in nodes})


def build_operators(nodes: Mapping[str, Node], paths: Paths) -> dict[str, Operator]:
    """Returns the operator of each stage. It emits dropped rows and dead letters only if some path reads them."""
    written = [*chain(*paths.to_sinks.values())]
    late = late_wanted(paths)
    letters = {path.producer for path in written if path.output == "dead_letters" and not path.before}
    return {name: _operator(nodes[name], name in late, name in letters) for name in paths.to_stages}


def late_wanted(paths: Paths) -> set[str]:
    """Returns the names of stages whose dropped rows some path reads."""
    every = chain(*paths.to_stages.values(), *paths.to_sinks.values())
    return {path.producer for path in every if "late" in (path.output, path.of)}


def prune_columns(
    nodes: Mapping[str, Node],
    paths: Paths,
    operators: Mapping[str, Operator],
    writes: Iterable[Write],
    tables: Tables,
) -> dict[str, tuple[Route, ...]]:
    """Returns the routes from each producer. They have only the columns that their consumers need."""
    routes: dict[str, list[Route]] = {name: [] for name in nodes}
    for name, to_stage in paths.to_stages.items():
        for role, own in by_role(to_stage).items():
            for producer, route in _to_stage(nodes[name], operators[name], role, own):
                routes[producer].append(route)
    for write in writes:
        columns = tuple(write.node.shape.shown())
        for path in paths.to_sinks[write.name]:
            routes[path.producer].append(path.route(write.name, columns))
    for name, (node, side) in tables.items():
        # A lookup table is read before the run. The first batch reads the same rows again, for their dead
        # letters only.
        columns = (*side.schema, *((EVENT_TIME,) if side.timed else ()))
        for path in paths_to(node):
            routes[path.producer].append(attrs.evolve(path.route(name, columns), dead_letters_only=True))
    return {name: tuple(sorted(own, key=lambda route: route.address)) for name, own in routes.items()}


def by_role(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Groups the paths to a stage by input."""
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(path.role, []).append(path)
    return found


def producers(paths: Iterable[Path]) -> tuple[str, ...]:
    """Returns the names of the sources and stages at which the paths begin."""
    return tuple(sorted({path.producer for path in paths}))


def _paths_to_stage(node: Node) -> Iterator[Path]:
    """Yields the paths to a stage, each with the role of the input that it leads to."""
    roles = node.origin.operator.inputs if isinstance(node.origin, Apply) else (MAIN,)
    for role, before in zip(roles, node.inputs, strict=True):
        for path in paths_to(before):
            yield attrs.evolve(path, role=role)


def _operator(node: Node, late: bool, letters: bool) -> Operator:
    if not isinstance(node.origin, Apply):
        return _grouping(node, late, letters)
    operator = node.origin.operator
    return operator if not late else operator.with_late() or operator


def _grouping(node: Node, late: bool, letters_wanted: bool) -> Grouping:
    """Returns the operator of a grouping. To emit late rows or dead letters, it must receive all columns."""
    origin, (before,) = node.origin, node.inputs
    assert isinstance(origin, Group)
    everything = before.shape.everything()
    needed = [column for aggregate in origin.aggregates.values() for column in aggregate.columns]
    needed += before.windowing.timestamp_combiner.columns
    letters = tuple(before.schema) if letters_wanted else ()
    shown = (*before.schema, *((PANE_RETRACTED,) if before.retracting else ())) if late else ()
    return Grouping(
        origin.keys,
        before.windowing,
        origin.aggregates,
        pl.Schema({column: everything[column] for column in (*origin.keys, *needed, *shown, *letters)}),
        merge_windows=not before.merged,
        retractions=before.retracting,
        late_columns=shown if late else None,
        letter_columns=letters,
    )


def _to_stage(
    node: Node, operator: Operator, role: str, paths: Iterable[Path]
) -> Iterator[tuple[str, Route]]:
    """Yields the routes to a stage, with only the columns that the stage needs.

    If every path ends with the assignment of windows, the operator may assign them itself. An element in several
    windows is then sent once. Custom windows are assigned before, and an element is sent with the list of all its
    windows.
    """
    read, paths = operator.inputs[role].schema, list(paths)
    before = node.inputs[[*operator.inputs].index(role)]
    if before.retracting and not operator.accepts_changes(role):
        raise PlanError(
            f"rows of {before.name!r} may retract earlier ones, which {type(operator).__name__} does not accept; give "
            "the grouping before them another accumulation",
            step=node.name,
        )
    if not operator.assigns_windows or operator.inputs[role].side:
        for path in paths:
            yield path.producer, path.route(node.name, tuple(read))
        return
    columns = (*(name for name in read if name not in (EVENT_TIME, *WINDOW_COLUMNS)), EVENT_TIME)
    if before.retracting and PANE_RETRACTED not in columns:
        columns = (*columns, PANE_RETRACTED)
    by_stage = all(path.steps and isinstance(path.steps[-1], WindowInto) for path in paths)
    if by_stage:
        paths = [attrs.evolve(path, steps=path.steps[:-1]) for path in paths]
    listed = isinstance(before.windowing.windows, CustomWindows)
    if WINDOW_START in before.shape.system and (listed or not by_stage):
        columns = (*columns, *WINDOW_COLUMNS)
    adjusted = before.windowing.timestamp_combiner.adjusted
    if adjusted and PREVIOUS_END in before.shape.system and not by_stage:
        columns = (*columns, PREVIOUS_END)
    for path in paths:
        yield path.producer, path.route(node.name, columns)
