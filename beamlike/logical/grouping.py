"""Groupings: their keys and aggregates, the columns that they give, and the elements that they drop."""

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
from windowing.columns import EVENT_TIME, PANE_COLUMNS, PANE_RETRACTED, WINDOW_COLUMNS


def grouped(
    before: Node, keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Any], step: str
) -> Node:
    """A row per key, window and pane."""
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
    )


def has_looked_up(node: Node) -> bool:
    """True for a step of expressions for which a lookup was made."""
    origin = node.inputs[0].origin if isinstance(node.origin, Step) else None
    return isinstance(origin, Apply) and origin.lookup is not None


def late(grouping: Node, name: str, base: str) -> Node:
    """The elements that a grouping dropped, in the windows that dropped them."""
    if isinstance(grouping.origin, Matched | Newest | Paired) or has_looked_up(grouping):
        (grouping,) = grouping.inputs
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
    shape = dropped_shape(before.shape, name)
    after: Node = attrs.evolve(
        before,
        name=name,
        base=base,
        origin=Late(),
        inputs=(grouping,),
        shape=shape,
        bounded=grouping.bounded,
    )
    return after


def require_keys(schema: pl.Schema, keys: Sequence[Any], step: str) -> None:
    """Keys are columns whose values are equal exactly when their text, or number, is: shards are chosen by it."""
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


def dropped_shape(before: Shape, step: str) -> Shape:
    """The columns of what a grouping of such rows drops: theirs and the reason, with event time and window."""
    if "reason" in before.user:
        raise DuplicateName(
            "late() gives a column 'reason', and the input of the grouping has one; rename that before the grouping",
            step=step,
        )
    carried = tuple(
        name for name in before.with_windows() if name not in PANE_COLUMNS or name == PANE_RETRACTED
    )
    return Shape(pl.Schema({**before.user, "reason": pl.String()}), carried)
