"""The key of rows for a sink that replaces them, followed from the grouping to the sink."""

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
    """Returns the sink of `step` with its columns and, if it replaces rows, with the key of the rows.

    If `chosen`, the rows have all columns that the user wants under names of their own; other columns are only keys.
    """
    if not isinstance(sink, AcceptsSchema):
        return sink
    key = row_key(node, step, per_pane=sink.per_pane) if sink.upserts else None
    schema = output_schema(node.shape.everything())
    hidden = schema.keys() - node.schema.keys() if chosen else _always_null(node) if key else ()
    schema = pl.Schema({name: dtype for name, dtype in schema.items() if name not in hidden})
    return sink.fitted(SinkInput(step, schema, tuple(node.schema), key))


def _always_null(node: Node) -> frozenset[str]:
    """Returns the columns of global windows, which are null in all rows of a table of current values."""
    if not isinstance(node.windowing.windows, GlobalWindows):
        return frozenset()
    at_end = node.windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
    names = (*WINDOW_COLUMNS, *([EVENT_TIME] if at_end else []))
    return frozenset(name.removeprefix(RESERVED_PREFIX) for name in names) - node.schema.keys()


def row_key(node: Node, step: str, *, per_pane: bool) -> RowKey:
    """Returns the key of rows of one grouping: its keys and windows. Raises `PlanError` for other rows."""
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
    """Yields the node and the ones before, back to the grouping. Raises `PlanError` if there is none."""
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
    """Raises `PlanError` if the last pane of a window does not replace the earlier ones."""
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
    """Returns user columns after a step that have the values of the grouping's keys or of system columns."""
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
    """Returns the name of a system column in `output_frame`, or of the user's copy of it; None if it is missing."""
    plain = column.removeprefix(RESERVED_PREFIX)
    if plain in node.schema:
        return carriers.get(column)
    return plain if column in node.shape.system else None


def _carrier(column: str, carriers: Mapping[str, str], node: Node, group: Node, step: str) -> str:
    """Returns the output column that has a key, or an end of the window."""
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
