"""The layout of a graph: a column per level from left to right, few crossings, and edges between the boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import fmean

import attrs
import networkx as nx

_BETWEEN_ROWS = 0.22  # inches
_BETWEEN_COLUMNS = 0.65
_MARGIN = 0.12
_LANE = 0.1  # the height of an edge where it passes a column


@attrs.frozen
class Box:
    """A place in a picture: centre and size, in inches from the lower left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> tuple[float, float]:
        """The point at which incoming edges end."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> tuple[float, float]:
        """The point at which outgoing edges start."""
        return self.x + self.width / 2, self.y


@attrs.frozen
class Layout:
    """A finished layout: the boxes by name, the places along each edge, and the size of the picture."""

    boxes: Mapping[str, Box]
    edges: Mapping[tuple[str, str], tuple[Box, ...]]
    width: float
    height: float


def layout(inputs: Mapping[str, Iterable[str]], sizes: Mapping[str, tuple[float, float]]) -> Layout:
    """Computes the layout for nodes of these sizes (inches). `inputs` has the names of each node's inputs."""
    graph = nx.DiGraph()
    graph.add_nodes_from(inputs)
    graph.add_edges_from((read, name) for name, names in inputs.items() for read in names)
    edges = list(graph.edges)
    columns = [list(column) for column in nx.topological_generations(graph)]
    paths = _paths(graph, columns)
    _order(graph, columns)
    boxes = _boxes(columns, sizes)
    return _fitted(
        {name: boxes[name] for name in inputs},
        {edge: tuple(boxes[name] for name in paths[edge]) for edge in edges},
    )


def _paths(graph: nx.DiGraph, columns: list[list[object]]) -> dict[tuple[object, object], list[object]]:
    """Returns the nodes along each edge. Where an edge passes a column, it has an additional node, its lane."""
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
    """Sorts each column by the mean position of neighbours (Sugiyama's barycentres): first of outputs, then
    of inputs.
    """
    for ordered, neighbours in ((columns[::-1], graph.successors), (columns, graph.predecessors)):
        for before, column in pairwise(ordered):
            place = {name: index for index, name in enumerate(before)}
            own = {name: [index] for index, name in enumerate(column)}
            column.sort(key=lambda name: fmean([place[one] for one in neighbours(name)] or own[name]))


def _boxes(columns: list[list[object]], sizes: Mapping[str, tuple[float, float]]) -> dict[object, Box]:
    """Returns boxes in columns. Each column is centred at y = 0, and y grows upwards."""
    boxes: dict[object, Box] = {}
    left = 0.0
    for column in columns:
        wide = max(sizes[name][0] for name in column if isinstance(name, str))
        high = [sizes[name][1] if isinstance(name, str) else _LANE for name in column]
        top = (sum(high) + _BETWEEN_ROWS * (len(high) - 1)) / 2
        for name, height in zip(column, high, strict=True):
            boxes[name] = Box(left + wide / 2, top - height / 2, wide, height)
            top -= height + _BETWEEN_ROWS
        left += wide + _BETWEEN_COLUMNS
    return boxes


def _fitted(boxes: Mapping[str, Box], edges: Mapping[tuple[str, str], tuple[Box, ...]]) -> Layout:
    """Moves everything so that the lower left corner is at 0."""
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
