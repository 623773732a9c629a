"""The panes of an accumulating grouping as changes, in which each pane retracts the one before it.

panes    ada 1    ada 2    bob 1
changes  ada 1    ada 1 retracted, ada 2    bob 1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.logical.grouping import grouped
from beamlike.logical.joins import Free, tagged
from beamlike.logical.node import Node
from beamlike.logical.origins import Configure, Group
from beamlike.steps.base import Step, WithColumns
from beamlike.steps.infer import Shape
from beamlike.steps.joins import Newest
from stages.aggregates.builtin import LastPane
from windowing.columns import PANE_INDEX, PANE_RETRACTED, SYSTEM_COLUMNS
from windowing.panes import Accumulation

_INDEX: Final = "pane"
_ROW: Final = "row"


def newest_panes(node: Node, base: str, free: Free) -> tuple[Node, ...]:
    """Declares the changes of a node with repeated rows, by helper nodes whose names begin with `base`. The changes are
    the last one.

    The newest pane of each key and window is found after the grouping, and the steps after the grouping are declared
    again. Without them, a step that leaves out a key or a row would hide which pane a later one replaces. The result is
    empty if a node in between combines collections or has state, or if panes have windows that grow.
    """
    steps = list[Node]()
    while not isinstance(node.origin, Group):
        if len(node.inputs) != 1 or not isinstance(node.origin, Step | Configure):
            return ()
        steps.append(node)
        (node,) = node.inputs
    if node.merged or not node.repeats:
        return ()
    made = [*_changes(node, node.origin.keys, base, free)]
    for number, step in enumerate(reversed(steps), start=1):
        made.append(_again(step, made[-1], free(f"{base}.{number}")))
    return tuple(made)


def _changes(panes: Node, keys: tuple[str, ...], base: str, free: Free) -> Iterable[Node]:
    """Yields the nodes of a grouping of panes that emits the newest pane of each key and retracts the one before."""
    index, row = (_other_than(name, panes.schema) for name in (_INDEX, _ROW))
    windowing = attrs.evolve(panes.windowing, accumulation=Accumulation.RETRACTING, allow_repeats=True)
    name = free(f"{base}.index")
    numbered: Node = attrs.evolve(
        panes,
        name=name,
        base=name,
        origin=WithColumns(name, (nw.col(PANE_INDEX).alias(index),), ((index,),)),
        inputs=(panes,),
        shape=Shape(pl.Schema({**panes.schema, index: pl.Int64()}), panes.shape.system),
        windowing=windowing,
    )
    one = tagged(numbered, row, {key: key for key in keys}, {row: numbered.schema}, free(f"{base}.row"))
    newest = grouped(one, keys, (), {row: LastPane(row, index=index)}, free(base))
    columns = tuple(
        nw.col(name) if name in keys else nw.col(row).struct.field(name).alias(name) for name in panes.schema
    )
    name = free(f"{base}.panes")
    origin = Newest(name, columns, tuple((column,) for column in panes.schema), newest.shape.system)
    shape = Shape(panes.schema, newest.shape.system)
    flat: Node = attrs.evolve(newest, name=name, base=name, origin=origin, inputs=(newest,), shape=shape)
    return numbered, one, newest, flat


def _other_than(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _again(step: Node, before: Node, name: str) -> Node:
    """Declares a step again, after changes."""
    system = tuple(one for one in SYSTEM_COLUMNS if one in {*step.shape.system, PANE_RETRACTED})
    given: dict[str, Any] = {"kept": system} if hasattr(step.origin, "kept") else {}
    again: Node = attrs.evolve(
        step,
        base=name,
        origin=attrs.evolve(step.origin, **given),
        inputs=(before,),
        shape=Shape(step.schema, system),
        repeats=False,
        retracting=True,
    )
    return again.called(name)
