"""The key by which a sink replaces rows, traced from the grouping to the sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from beamlike.errors import PlanError, listed
from beamlike.expressions.describe import describe
from beamlike.expressions.tree import copied
from beamlike.io.base import Sink, output_schema
from beamlike.io.sinks import AcceptsSchema, RowKey, SinkInput
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, Configure, DeadLetters, Flatten, Group, Late, Origin
from beamlike.steps.base import Filter, Select, WindowInto, WithColumns
from beamlike.steps.joins import Matched
from beamlike.steps.lists import Explode
from beamlike.steps.python import FlatMap, Map, MapBatches
from stages.process.dedup import Dedup
from stages.process.dedup_of_changes import DedupOfChanges
from stages.process.sessions_of_changes import SessionsOfChanges
from windowing import Accumulation, GlobalWindows, TimestampCombiner
from windowing.columns import EVENT_TIME, PANE_INDEX, PANE_RETRACTED, RESERVED_PREFIX, WINDOW_COLUMNS

_REMEDY = "write it to a sink that appends, such as bl.Table(..., mode='append')"


def fitted(sink: Sink, node: Node, step: str, *, chosen: bool = False) -> Sink:
    """Returns the sink with the columns that it receives and, if it replaces rows, with their key.

    If `chosen`, the user chose the columns: the rows have all of them as user columns, and other columns are only keys.
    """
    if not isinstance(sink, AcceptsSchema):
        return sink
    key = row_key(node, step, per_pane=sink.per_pane) if sink.upserts else None
    schema = output_schema(node.shape.everything())
    hidden = schema.keys() - node.schema.keys() if chosen else _always_null(node) if key else ()
    schema = pl.Schema({name: dtype for name, dtype in schema.items() if name not in hidden})
    return sink.fitted(SinkInput(step, schema, tuple(node.schema), key))


def _always_null(node: Node) -> frozenset[str]:
    """Returns the columns that are always null if windows are global: the bounds of the window and, at its end, the
    event time.
    """
    if not isinstance(node.windowing.windows, GlobalWindows):
        return frozenset()
    at_end = node.windowing.timestamp_combiner is TimestampCombiner.END_OF_WINDOW
    names = (*WINDOW_COLUMNS, *([EVENT_TIME] if at_end else []))
    return frozenset(name.removeprefix(RESERVED_PREFIX) for name in names) - node.schema.keys()


def row_key(node: Node, step: str, *, per_pane: bool) -> RowKey:
    """Returns the key of the rows of a grouping, of `distinct`, or of a join in windows: the key columns and the
    window. Raises `PlanError` for other rows.
    """
    base, *after = reversed(list(_since_base(node, step)))
    if not per_pane:
        _require_replaceable(base, step, items=any(isinstance(one.origin, Explode) for one in after))
    keys = _numbered_keys(base, after, step)
    windows = () if isinstance(base.windowing.windows, GlobalWindows) else WINDOW_COLUMNS
    if not (keys or windows):
        raise PlanError(
            f"{base.name!r} has neither keys nor windows, so nothing names its row; group by a constant column, or "
            f"{_REMEDY}",
            step=step,
        )
    carriers = _carriers(keys, after)
    groups = tuple(_carrier(column, carriers, node, base, keys, step) for column in (*keys, *windows))
    pane = _system_column(PANE_INDEX, carriers, node)
    retracted = _system_column(PANE_RETRACTED, carriers, node)
    if (per_pane and pane is None) or (node.retracting and retracted is None):
        lost = PANE_INDEX if per_pane and pane is None else PANE_RETRACTED
        raise PlanError(_hidden(lost), step=step)
    return RowKey(groups, pane, retracted, per_pane)


def _carriers(keys: Iterable[str], after: Iterable[Node]) -> dict[str, str]:
    """Returns the columns that have the values of keys and system columns after some steps."""
    names = {key: key for key in keys}
    # From the grouping to the sink, each step may rename, copy, drop or overwrite the columns of the key.
    for taken in after:
        names = _followed(names, taken)
    return {of: name for name, of in reversed(names.items())}


def _numbered_keys(base: Node, after: Iterable[Node], step: str) -> tuple[str, ...]:
    """Returns the keys of a node, and the columns that number the items of its lists after some steps."""
    origins = [one.origin for one in after]
    numbers = [one.number for one in origins if isinstance(one, Explode) and one.number is not None]
    return (*_keys(base, step), *numbers)


def _keys(base: Node, step: str) -> tuple[str, ...]:
    """Returns the columns of a node that, together with the window, tell its rows apart."""
    match base.origin:
        case Group(keys=keys):
            return keys
        case Matched(how=how, keys=join_keys, right=right):
            left, other = _sides(base)
            own = _keys_of_side(left, base, step)
            if how in ("semi", "anti"):
                return own
            names = {of: name for name, of in right.items()}
            theirs = _keys_of_side(other, base, step)
            added = (names[key] for key in theirs if key in names)
            # A row without a match has null in the columns of the other side, but the join's keys in any case.
            return tuple(dict.fromkeys((*join_keys, *own, *added)))
    return tuple(base.schema)


def _sides(joined: Node) -> tuple[Node, Node]:
    """Returns the collections that a join in windows joins."""
    ((before,),) = (one.inputs for one in joined.inputs)
    both = before if isinstance(before.origin, Flatten) else before.inputs[0]
    left, right = (tagged.inputs[0] for tagged in both.inputs)
    return left, right


def _keys_of_side(side: Node, joined: Node, step: str) -> tuple[str, ...]:
    """Returns the columns that tell the rows of one side of a join apart, within their window."""
    base, *after = reversed(list(_since_base(side, step)))
    _require_replaceable(base, step, items=any(isinstance(one.origin, Explode) for one in after))
    keys = _numbered_keys(base, after, step)
    carriers = _carriers(keys, after)
    return tuple(_carrier(key, carriers, side, base, keys, step) for key in keys)


def _since_base(node: Node, step: str) -> Iterator[Node]:
    """Yields the node and those before it, back to a node whose rows have keys. Raises `PlanError` if there is none."""
    while not _has_keys(node.origin):
        if reason := _refusal(node.origin):
            raise PlanError(
                f"the sink {step!r} has a row per key and window of a grouping, which a later one replaces, and "
                f"{node.name!r} {reason}; {_remedy(node)}",
                step=step,
            )
        yield node
        (node,) = node.inputs
    yield node


def _has_keys(origin: Origin) -> bool:
    match origin:
        case Group() | Matched():
            return True
        case Apply(operator=Dedup(within=None) | DedupOfChanges(within=None)):
            return True
    return False


def _refusal(origin: Origin) -> str | None:
    match origin:
        case Configure() | Filter() | Select() | WithColumns() | Map() | MapBatches():
            return None
        case Flatten():
            return "has the rows of several collections"
        case Late() | DeadLetters():
            return "has elements, not the rows of a grouping"
        case Explode(number=None):
            return "makes several rows of one without a number, as explode(..., number=) or a selected ROW_NUMBER() has"
        case Explode():
            return None
        case FlatMap():
            return "makes several rows of one"
        case WindowInto():
            return "puts the rows of several windows into one"
    return "is no output of one"


def _remedy(node: Node) -> str:
    """Returns the remedy for rows without a key. A sink that appends would keep retractions as rows."""
    newest = f"keep the newest row of each key by .latest({', '.join(map(repr, [*node.schema][:1]))}), with its columns"
    return newest if node.retracting else f"{newest}, or {_REMEDY}"


def _require_replaceable(base: Node, step: str, *, items: bool = False) -> None:
    """Raises `PlanError` unless each pane of a window replaces the pane before it. With `items`, the rows are the items
    of lists, of which a later pane may have fewer.
    """
    if not isinstance(base.origin, Group | Matched):
        return
    (before,) = base.inputs
    windowing = before.windowing
    if windowing.has_one_pane():
        return
    if isinstance(base.origin, Matched) or items:
        if not base.retracting:
            raise PlanError(
                f"a later pane of {base.name!r} may lack rows of an earlier one, which would stay in {step!r}; give it "
                "accumulation=bl.RETRACTING (in SQL: EMIT ... RETRACTING)",
                step=step,
            )
        return
    if windowing.accumulation is Accumulation.DISCARDING:
        raise PlanError(
            f"the panes of {base.name!r} have only new elements (accumulation discarding), and a later one would "
            f"replace an earlier one in {step!r}; give it accumulation=bl.ACCUMULATING, or the sink per_pane=True",
            step=step,
        )
    apart = isinstance(before.origin, Apply) and isinstance(before.origin.operator, SessionsOfChanges)
    merging = windowing.windows.merging and (apart or not before.merged)
    if merging and windowing.accumulation is not Accumulation.RETRACTING:
        raise PlanError(
            f"windows of {describe(windowing.windows)} grow from pane to pane, and rows for the earlier bounds of "
            f"windows of {base.name!r} would stay; give it accumulation=bl.RETRACTING, or the sink per_pane=True",
            step=step,
        )


def _followed(names: Mapping[str, str], taken: Node) -> dict[str, str]:
    """Returns the columns after a step that still have the values of a key or of a system column, by column name."""
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
    if isinstance(origin, Explode) and origin.number is not None:
        return {**names, origin.number: origin.number}
    # A function must return keys unchanged, but a column with another type is a different column.
    (before,) = taken.inputs
    return {name: of for name, of in names.items() if before.schema[name] == taken.schema.get(name)}


def _system_column(column: str, carriers: Mapping[str, str], node: Node) -> str | None:
    """Returns the name of a system column at sinks, or of the user's copy of it; None if neither exists."""
    plain = column.removeprefix(RESERVED_PREFIX)
    if plain in node.schema:
        return carriers.get(column)
    return plain if column in node.shape.system else None


def _carrier(
    column: str, carriers: Mapping[str, str], node: Node, base: Node, keys: Iterable[str], step: str
) -> str:
    """Returns the output column with the value of a key or of a window bound. Raises `PlanError` if there is none."""
    if column in WINDOW_COLUMNS:
        name = _system_column(column, carriers, node)
        if name is None:
            raise PlanError(_hidden(column), step=step)
        return name
    if column not in carriers:
        raise PlanError(
            f"{base.name!r} has a row for each {listed(keys)}, and the key {column!r} is not among the columns "
            f"any more, or was computed again; keep it in select(...), or {_REMEDY}",
            step=step,
        )
    return carriers[column]


def _hidden(column: str) -> str:
    name = column.removeprefix(RESERVED_PREFIX)
    return f"its column {name!r} is not bl.{name}(), which the sink needs to distinguish rows; rename it"
