"""Declaration of rows that are collected into batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from beamlike.errors import PlanError, WrongType
from beamlike.logical.keyed import keyed, require_bound, require_placed
from beamlike.logical.node import Node
from beamlike.steps.timestamps import not_negative
from stages.process.into_batches import ROWS, IntoBatches, Limits

_MOST: Final = 2**40


def collected(before: Node, keys: Sequence[str], size: Any, bytes: Any, max_wait: Any, step: str) -> Node:
    """Returns a row for each batch."""
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
