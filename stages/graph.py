"""The directed graph of sources and stages: checks, topological order, and levels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import networkx as nx

Inputs = Mapping[str, Iterable[str]] | Iterable[tuple[str, Iterable[str]]]


class GraphError(ValueError):
    """Raised if stages do not form a graph that can run."""


class CycleError(GraphError):
    """Raised if a stage reads its own output, directly or through other stages."""


class UnknownInput(GraphError, LookupError):
    """Raised if a stage reads from a name that is not in the graph."""


def _canonical(inputs: Inputs) -> dict[str, tuple[str, ...]]:
    """Sorts the graph and removes duplicates, so that equal graphs do not depend on the order of declaration."""
    pairs = inputs.items() if isinstance(inputs, Mapping) else inputs
    graph: dict[str, tuple[str, ...]] = {}
    for name, names in pairs:
        if isinstance(names, str):
            raise TypeError(f"the inputs of {name!r} must be several names, not the string {names!r}")
        if name in graph:
            raise GraphError(f"two stages are called {name!r}; every stage needs a name of its own")
        graph[name] = tuple(sorted(set(names)))
    return dict(sorted(graph.items()))


@attrs.frozen
class StageGraph:
    """The graph of sources and stages. `mapping` has, for each name, the names of its inputs; a source has none.

    Raises `UnknownInput` if an input does not exist, and `CycleError` if a stage reads its own output. Graphs with the
    same names and inputs are equal, in whatever order they were declared.
    """

    mapping: dict[str, tuple[str, ...]] = attrs.field(converter=_canonical)

    @classmethod
    def from_inputs(cls, inputs: Inputs) -> StageGraph:
        """Creates a graph from a mapping of names to the names of their inputs, or from such pairs.

        Raises `GraphError` if a name is in two pairs.
        """
        return cls(inputs)

    def __attrs_post_init__(self) -> None:
        for name, names in self.mapping.items():
            for wanted in names:
                if wanted not in self.mapping:
                    raise UnknownInput(f"{wanted} -> {name}: {name!r} reads from {self._unknown(wanted)}")
        import networkx as nx  # a fifth of a second, which `import beamlike` need not take

        try:
            cycle = nx.find_cycle(self._digraph)
        except nx.NetworkXNoCycle:
            return
        raise CycleError(f"the stages form a cycle: {_closed_path([start for start, _ in cycle])}")

    @cached_property
    def _digraph(self) -> nx.DiGraph:
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(self.mapping)
        graph.add_edges_from((producer, name) for name, names in self.mapping.items() for producer in names)
        return nx.freeze(graph)

    @cached_property
    def _order(self) -> tuple[str, ...]:
        import networkx as nx

        return tuple(nx.lexicographical_topological_sort(self._digraph))

    @cached_property
    def _level(self) -> dict[str, int]:
        level: dict[str, int] = {}
        for name in self._order:
            level[name] = 1 + max((level[producer] for producer in self.mapping[name]), default=-1)
        return level

    def order(self) -> tuple[str, ...]:
        """Returns all names in topological order: inputs before consumers, otherwise alphabetical."""
        return self._order

    def sources(self) -> tuple[str, ...]:
        """Returns the names of the sources, which have no inputs, in alphabetical order."""
        return tuple(name for name, names in self.mapping.items() if not names)

    def inputs(self, name: str) -> tuple[str, ...]:
        """Returns the names of the direct inputs of `name`, in alphabetical order."""
        return self.mapping[self._known(name)]

    def consumers(self, name: str) -> tuple[str, ...]:
        """Returns the names that have `name` as a direct input, in alphabetical order."""
        return tuple(sorted(self._digraph.successors(self._known(name))))

    def upstream(self, name: str) -> tuple[str, ...]:
        """Returns all names that `name` depends on, directly or indirectly, in alphabetical order."""
        import networkx as nx

        return tuple(sorted(nx.ancestors(self._digraph, self._known(name))))

    def level(self, name: str) -> int:
        """Returns the length of the longest path from a source to `name`; 0 for a source."""
        return self._level[self._known(name)]

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Returns the names by level, sources first; within a level in alphabetical order."""
        depth = 1 + max(self._level.values(), default=-1)
        return tuple(
            tuple(name for name in self.mapping if self._level[name] == level) for level in range(depth)
        )

    def _known(self, name: str) -> str:
        if name not in self.mapping:
            raise UnknownInput(self._unknown(name))
        return name

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.mapping, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{name!r}, which is not in the graph ({', '.join(self.mapping) or 'it is empty'}){hint}"


def _closed_path(names: list[str]) -> str:
    """Returns the cycle as a path that begins and ends with its first name in alphabetical order."""
    first = names.index(min(names))
    turned = names[first:] + names[:first]
    return " -> ".join([*turned, turned[0]])
