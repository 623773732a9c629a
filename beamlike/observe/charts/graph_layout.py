"""The layout of a graph: columns from left to right by level, few crossings, edges between the boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import attrs
import networkx as nx

_SWEEPS = 4
_BETWEEN_ROWS = 0.22  # inches
_BETWEEN_COLUMNS = 0.65
_MARGIN = 0.12
_LANE = 0.1  # height that an edge takes in a column that it passes


@attrs.frozen
class Box:
    """A position in the picture, in inches from its lower left corner: centre and size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        """The end of incoming edges."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> tuple[float, float]:
        """The start of outgoing edges."""
        return self.x + self.width / 2, self.y


@attrs.frozen
class Layout:
    """The boxes by name, the positions along each edge, and the size of the picture."""

    boxes: Mapping[str, Box]
    edges: Mapping[tuple[str, str], tuple[Box, ...]]
    width: float
    height: float


def layout(inputs: Mapping[str, Iterable[str]], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """Places for nodes of these sizes (inches), given who reads whom. What is read must be there."""
    graph = nx.DiGraph()
    graph.add_nodes_from(inputs)
    graph.add_edges_from((read, name) for name, names in inputs.items() for read in names)
    edges = list(graph.edges)
    columns = [list(column) for column in nx.topological_generations(graph)]
    paths = _paths(graph, columns)
    _order(graph, columns)
    boxes = _boxes(graph, columns, sizes)
    return _fitted(
        {name: boxes[name] for name in inputs},
        {edge: tuple(boxes[name] for name in paths[edge]) for edge in edges},
    )


def _paths(graph: nx.DiGraph, columns: list[list[object]]) -> dict[tuple[object, object], list[object]]:
    """Every edge as the nodes it goes through; those that pass a column get a lane of their own there."""
    level = {name: number for number, column in enumerate(columns) for name in column}
    paths: dict[tuple[object, object], list[object]] = {}
    for start, end in list(graph.edges):
        lanes: list[object] = [(start, end, number) for number in range(level[start] + 1, level[end])]
        paths[start, end] = [start, *lanes, end]
        for lane, number in zip(lanes, range(level[start] + 1, level[end]), strict=True):
            columns[number].append(lane)
        if lanes:
            graph.remove_edge(start, end)
            nx.add_path(graph, paths[start, end])
    return paths


def _order(graph: nx.DiGraph, columns: list[list[object]]) -> None:
    """Sorts each column so that nodes stand about where their neighbours do (Sugiyama's barycentres)."""
    for _ in range(_SWEEPS):
        for before, column in pairwise(columns):
            _sort(column, {name: list(graph.predecessors(name)) for name in column}, before)
        for column, after in reversed(list(pairwise(columns))):
            _sort(column, {name: list(graph.successors(name)) for name in column}, after)


def _sort(column: list[object], neighbours: Mapping[object, list[object]], other: list[object]) -> None:
    place = {name: index for index, name in enumerate(other)}

    def wanted(name: object) -> float:
        near = [place[neighbour] for neighbour in neighbours[name] if neighbour in place]
        return sum(near) / len(near) if near else column_place[name]

    column_place = {name: float(index) for index, name in enumerate(column)}
    column.sort(key=wanted)


def _boxes(
    graph: nx.DiGraph, columns: list[list[object]], sizes: Mapping[str, tuple[float, float]]
) -> dict[object, Box]:
    """Boxes, of which the first column's first stands at 0, 0; y grows upwards."""
    boxes: dict[object, Box] = {}
    left = 0.0
    for column in columns:
        wide = max(sizes[name][0] for name in column if isinstance(name, str))
        high = [sizes[name][1] if isinstance(name, str) else _LANE for name in column]
        wanted = [
            [boxes[before].y for before in graph.predecessors(name) if before in boxes] for name in column
        ]
        for name, y, height in zip(column, _stacked(wanted, high), high, strict=True):
            boxes[name] = Box(left + wide / 2, y, wide, height)
        left += wide + _BETWEEN_COLUMNS
    return boxes


def _stacked(wanted: list[list[float]], heights: list[float]) -> list[float]:
    """Heights, one below the other without overlap, each near the mean of what it wants."""
    places: list[float] = []
    floor = float("inf")
    for near, height in zip(wanted, heights, strict=True):
        highest = floor - height / 2
        places.append(min(highest, sum(near) / len(near)) if near else (highest if places else 0.0))
        floor = places[-1] - height / 2 - _BETWEEN_ROWS
    off = [place - sum(near) / len(near) for place, near in zip(places, wanted, strict=True) if near]
    shift = sum(off) / len(off) if off else 0.0
    return [place - shift for place in places]


def _fitted(boxes: Mapping[str, Box], edges: Mapping[tuple[str, str], tuple[Box, ...]]) -> Layout:
    """Moved so that all is between 0 and the size of the picture."""
    every = [*boxes.values(), *(box for path in edges.values() for box in path)]
    bottom = min(box.y - box.height / 2 for box in every) - _MARGIN
    left = min(box.left[0] for box in every) - _MARGIN

    def moved(box: Box) -> Box:
        return attrs.evolve(box, x=box.x - left, y=box.y - bottom)

    return Layout(
        {name: moved(box) for name, box in boxes.items()},
        {edge: tuple(map(moved, path)) for edge, path in edges.items()},
        max(box.right[0] for box in every) + _MARGIN - left,
        max(box.y + box.height / 2 for box in every) + _MARGIN - bottom,
    )
