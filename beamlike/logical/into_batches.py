"""The declaration of `group_into_batches`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType
from beamlike.logical.keyed import keyed, require_bound, require_placed
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.steps.infer import Shape
from beamlike.steps.timestamps import not_negative
from stages.process.into_batches import ROWS, IntoBatches, Limits
from stages.process.settled import Settled
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS

_MOST: Final = 2**40


def settled(before: Node, keys: Sequence[str], step: str, free: Callable[[str], str]) -> Node:
    """Returns rows for an operator whose effect cannot be retracted. Changes wait in a stage until they are final."""
    if not before.retracting:
        return before
    require_placed(before, "arrival", step, retractions=True)
    windows = tuple(name for name in WINDOW_COLUMNS if name in before.shape.system)
    lateness = before.windowing.allowed_lateness
    operator = Settled(tuple(keys), before.schema, windows, lateness)
    name = free(f"{step}.settled")
    made: Node = attrs.evolve(
        before,
        name=name,
        base=name,
        origin=Apply(operator),
        inputs=(before,),
        shape=Shape(before.schema, (EVENT_TIME, *windows)),
        retracting=False,
    )
    return made


def collected(before: Node, keys: Sequence[str], size: Any, bytes: Any, max_wait: Any, step: str) -> Node:
    """Declares `group_into_batches`, which emits one row per batch. Arguments are those of
    `Grouped.group_into_batches`.
    """
    require_placed(before, "arrival", step)
    for name, limit in (("size", size), ("bytes", bytes)):
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            raise WrongType(f"{name}= must be a whole number, not {limit!r}", step=step)
        if limit is not None and limit < 1:
            raise PlanError(f"{name}= must be at least 1, not {limit}", step=step)
        if limit is not None and limit > _MOST:
            raise PlanError(f"{name}= must be at most {_MOST:,}, not {limit:,}", step=step)
    if size is None and bytes is None:
        raise PlanError("say when a batch is full: size= in rows, bytes=, or both", step=step)
    if ROWS in keys:
        raise PlanError(f"a batch has its rows in {ROWS!r}, which is a key here; rename the key", step=step)
    wait = None if max_wait is None else not_negative("max_wait", max_wait, step)
    if wait is None:
        require_bound(before, "group_into_batches", "max_wait=, or windows before", step)
    limits = Limits(size, bytes, wait)
    operator = IntoBatches(
        tuple(keys), before.schema, before.windowing, limits, order="arrival", title="group_into_batches"
    )
    row = pl.List(pl.Struct(before.schema))
    return keyed(before, operator, pl.Schema({**{key: before.schema[key] for key in keys}, ROWS: row}), step)
