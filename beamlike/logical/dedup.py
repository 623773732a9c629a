"""Declarations of `dedup`, `distinct` and `latest`: rows without duplicates, or only the newest row of each key."""

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
from beamlike.logical.joins import Free, require_certain, require_some, tagged
from beamlike.logical.keyed import keyed, require_bound, require_placed
from beamlike.logical.node import Node
from beamlike.logical.sessions import in_sessions
from beamlike.logical.windowing import continued
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import Shape
from beamlike.steps.joins import Newest
from beamlike.steps.timestamps import not_negative
from stages.process.dedup import By, Dedup
from stages.process.dedup_of_changes import DedupOfChanges
from stages.process.keyed import Keyed
from windowing.panes import Accumulation
from windowing.triggers.basic import Never
from windowing.windowing import Windowing


def deduplicated(before: Node, ids: Sequence[Any], within: Any, by: object, step: str) -> Node:
    """Declares `dedup`: the rows whose id no earlier row had within the duration `within`."""
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
    if before.retracting and by == "processing":
        raise PlanError(
            "its rows may retract earlier ones (accumulation retracting), and the processing time of a row is not part "
            'of it; give by="event"',
            step=step,
        )
    length = not_negative("within", within, step)
    if length == 0:
        raise PlanError("within must be longer than nothing, such as '1h'", step=step)
    return _dedup(before, ids, length, by, "dedup", step)


def distinct(before: Node, step: str) -> Node:
    """Declares `distinct`: the rows that do not equal an earlier row of their window."""
    for column, dtype in before.schema.items():
        if dtype.is_nested() or dtype == pl.Object:
            raise WrongType(
                f"the column {column!r} is {type_name(dtype)}, by which rows cannot be compared; drop(...) it "
                "before, or use dedup with the columns that do",
                step=step,
            )
    if not before.retracting:  # Of changes, the state is what is left, as in a grouping.
        require_bound(before, "distinct()", "windows before, or use dedup(..., within=...)", step)
    return _dedup(before, tuple(before.schema), None, "event", "distinct", step)


def _dedup(before: Node, ids: Sequence[str], within: int | None, by: Any, title: str, step: str) -> Node:
    require_placed(before, "arrival", step, retractions=True)
    choices: dict[str, Any] = {"within": within, "order": "arrival", "title": title}
    operator: Keyed
    if before.retracting:
        operator = DedupOfChanges(tuple(ids), before.schema, before.windowing, retracted=True, **choices)
    else:
        operator = Dedup(tuple(ids), before.schema, before.windowing, by=by, **choices)
    return keyed(before, operator, before.schema, step)


def newest(before: Node, keys: Sequence[Any], step: str, free: Free) -> Node:
    """Declares `latest`: for each key and window, the row with the greatest event time. If several rows have it, the
    last to arrive is used.
    """
    require_event_time(before, step)
    require_some(keys, step)
    require_keys(before.schema, keys, step)
    windowing = _of_newest(before, step)
    row = "row"
    while row in keys:
        row += "_"
    one = tagged(before, row, {key: key for key in keys}, {row: before.schema}, free(f"{step}.row"))
    one = attrs.evolve(one, windowing=windowing)
    one = in_sessions(one, keys, step, free)
    group = grouped(one, tuple(keys), (), {row: last(row)}, free(f"{step}.last"))
    if windowing is not before.windowing:
        group = attrs.evolve(group, repeats=False, windowing=continued(before.windowing, step))
    columns = tuple(
        nw.col(name) if name in keys else nw.col(row).struct.field(name).alias(name) for name in before.schema
    )
    origin = Newest(step, columns, tuple((name,) for name in before.schema), group.shape.system)
    shape = Shape(before.schema, group.shape.system)
    after: Node = attrs.evolve(group, name=step, base=step, origin=origin, inputs=(group,), shape=shape)
    return after


def _of_newest(before: Node, step: str) -> Windowing:
    """Returns the windowing of the grouping of `latest`. With discarding panes, a row is emitted once, when it is
    certain.
    """
    windowing = before.windowing
    if windowing.accumulation is not Accumulation.DISCARDING or windowing.has_one_pane():
        return windowing
    require_certain(before, "the newest row of a key", step)
    return attrs.evolve(windowing, trigger=Never(), accumulation=Accumulation.ACCUMULATING)
