"""Cogroups, and joins in the same windows: a grouping of the rows of several collections, each as a struct."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import attrs
import polars as pl

from beamlike.errors import DuplicateName, PlanError, UnknownName, WrongType, nearest
from beamlike.expressions.aggregates import collect
from beamlike.expressions.describe import describe
from beamlike.expressions.functions import col
from beamlike.logical.event_time import require_event_time
from beamlike.logical.flatten import flattened, require_same_windowing
from beamlike.logical.grouping import grouped, require_keys
from beamlike.logical.node import Node
from beamlike.logical.windowing import has_one_pane
from beamlike.rows.dtypes import require_column_name, type_name
from beamlike.steps.infer import Shape, flat
from beamlike.steps.joins import AsSide, How, Matched
from stages.joins.base import LEFT, RIGHT
from windowing.panes import Accumulation

Free = Callable[[str], str]
"""A name that is free, derived from this one."""

Keys = Mapping[str, Mapping[str, str]]
"""For each side its own column for each key."""


def cogrouped(sides: Mapping[str, Node], keys: Sequence[Any], step: str, free: Free) -> Node:
    """A row per key, window and pane, with a list of the rows of each side."""
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
    """The rows of two collections that have the same keys and are in the same window."""
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
    require_whole(left, step, "a row of one would not meet those of another")
    sides, keys = (
        {LEFT: left, RIGHT: right},
        {LEFT: {key: key for key in own}, RIGHT: dict(zip(own, theirs, strict=True))},
    )
    both = _grouped(sides, keys, step, free(f"{step}.cogroup"), free)
    schemas = {side: node.schema for side, node in sides.items()}
    matched = Matched(step, own, tuple(left.schema), columns, both.shape.system, how, schemas)  # type: ignore[arg-type]
    user = pl.Schema({**left.schema, **{name: right.schema[of] for name, of in columns.items()}})
    after: Node = attrs.evolve(
        both, name=step, base=step, origin=matched, inputs=(both,), shape=Shape(user, both.shape.system)
    )
    return after


def join_nodes(node: Node) -> Iterator[Node]:
    """The nodes that a cogroup or a join has made for itself, and is one of."""
    yield node
    if not isinstance(node.origin, AsSide):
        for before in node.inputs:
            yield from join_nodes(before)


def _grouped(sides: Mapping[str, Node], keys: Keys, step: str, stage: str, free: Free) -> Node:
    """The grouping, which is named `stage`; who is told of what is wrong has asked for `step`."""
    first, *others = sides.values()
    for side, node in sides.items():
        require_event_time(node, step)
        require_fresh(node, side, step)
    for other in others:
        require_same_windowing(first, other, step)
    require_same_types(sides, keys, step)
    schemas = {side: node.schema for side, node in sides.items()}
    parts = [tagged(node, side, keys[side], schemas, free(f"{step}.{side}")) for side, node in sides.items()]
    lists = {side: collect(side, where=~col(side).is_null()) for side in sides}
    return grouped(
        flattened(parts, free(f"{step}.flatten")), tuple(keys[next(iter(sides))]), (), lists, stage
    )


def tagged(node: Node, side: str, keys: Mapping[str, str], sides: Mapping[str, pl.Schema], name: str) -> Node:
    """Rows of a side as structs, beside their keys."""
    key_types = {key: node.schema[own] for key, own in keys.items()}
    user = pl.Schema({**key_types, **{each: pl.Struct(columns) for each, columns in sides.items()}})
    shape = Shape(user, node.shape.system)
    origin = AsSide(name, keys, sides, side, node.shape.system)
    after: Node = attrs.evolve(node, name=name, base=name, origin=origin, inputs=(node,), shape=shape)
    return after


def keys_of(on: Any, left_on: Any, right_on: Any, step: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of the left side, and those of the right side."""
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
    """The columns of the right side but for its keys, by the name that each gets."""
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
    """Keys of different types are never equal."""
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


def require_fresh(node: Node, side: str, step: str) -> None:
    """No row takes back an earlier one, or has it again: lists of rows would have both."""
    if node.retracting:
        raise PlanError(
            f"rows of {node.name!r} ({side}) may take back earlier ones (accumulation retracting), which are in the "
            "lists already; give the grouping before them another accumulation",
            step=step,
        )
    if node.repeats and not node.windowing.allow_repeats:
        raise PlanError(
            f"rows of {node.name!r} ({side}) are panes that have all that came so far (accumulation accumulating), so "
            "the same would be in the lists several times; give the grouping before accumulation=bl.DISCARDING, or say "
            "window_into(allow_repeats=True) where that is meant",
            step=step,
        )
    if node.windowing.timestamp_combiner.columns:
        raise PlanError(
            f"{describe(node.windowing.timestamp_combiner)} reads a column of single rows, which have become parts of "
            "lists here; give window_into(timestamp_combiner=...) 'earliest', 'latest' or 'end_of_window'",
            step=step,
        )


def require_whole(node: Node, step: str, what: str) -> None:
    """A pane that has only what is new would know nothing of the others."""
    if node.windowing.accumulation is Accumulation.DISCARDING and not has_one_pane(node.windowing):
        raise PlanError(
            f"a window may have several panes here, early or late ones, and with accumulation discarding {what}; give "
            "window_into(accumulation=bl.ACCUMULATING) or bl.RETRACTING before, or neither an early trigger nor "
            "allowed lateness",
            step=step,
        )


def require_some(keys: Sequence[Any], step: str) -> None:
    """At least one key."""
    if not keys:
        raise PlanError("give it at least one column as the key", step=step)
