"""The nodes of a declared pipeline. Nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
import polars as pl

from beamlike.logical.origins import Origin
from beamlike.steps.base import Step
from beamlike.steps.infer import Shape
from windowing.columns import PANE_RETRACTED
from windowing.windowing import Windowing


@attrs.frozen(eq=False)
class Node:
    """Rows with a schema, an event time and a windowing, from a source or a step.

    `origin` is the declaration that makes them of `inputs`; `base` begins the derived names of later steps.
    """

    name: str
    origin: Origin
    inputs: tuple[Node, ...]
    shape: Shape
    windowing: Windowing
    base: str
    merged: bool = False
    """True if an earlier grouping has merged its windows."""
    bounded: bool = True
    """True if its rows have an end."""
    repeats: bool = False
    """True if a row may repeat the content of an earlier one, as an accumulating pane does."""

    def called(self, name: str) -> Node:
        """Returns the node with another name."""
        origin = attrs.evolve(self.origin, name=name) if isinstance(self.origin, Step) else self.origin
        renamed: Node = attrs.evolve(self, name=name, origin=origin)
        return renamed

    @property
    def schema(self) -> pl.Schema:
        """The user's columns and their polars types."""
        return self.shape.user

    @property
    def retracting(self) -> bool:
        """True if a row may retract an earlier one."""
        return PANE_RETRACTED in self.shape.system


def inputs_first(
    node: Node, inputs: Callable[[Node], Sequence[Node]] = lambda node: node.inputs
) -> Iterator[Node]:
    """Yields the nodes from which the node is made, then itself: each once, after its `inputs`.

    There is no recursion, as a pipeline may have more steps in a row than Python allows nested calls.
    """
    done, ahead = set[Node](), [node]
    while ahead:
        missing = [before for before in inputs(ahead[-1]) if before not in done]
        if missing:
            ahead += reversed(missing)
            continue
        one = ahead.pop()
        if one not in done:
            done.add(one)
            yield one
