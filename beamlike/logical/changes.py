"""The declaration of the changes that a log of changes contains."""

from __future__ import annotations

from typing import Any

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, unknown_column
from beamlike.logical.event_time import event_time_column, require_event_time, require_no_unit
from beamlike.logical.grouping import require_keys
from beamlike.logical.joins import Free, require_some
from beamlike.logical.keyed import keyed
from beamlike.logical.node import Node
from beamlike.rows.dtypes import require_column_name, schema_text, type_name
from beamlike.steps.changes import ChangesOfLog
from beamlike.steps.infer import Shape, run_empty
from beamlike.steps.timestamps import not_negative
from stages.process.newest_of_key import NewestOfKey
from windowing.columns import EVENT_TIME, PANE_RETRACTED


def changes_of(
    log: Node,
    op: Any,
    before: Any,
    after: Any,
    keys: tuple[str, ...] | None,
    timestamp: Any,
    unit: Any,
    skew: Any,
    step: str,
    base: str,
    free: Free,
) -> Node:
    """Declares the changes of a log. `before` and `after` are its columns of rows; without them, each row of the log is
    a change. With `keys`, a stage finds the rows that are retracted, and its input is a helper node.

    Raises `PlanError` if a column is missing or has a wrong type, or if the rows of the log may retract others.
    """
    require_event_time(log, step)
    _require_rows(log, step)
    _require_columns(log, op, before, after, step)
    rows = _rows_of(log.schema, op, before, after, step)
    if timestamp is None:
        require_no_unit(unit, step)
    else:
        event_time_column(rows, timestamp, unit, step)
    allowed = not_negative("allowed_skew", skew, step)
    if allowed and timestamp is None:
        raise PlanError(
            f"allowed_skew={skew!r} is for event times of timestamp=, which is not given", step=step
        )
    if keys is not None:
        require_some(keys, step)
        require_keys(rows, keys, step)
    name = free(f"{step}.log") if keys else step
    origin = ChangesOfLog(name, op, before, after, timestamp, unit, allowed, tuple(rows), keys or ())
    run_empty(log.shape, origin)
    after_log: Node = attrs.evolve(
        log.outside_windows(),
        name=name,
        base=base,
        origin=origin,
        inputs=(log,),
        shape=Shape(rows, (EVENT_TIME, PANE_RETRACTED)),
        retracting=True,
    )
    if not keys:
        return after_log
    operator = NewestOfKey(keys, rows, after_log.windowing, order="arrival", title=base, retracted=True)
    return attrs.evolve(keyed(after_log, operator, rows, step), base=base)


def _require_rows(log: Node, step: str) -> None:
    if log.kind != "rows":
        raise PlanError(
            f"the rows of {log.name!r} are {log.kind}, but the rows of a log must not retract or repeat each other",
            step=step,
        )


def _require_columns(log: Node, op: Any, before: Any, after: Any, step: str) -> None:
    if (before is None) != (after is None):
        raise PlanError(
            "give both before= and after=, the columns with the old row and the new row; or None for both, if each "
            "row of the log is one change",
            step=step,
        )
    for word, column in (("op", op), ("before", before), ("after", after)):
        if column is None and word != "op":
            continue
        if column not in log.schema:
            flat = "; if each row of the log is one change, give before=None and after=None"
            note = f"; {word}= names it{'' if word == 'op' else flat}"
            raise unknown_column(column, log.schema, step, note=note)


def _rows_of(log: pl.Schema, op: str, before: str | None, after: str | None, step: str) -> pl.Schema:
    """Returns the columns of the rows that a log is about."""
    text = isinstance(log[op], pl.String | pl.Categorical | pl.Enum)
    if before is None or after is None:
        if not (text or log[op] == pl.Boolean):
            expected = "text such as '+I' or 'delete', or Boolean, true for a row that is retracted"
            raise WrongType(f"{op!r} must be {expected}, not {type_name(log[op])}", step=step)
        return pl.Schema({name: dtype for name, dtype in log.items() if name != op})
    if not text:
        raise WrongType(f"{op!r} must be text such as 'c', 'u' or 'd', not {type_name(log[op])}", step=step)
    for name in (before, after):
        if not isinstance(log[name], pl.Struct):
            raise WrongType(f"{name!r} must be a struct with a row, not {type_name(log[name])}", step=step)
    old, new = (pl.Schema(log[name].to_schema()) for name in (before, after))  # type: ignore[attr-defined]
    if dict(old) != dict(new):
        raise WrongType(
            f"the old row and the new row must have the same columns; {before!r} has {schema_text(old)}, and {after!r} "
            f"has {schema_text(new)}",
            step=step,
        )
    for name in new:
        require_column_name(name, step)
    return new
