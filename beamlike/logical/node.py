"""Nodes: the immutable declarations of a pipeline. They form its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import attrs
import polars as pl

from beamlike.logical.origins import Origin
from beamlike.steps.base import Step
from beamlike.steps.infer import Shape
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

Kind = Literal["rows", "changes", "repeats"]
"""The relation of the rows of a collection to earlier ones.

"rows" are independent of each other. "changes" are rows, some of which retract earlier rows. "repeats" may contain
earlier rows again, without retracting them.
"""


@attrs.frozen(eq=False)
class Node:
    """A node: rows with a schema, an event time and a windowing, from a source or a step.

    `origin` is the declaration that produces the rows from `inputs`. `base` is the prefix of derived names of later
    steps.
    """

    name: str
    origin: Origin
    inputs: tuple[Node, ...]
    shape: Shape
    windowing: Windowing
    base: str
    merged: bool = False
    """True if an earlier grouping has merged the windows."""
    bounded: bool = True
    """True if the sources from which the rows are computed have an end."""
    repeats: bool = False
    """True if a row may repeat the content of an earlier row, as accumulating panes do."""
    unlike: str = ""
    """The windows of the united collections, as text, if they differ; otherwise empty."""
    retracting: bool = False
    """True if a row may retract an earlier one: the rows have the flag `PANE_RETRACTED`."""

    def called(self, name: str) -> Node:
        """Returns a copy of the node with another name."""
        origin = attrs.evolve(self.origin, name=name) if isinstance(self.origin, Step) else self.origin
        renamed: Node = attrs.evolve(self, name=name, origin=origin)
        return renamed

    @property
    def schema(self) -> pl.Schema:
        """The user's columns and their polars types."""
        return self.shape.user

    def outside_windows(self) -> Node:
        """Returns a copy of the node whose rows are in no window. Its settings for panes stay."""
        shape = attrs.evolve(self.shape, system=self.shape.without_windows())
        windowing = attrs.evolve(self.windowing, windows=GlobalWindows())
        after: Node = attrs.evolve(self, shape=shape, windowing=windowing, merged=False, unlike="")
        return after

    @property
    def kind(self) -> Kind:
        """The relation of a row to earlier rows: independent, a change, or a repetition."""
        if self.retracting:
            return "changes"
        return "repeats" if self.repeats else "rows"


def inputs_first(
    node: Node, inputs: Callable[[Node], Sequence[Node]] = lambda node: node.inputs
) -> Iterator[Node]:
    """Yields all nodes from which the node is computed, then the node itself. Each is yielded once, after its `inputs`.

    A loop is used instead of recursion, because a pipeline may have more steps in a row than Python allows nested
    calls.
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
