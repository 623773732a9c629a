"""What tells the rows of a node apart for a sink that replaces them, followed from the grouping on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from beamlike.errors import PlanError, listed
from beamlike.expressions.describe import describe
from beamlike.expressions.tree import copied
from beamlike.io.base import Sink, output_schema
from beamlike.io.sinks import AcceptsSchema, RowKey, SinkInput
from beamlike.logical.node import Node
from beamlike.logical.origins import Configure, DeadLetters, Flatten, Group, Late, Origin
from beamlike.logical.windowing import has_one_pane
from beamlike.steps.base import Filter, Select, WindowInto, WithColumns
from beamlike.steps.joins import Matched
from beamlike.steps.lists import Explode
from beamlike.steps.python import FlatMap, Map, MapBatches
from windowing import Accumulation, GlobalWindows, TimestampCombiner
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, RESERVED_PREFIX, WINDOW_COLUMNS

_REMEDY = "write it to a sink that appends, such as bl.Table(..., mode='append')"


def fitted(sink: Sink, node: Node, step: str, *, chosen: bool = False) -> Sink:
    """The sink of `step`, told its columns and, if it replaces rows, what tells them apart.

    With `chosen`, the rows have all columns that the user wants as their own; others only tell rows apart.
    """
    if not isinstance(sink, AcceptsSchema):
        return sink
    key = row_key(node, step, per_pane=sink.per_pane) if sink.upserts else None
    schema = output_schema(node.shape.everything())
    hidden = schema.keys() - node.schema.keys() if chosen else _always_null(node) if key else ()
    schema = pl.Schema({name: dtype for name, dtype in schema.items() if name not in hidden})
    return sink.fitted(SinkInput(step, schema, tuple(node.schema), key))


def _always_null(node: Node) -> frozenset[str]:
    """The columns of the engine that are null in all rows of a table of current values: those of global windows."""
    if not isinstance(node.windowing.windows, GlobalWindows):
        return frozenset()
    at_end = node.windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
    names = (*WINDOW_COLUMNS, *([EVENT_TIME] if at_end else []))
    return frozenset(name.removeprefix(RESERVED_PREFIX) for name in names) - node.schema.keys()


def row_key(node: Node, step: str, *, per_pane: bool) -> RowKey:
    """The key of rows that come from one grouping, with its keys and windows still in them; `PlanError` for others."""
    way = list(_since_grouping(node, step))
    group, *after = reversed(way)
    (before,), origin = group.inputs, group.origin
    assert isinstance(origin, Group)
    if not per_pane:
        _require_replaceable(before, group.name, step)
    windows = () if isinstance(before.windowing.windows, GlobalWindows) else WINDOW_COLUMNS
    if not (origin.keys or windows):
        raise PlanError(
            f"{group.name!r} has neither keys nor windows, so nothing names its row; group by a constant column, or "
            f"{_REMEDY}",
            step=step,
        )
    names = {key: key for key in origin.keys}
    for taken in after:
        names = _followed(names, taken)
    carriers = {of: name for name, of in reversed(names.items())}
    groups = tuple(_carrier(column, carriers, node, group, step) for column in (*origin.keys, *windows))
    pane = _system_column(PANE_INDEX, carriers, node)
    retracted = _system_column(PANE_RETRACTED, carriers, node)
    if (per_pane and pane is None) or (node.retracting and retracted is None):
        lost = PANE_INDEX if per_pane and pane is None else PANE_RETRACTED
        raise PlanError(_hidden(lost), step=step)
    return RowKey(groups, pane, retracted, per_pane)


def _since_grouping(node: Node, step: str) -> Iterator[Node]:
    """The node and those that it was made from, back to the grouping."""
    while not isinstance(node.origin, Group):
        if reason := _refusal(node.origin):
            raise PlanError(
                f"the sink {step!r} has a row per key and window of a grouping, which a later one replaces, and "
                f"{node.name!r} {reason}; {_REMEDY}",
                step=step,
            )
        yield node
        (node,) = node.inputs
    yield node


def _refusal(origin: Origin) -> str | None:
    match origin:
        case Configure() | Filter() | Select() | WithColumns() | Map() | MapBatches():
            return None
        case Flatten():
            return "has the rows of several collections"
        case Late() | DeadLetters():
            return "has elements, not the rows of a grouping"
        case FlatMap() | Explode():
            return "makes several rows of one"
        case Matched():
            return "has a row for each pair of a join"
        case WindowInto():
            return "puts the rows into other windows, of which several may share one"
    return "is no output of one"


def _require_replaceable(before: Node, group: str, step: str) -> None:
    """Where a window may have several panes, the last one must have everything, and take the place of the others."""
    windowing = before.windowing
    if has_one_pane(windowing):
        return
    if windowing.accumulation is Accumulation.DISCARDING:
        raise PlanError(
            f"the panes of {group!r} have only what is new (accumulation discarding), and a later one would replace an "
            f"earlier one in {step!r}; give it accumulation=bl.ACCUMULATING, or the sink per_pane=True",
            step=step,
        )
    merging = windowing.windows.merging and not before.merged
    if merging and windowing.accumulation is not Accumulation.RETRACTING:
        raise PlanError(
            f"windows of {describe(windowing.windows)} grow from pane to pane, and the row of what a window of "
            f"{group!r} was before would stay; give it accumulation=bl.RETRACTING, or the sink per_pane=True",
            step=step,
        )


def _followed(names: Mapping[str, str], taken: Node) -> dict[str, str]:
    """User columns after a step, by name, that have what the grouping's keys and the system's columns have."""
    origin = taken.origin
    if isinstance(origin, Select | WithColumns):
        kept = dict(names) if isinstance(origin, WithColumns) else {}
        for expression, gives in zip(origin.columns, origin.gives, strict=True):
            sources = copied(expression) or [""] * len(gives)
            for name, source in zip(gives, sources, strict=True):
                kept.pop(name, None)
                of = source if source.startswith(RESERVED_PREFIX) else names.get(source)
                kept |= {name: of} if of else {}
        return kept
    # A function must leave keys alone; a column of another type is another column.
    (before,) = taken.inputs
    return {name: of for name, of in names.items() if before.schema[name] == taken.schema.get(name)}


def _system_column(column: str, carriers: Mapping[str, str], node: Node) -> str | None:
    """How `output_frame` calls a system column, or the user's copy of it; None if it is not in there."""
    plain = column.removeprefix(RESERVED_PREFIX)
    if plain in node.schema:
        return carriers.get(column)
    return plain if column in node.shape.system else None


def _carrier(column: str, carriers: Mapping[str, str], node: Node, group: Node, step: str) -> str:
    """The column of the output that has a key, or an end of the window."""
    if column in WINDOW_COLUMNS:
        name = _system_column(column, carriers, node)
        if name is None:
            raise PlanError(_hidden(column), step=step)
        return name
    if column not in carriers:
        origin = group.origin
        assert isinstance(origin, Group)
        raise PlanError(
            f"{group.name!r} has a row for each {listed(origin.keys)}, and the key {column!r} is not among the columns "
            f"any more, or was computed anew; keep it in select(...), or {_REMEDY}",
            step=step,
        )
    return carriers[column]


def _hidden(column: str) -> str:
    name = column.removeprefix(RESERVED_PREFIX)
    return f"its column {name!r} is not bl.{name}(), which the sink must have to tell rows apart; rename it"
