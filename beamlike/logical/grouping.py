"""Declarations of groupings: their keys and aggregates, the columns that they emit, and the elements that they drop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import DuplicateName, PlanError, WrongType, unknown_column
from beamlike.logical.aggregates import fitted
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Group, Late, OfStage
from beamlike.logical.windowing import continued, pane_columns, require_groupable
from beamlike.rows.dtypes import require_column_name, type_name
from beamlike.steps.base import Step
from beamlike.steps.infer import Shape
from beamlike.steps.joins import Matched, Newest, Paired
from stages.process.settled import Settled
from windowing.columns import EVENT_TIME, PANE_COLUMNS, PANE_RETRACTED, WINDOW_COLUMNS


def grouped(
    before: Node, keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Any], step: str
) -> Node:
    """Declares a grouping of the rows of `before`, which emits one row per key, window and pane.

    `keys` and `aggregates` are those of `Grouped.aggregate`. `unnamed` has aggregates without a name, which are
    refused.
    """
    fitting = fitted(before.schema, keys, unnamed, aggregates, step)
    require_groupable(before, fitting, step)
    results = {name: aggregate.dtype(before.schema) for name, aggregate in fitting.items()}
    user = pl.Schema({**{key: before.schema[key] for key in keys}, **results})
    windowing = before.windowing
    return Node(
        step,
        Group(tuple(keys), fitting),
        (before,),
        Shape(user, (EVENT_TIME, *WINDOW_COLUMNS, *pane_columns(windowing))),
        continued(windowing, step),
        base=step,
        merged=windowing.windows.merging,
        bounded=before.bounded,
        repeats=windowing.may_repeat(),
        retracting=windowing.may_retract(),
    )


def has_looked_up(node: Node) -> bool:
    """True for a step whose expressions look up a side. Its input is then a stage with the lookups."""
    origin = node.inputs[0].origin if isinstance(node.origin, Step) else None
    return isinstance(origin, Apply) and origin.lookup is not None


def late(grouping: Node, name: str, base: str) -> Node:
    """Declares a collection of the elements that the node `grouping` dropped, in the windows that dropped them."""
    if isinstance(grouping.origin, Matched | Newest | Paired) or has_looked_up(grouping):
        (grouping,) = grouping.inputs
    # Rows of changes are dropped where they wait until they are final.
    waits = grouping.inputs[0].origin if grouping.inputs else None
    if isinstance(waits, Apply) and isinstance(waits.operator, Settled):
        grouping = grouping.inputs[0]
    if not isinstance(grouping.origin, OfStage):
        raise PlanError(
            "only the output of a grouping, a join, or a process has late elements; call it there", step=name
        )
    if isinstance(grouping.origin, Apply) and grouping.origin.operator.with_late() is None:
        kind = type(grouping.origin.operator).__name__
        raise PlanError(
            f"the operator {kind} does not show the rows that it drops; late() needs its method with_late()",
            step=name,
        )
    before, *_ = grouping.inputs
    shape = dropped_shape(before, name)
    after: Node = attrs.evolve(
        before,
        name=name,
        base=base,
        origin=Late(),
        inputs=(grouping,),
        shape=shape,
        bounded=grouping.bounded,
        # A log of what was dropped: its retractions match none of its rows.
        retracting=False,
    )
    return after


def require_keys(schema: pl.Schema, keys: Sequence[Any], step: str) -> None:
    """Raises `PlanError` unless `keys` are distinct columns of types that can be keys.

    The shard of a row is chosen by the text or number of its key. So a type can be a key if values are equal exactly if
    their texts or numbers are.
    """
    if not keys:
        raise PlanError(
            "group_by needs a key; to aggregate all rows of a window call .aggregate(...)", step=step
        )
    for index, key in enumerate(keys):
        if isinstance(key, nw.Expr | pl.Expr):
            raise WrongType(
                "a key is the name of a column; compute it with with_columns(...) before", step=step
            )
        require_column_name(key, step)
        if key not in schema:
            raise unknown_column(key, schema, step)
        if key in keys[:index]:
            raise DuplicateName(f"the key {key!r} is given twice", step=step)
        _require_key_type(key, schema[key], step)


def _require_key_type(key: str, dtype: pl.DataType, step: str) -> None:
    if dtype.is_nested() or dtype.is_float() or dtype in (pl.Duration, pl.Object, pl.Null):
        raise WrongType(
            f"the key {key!r} is {type_name(dtype)}; a key may be text, bytes, a whole number, Decimal, Boolean "
            "or a time: cast it with with_columns(...) before",
            step=step,
        )


def dropped_shape(before: Node, step: str) -> Shape:
    """Returns the columns of dropped rows: the input's columns, the reason, the event time and the window."""
    if "reason" in before.schema:
        raise DuplicateName(
            "late() gives a column 'reason', and the input of the grouping has one; rename that before the grouping",
            step=step,
        )
    left_out = {*PANE_COLUMNS} - ({PANE_RETRACTED} if before.retracting else set())
    carried = tuple(name for name in before.shape.with_windows() if name not in left_out)
    return Shape(pl.Schema({**before.schema, "reason": pl.String()}), carried)
