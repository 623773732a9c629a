"""The columns that the user chose for a sink with `write(..., columns=)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import PlanError, WrongType, listed, unknown_column
from beamlike.expressions import functions
from beamlike.io.base import FIRST_MOMENT, LAST_MOMENT, Sink, output_schema
from beamlike.io.sinks import AcceptsSchema
from beamlike.logical.node import Node
from beamlike.logical.row_key import row_key
from beamlike.steps.base import Select
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, RESERVED_PREFIX, SYSTEM_COLUMNS
from windowing.windows import GlobalWindows

_MOMENTS: Final = {
    "event_time": functions.event_time,
    "window_start": functions.window_start,
    "window_end": functions.window_end,
}


def with_columns_of(node: Node, columns: Iterable[str], sink: Sink, step: str, name: str) -> Node:
    """Declares the rows of `node` with only these columns, in this order. `name` is the name of the new node.

    Columns of the engine that a sink needs to replace rows are kept as well. Raises `PlanError` for a column that does
    not exist or is named twice, and for a missing key column if the sink has `upserts`.
    """
    known = output_schema(node.shape.everything())
    chosen = _names(columns, known, step)
    if isinstance(sink, AcceptsSchema) and sink.upserts:
        _require_key(node, sink, chosen, step)
    kept = [name for name in (PANE_INDEX, PANE_RETRACTED) if isinstance(sink, AcceptsSchema) and sink.upserts]
    kept = [name for name in kept if name in node.shape.system]
    made = Select(
        name,
        tuple(_column(node, column) for column in chosen),
        tuple((column,) for column in chosen),
        tuple(kept),
    )
    user = pl.Schema({column: known[column] for column in chosen})
    return attrs.evolve(
        node,
        name=name,
        origin=made,
        inputs=(node,),
        shape=attrs.evolve(node.shape, user=user, system=made.kept),
    )


def _names(columns: object, known: pl.Schema, step: str) -> tuple[str, ...]:
    given: Sequence[object] = (
        [columns] if isinstance(columns, str) else columns if isinstance(columns, list | tuple) else ()
    )
    if not given or not all(isinstance(name, str) for name in given):
        raise WrongType(
            f"columns must be a list of names such as {listed(list(known)[:2])}, not {columns!r}", step=step
        )
    names = [str(name) for name in given]
    for at, name in enumerate(names):
        if name not in known:
            raise unknown_column(name, known, step)
        if name in names[:at]:
            raise PlanError(f"columns: {name!r} is named twice", step=step)
    return tuple(names)


def _require_key(node: Node, sink: AcceptsSchema, chosen: Sequence[str], step: str) -> None:
    key = row_key(node, step, per_pane=sink.per_pane)
    if lacking := [name for name in key.columns if name not in chosen]:
        raise PlanError(
            f"columns= leaves out {listed(lacking)}, which the sink needs to distinguish rows; add it, or write to a "
            "sink that appends",
            step=step,
        )


def _column(node: Node, name: str) -> nw.Expr:
    """Returns a user's column, or an engine's column in the form for sinks: a time that no datetime can represent is
    null.
    """
    if name in node.schema:
        return nw.col(name)
    system = RESERVED_PREFIX + name
    assert system in SYSTEM_COLUMNS
    if name not in _MOMENTS:
        return nw.col(system).alias(name)
    unbounded = isinstance(node.windowing.windows, GlobalWindows)
    if unbounded and (system != EVENT_TIME or PANE_INDEX in node.shape.system):
        time = nw.col(system)
        shown = nw.when((time >= FIRST_MOMENT) & (time <= LAST_MOMENT)).then(time)
        return shown.cast(nw.Datetime("us", "UTC")).alias(name)
    return _MOMENTS[name]()
