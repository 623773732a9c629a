"""Rows without repetitions: without those that repeat an earlier one, or only the newest of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import PlanError, UnknownName, WrongType, nearest
from beamlike.expressions.aggregates import last
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped, require_keys
from beamlike.logical.joins import Free, require_some, require_whole, tagged
from beamlike.logical.keyed import keyed, require_bound, require_placed
from beamlike.logical.node import Node
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import Shape
from beamlike.steps.joins import Newest
from beamlike.steps.timestamps import not_negative
from stages.process.dedup import By, Dedup


def deduplicated(before: Node, ids: Sequence[Any], within: Any, by: object, step: str) -> Node:
    """Returns the rows that no earlier row of the same id covers."""
    if not ids:
        raise PlanError(
            'give it the column with the id, or several: dedup("id", within="1h"); for whole rows there is distinct()',
            step=step,
        )
    require_keys(before.schema, ids, step)
    if by not in get_args(By):
        raise UnknownName(
            f"by must be 'event' or 'processing', not {by!r}{nearest(by, get_args(By))}", step=step
        )
    length = not_negative("within", within, step)
    if length == 0:
        raise PlanError("within must be longer than nothing, such as '1h'", step=step)
    return _dedup(before, ids, length, by, "dedup", step)


def distinct(before: Node, step: str) -> Node:
    """Returns the rows that are not in their window already."""
    for column, dtype in before.schema.items():
        if dtype.is_nested() or dtype == pl.Object:
            raise WrongType(
                f"the column {column!r} is {type_name(dtype)}, by which rows cannot be told apart here; drop(...) it "
                "before, or use dedup with the columns that do",
                step=step,
            )
    require_bound(before, "distinct()", "windows before, or use dedup(..., within=...)", step)
    return _dedup(before, tuple(before.schema), None, "event", "distinct", step)


def _dedup(before: Node, ids: Sequence[str], within: int | None, by: Any, title: str, step: str) -> Node:
    require_placed(before, "arrival", step)
    operator = Dedup(
        tuple(ids), before.schema, before.windowing, within=within, by=by, order="arrival", title=title
    )
    return keyed(before, operator, before.schema, step)


def newest(before: Node, keys: Sequence[Any], step: str, free: Free) -> Node:
    """Returns the row with the greatest event time of each key and window; of equals, the one that arrived last."""
    require_event_time(before, step)
    require_some(keys, step)
    require_keys(before.schema, keys, step)
    if before.retracting:
        raise PlanError(
            "its rows may retract earlier ones (accumulation retracting), and the newest but one is not known any "
            "more; give the grouping before another accumulation",
            step=step,
        )
    require_whole(before, step, "the newest row of one would not be compared with those of another")
    row = "row"
    while row in keys:
        row += "_"
    one = tagged(before, row, {key: key for key in keys}, {row: before.schema}, free(f"{step}.row"))
    group = grouped(one, tuple(keys), (), {row: last(row)}, free(f"{step}.last"))
    columns = tuple(
        nw.col(name) if name in keys else nw.col(row).struct.field(name).alias(name) for name in before.schema
    )
    origin = Newest(step, columns, tuple((name,) for name in before.schema), group.shape.system)
    shape = Shape(before.schema, group.shape.system)
    after: Node = attrs.evolve(group, name=step, base=step, origin=origin, inputs=(group,), shape=shape)
    return after
