"""Declarations of cogroups, and of joins in equal windows. Both group a union of the sides, with each row as
a struct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import attrs
import polars as pl

from beamlike.errors import DuplicateName, PlanError, UnboundedGrouping, UnknownName, WrongType, nearest
from beamlike.expressions.aggregates import collect
from beamlike.expressions.describe import describe
from beamlike.expressions.functions import col
from beamlike.logical.event_time import require_event_time
from beamlike.logical.flatten import flattened, require_same_windows
from beamlike.logical.grouping import grouped, require_keys
from beamlike.logical.node import Node
from beamlike.logical.sessions import in_sessions
from beamlike.logical.windowing import continued
from beamlike.rows.dtypes import require_column_name, type_name
from beamlike.steps.infer import Shape, flat
from beamlike.steps.join_changes import MatchedChanges
from beamlike.steps.joins import AsSide, How, Matched
from stages.joins.base import LEFT, RIGHT
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_COLUMNS
from windowing.panes import ALWAYS, Accumulation
from windowing.windowing import Windowing
from windowing.windows import GlobalWindows

Free = Callable[[str], str]
"""Derives a free name from the given one."""

Keys = Mapping[str, Mapping[str, str]]
"""For each side, the column of that side for each key."""


def cogrouped(sides: Mapping[str, Node], keys: Sequence[Any], step: str, free: Free) -> Node:
    """Declares a cogroup of nodes by side name: one row per key, window and pane, with a list of the rows of each
    side.
    """
    require_some(keys, step)
    for side, node in sides.items():
        require_column_name(side, step)
        require_keys(node.schema, keys, step)
        if side in keys:
            raise DuplicateName(
                f"{side!r} is the name of a key and of a side; give the side another", step=step
            )
    return _grouped(sides, {side: {key: key for key in keys} for side in sides}, step, step, free)


def joined(
    left: Node,
    right: Node,
    on: Any,
    left_on: Any,
    right_on: Any,
    how: str,
    suffix: str,
    step: str,
    free: Free,
) -> Node:
    """Declares a join of rows with the same keys in the same window. Arguments are those of `Collection.join`, after
    the nodes of both sides.
    """
    _require_how(how, step)
    own, theirs = keys_of(on, left_on, right_on, step)
    require_some(own, step)
    for node, names in ((left, own), (right, theirs)):
        require_keys(node.schema, names, step)
    for key in own:
        if key in (LEFT, RIGHT):
            raise PlanError(
                f"a key of a join must not be named {key!r}, as its sides are; rename it", step=step
            )
    columns = (
        {} if how in ("semi", "anti") else right_columns(left.schema, right.schema, theirs, suffix, step)
    )
    # With the larger lateness of both, there may be several panes.
    union = flattened([left, right], step)
    windowing = _of_join(union, how, step)
    sides, keys = (
        {LEFT: left, RIGHT: right},
        {LEFT: {key: key for key in own}, RIGHT: dict(zip(own, theirs, strict=True))},
    )
    both = _grouped(sides, keys, step, free(f"{step}.cogroup"), free, windowing)
    schemas = {side: node.schema for side, node in sides.items()}
    user = pl.Schema({**left.schema, **{name: right.schema[of] for name, of in columns.items()}})
    fields: dict[str, Any] = {
        "name": step,
        "keys": own,
        "left": tuple(left.schema),
        "right": columns,
        "how": how,
        "sides": schemas,
    }
    if not both.retracting:
        matched, kept = Matched(**fields, kept=both.shape.system), both.shape.system
    else:
        kept = _kept(both, rows=windowing is not union.windowing and not union.retracting)
        matched = MatchedChanges(**fields, kept=kept, once=windowing is not union.windowing)
    after: Node = attrs.evolve(
        both,
        name=step,
        base=step,
        origin=matched,
        inputs=(both,),
        shape=Shape(user, kept),
        windowing=continued(union.windowing, step),
        retracting=both.retracting and PANE_RETRACTED in kept,
    )
    return after


def _of_join(union: Node, how: str, step: str) -> Windowing:
    """Returns the windowing of a join's grouping. Discarding panes have each result once, so they differ from those
    before: that is known to a grouping that retracts.
    """
    windowing = union.windowing
    if windowing.accumulation is not Accumulation.DISCARDING or windowing.has_one_pane():
        return windowing
    if windowing.windows.merging and not union.merged:
        raise PlanError(
            "a window may have several panes here, and with accumulation discarding a pane of windows that have "
            f"merged ({describe(windowing.windows)}) would repeat results of each; give "
            "window_into(accumulation=bl.RETRACTING) before",
            step=step,
        )
    if how not in ("inner", "semi"):
        require_certain(union, f"that a row matches nothing (how={how!r})", step)
        windowing = attrs.evolve(windowing, closing=ALWAYS)
    return attrs.evolve(windowing, accumulation=Accumulation.RETRACTING)


def _kept(both: Node, *, rows: bool) -> tuple[str, ...]:
    """Returns the system columns of differences. A result that may be retracted has no pane of its own."""
    if rows:
        return tuple(column for column in both.shape.system if column != PANE_RETRACTED)
    return (EVENT_TIME, *WINDOW_COLUMNS, PANE_RETRACTED)


def require_certain(node: Node, what: str, step: str) -> None:
    """Raises `UnboundedGrouping` if a discarding pane would wait for the end of the global window of an
    unbounded input.
    """
    if not node.bounded and isinstance(node.windowing.windows, GlobalWindows):
        raise UnboundedGrouping(
            f"the input has no end and it is in the global window, so {what} is never certain, and with accumulation "
            "discarding it would never be emitted; give window_into(accumulation=bl.RETRACTING), or windows, before",
            step=step,
        )


def join_nodes(node: Node) -> Iterator[Node]:
    """Yields the node of a join or cogroup, and all nodes that were created for it."""
    yield node
    # An `AsSide` step reads a collection of the user's. That is where the nodes of the join begin.
    if not isinstance(node.origin, AsSide):
        for before in node.inputs:
            yield from join_nodes(before)


def _grouped(
    sides: Mapping[str, Node],
    keys: Keys,
    step: str,
    stage: str,
    free: Free,
    windowing: Windowing | None = None,
) -> Node:
    """Declares the grouping of a join or cogroup. The grouping is named `stage`; errors name `step`, as the user
    declared it. `windowing` replaces that of the sides.
    """
    first, *others = sides.values()
    for node in sides.values():
        require_event_time(node, step)
    for other in others:
        require_same_windows(first, other, step)
    for side, node in sides.items():
        require_fresh(node, side, step)
    require_same_types(sides, keys, step)
    schemas = {side: node.schema for side, node in sides.items()}
    # In the union, each row is a struct in the column of its side, and the columns of all other sides are
    # null. So a single grouping collects the rows of every side in a list of its own.
    parts = [tagged(node, side, keys[side], schemas, free(f"{step}.{side}")) for side, node in sides.items()]
    lists = {side: collect(side, where=~col(side).is_null()) for side in sides}
    names, union = tuple(keys[next(iter(sides))]), flattened(parts, free(f"{step}.flatten"))
    union = attrs.evolve(union, windowing=windowing or union.windowing)
    return grouped(in_sessions(union, names, step, free), names, (), lists, stage)


def tagged(node: Node, side: str, keys: Mapping[str, str], sides: Mapping[str, pl.Schema], name: str) -> Node:
    """Declares the rows of one side of a join: its key columns, and the whole row as a struct."""
    key_types = {key: node.schema[own] for key, own in keys.items()}
    user = pl.Schema({**key_types, **{each: pl.Struct(columns) for each, columns in sides.items()}})
    shape = Shape(user, node.shape.system)
    origin = AsSide(name, keys, sides, side, node.shape.system)
    after: Node = attrs.evolve(node, name=name, base=name, origin=origin, inputs=(node,), shape=shape)
    return after


def keys_of(on: Any, left_on: Any, right_on: Any, step: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the key columns of the left and of the right side. Raises `PlanError` unless they are given once, in
    pairs.
    """
    if (on is None) == (left_on is None and right_on is None) or (left_on is None) != (right_on is None):
        raise PlanError(
            "give on=, the columns that both sides have, or left_on= and right_on= where their names differ",
            step=step,
        )
    own, theirs = (tuple(flat([given])) for given in ((on, on) if left_on is None else (left_on, right_on)))
    if len(own) != len(theirs):
        raise PlanError(
            f"left_on has {len(own)} columns and right_on {len(theirs)}; each on the left has one on the right",
            step=step,
        )
    return own, theirs


def right_columns(
    left: pl.Schema, right: pl.Schema, keys: Sequence[str], suffix: Any, step: str
) -> dict[str, str]:
    """Returns the columns of the right side that are not keys, by the names that they have in the result."""
    if not isinstance(suffix, str):
        raise WrongType(f"suffix must be text such as '_right', not {suffix!r}", step=step)
    columns: dict[str, str] = {}
    for column in (name for name in right if name not in keys):
        name = f"{column}{suffix}" if column in left else column
        if name in left or name in columns or (name != column and name in right):
            raise DuplicateName(
                f"both sides have {column!r}, and with the suffix {suffix!r} that of the right one would be {name!r}, "
                "which is a column, too; give another suffix, or rename it before",
                step=step,
            )
        require_column_name(name, step)
        columns[name] = column
    return columns


def _require_how(how: object, step: str) -> None:
    known = get_args(How)
    if how in known:
        return
    word = str(how).lower().replace("_", "")
    meant = {"outer": "full", "leftsemi": "semi", "leftanti": "anti"}.get(word, word.removesuffix("outer"))
    hint = f"; did you mean {meant!r}?" if meant in known else nearest(word, known)
    raise UnknownName(f"how must be one of {', '.join(known)}, not {how!r}{hint}", step=step)


def require_same_types(sides: Mapping[str, Node], keys: Keys, step: str) -> None:
    """Raises `WrongType` for keys of different types, as they are never equal."""
    first, *others = sides
    for other in others:
        for key, own in keys[first].items():
            theirs = keys[other][key]
            ours, dtype = sides[first].schema[own], sides[other].schema[theirs]
            if ours != dtype:
                raise WrongType(
                    f"the key {own!r} of {sides[first].name!r} is {type_name(ours)}, and {theirs!r} of "
                    f"{sides[other].name!r} is {type_name(dtype)}; cast one of them before, as with "
                    f"cast({{{theirs!r}: ...}})",
                    step=step,
                )


def require_fresh(node: Node, side: str, step: str, *, repeats: bool = False) -> None:
    """Raises `PlanError` if a row may repeat an earlier one, without `repeats`: lists of rows would contain both."""
    if node.repeats and not node.windowing.allow_repeats and not repeats:
        raise PlanError(
            f"rows of {node.name!r} ({side}) are panes with all elements so far (accumulation accumulating), so the "
            "lists would have elements several times; give the grouping before accumulation=bl.DISCARDING, or accept "
            "it with window_into(allow_repeats=True)",
            step=step,
        )
    if node.windowing.timestamp_combiner.columns:
        raise PlanError(
            f"{describe(node.windowing.timestamp_combiner)} reads a column of single rows, which have become parts of "
            "lists here; give window_into(timestamp_combiner=...) 'earliest', 'latest' or 'end_of_window'",
            step=step,
        )


def require_some(keys: Sequence[Any], step: str) -> None:
    """Raises `PlanError` if no key is given."""
    if not keys:
        raise PlanError("give it at least one column as the key", step=step)
