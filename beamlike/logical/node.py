"""Nodes of what is declared: each says what makes its rows, of which inputs, and what they are. Nothing runs."""

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
    """Rows with a schema, an event time and a windowing, that come from a source or from a step.

    `origin` is the declaration that makes them from `inputs`; `base` begins the derived names of steps after it.
    """

    name: str
    origin: Origin
    inputs: tuple[Node, ...]
    shape: Shape
    windowing: Windowing
    base: str
    merged: bool = False
    """Whether its windows are those that an earlier grouping has merged."""
    bounded: bool = True
    """Whether its rows come to an end."""
    repeats: bool = False
    """Whether a row may have again what an earlier one had, as an accumulating pane does."""

    def called(self, name: str) -> Node:
        """The node by another name."""
        origin = attrs.evolve(self.origin, name=name) if isinstance(self.origin, Step) else self.origin
        renamed: Node = attrs.evolve(self, name=name, origin=origin)
        return renamed

    @property
    def schema(self) -> pl.Schema:
        """The user's columns and their polars types."""
        return self.shape.user

    @property
    def retracting(self) -> bool:
        """Whether a row may take back an earlier one."""
        return PANE_RETRACTED in self.shape.system


def inputs_first(
    node: Node, inputs: Callable[[Node], Sequence[Node]] = lambda node: node.inputs
) -> Iterator[Node]:
    """The node and all that it is made from, each once and after its `inputs`.

    It calls nothing of itself, as a pipeline may have more steps in a row than Python allows calls in each other.
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
