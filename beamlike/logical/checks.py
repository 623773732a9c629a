"""What a declaration must hold, checked at the call that makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl

import beamlike.expressions.functions as expressions
from beamlike.errors import (
    DuplicateName,
    MissingFiles,
    PlanError,
    ReservedName,
    UnknownName,
    UnlikeCollections,
    WrongType,
    nearest,
    unknown_column,
)
from beamlike.expressions.describe import function_name, windowing_choices
from beamlike.io.base import SHOWN
from beamlike.logical.origins import DeadLetters, Group, Origin, Read
from beamlike.rows.dtypes import require_column_name, schema_text, type_name
from beamlike.steps.base import Step, WindowInto
from beamlike.steps.infer import Shape
from stages.aggregates.builtin import Aggregate
from stages.aggregates.combine_fn import Combine
from windowing.columns import EVENT_TIME, PANE_COLUMNS, PANE_RETRACTED, WINDOW_START

if TYPE_CHECKING:
    from beamlike.api.collection import Collection

AGGREGATES = (
    "collect", "combine", "count", "first", "last", "max", "mean", "min", "sum", "window_length"
)  # fmt: skip


def require_name(name: object, what: str) -> None:
    """Names are one line of text: they appear in plans, metrics and the keys of state."""
    if not isinstance(name, str):
        raise WrongType(f"the name of a {what} must be a string, not {name!r}")
    if not name.strip() or not name.isprintable() or name != name.strip():
        raise PlanError(
            f"{name!r} cannot name a {what}: a name is one line of text that does not begin or end blank"
        )
    if name.startswith("@"):
        raise ReservedName(f"{name!r} cannot name a {what}: names that begin with @ are the engine's own")


def require_source(source: Any, step: str) -> pl.Schema:
    """The columns of something that can be read."""
    if (
        isinstance(source, type)
        or not callable(getattr(source, "schema", None))
        or not hasattr(source, "bounded")
    ):
        example = "; did you mean bl.Parquet(...)?" if isinstance(source, str) else ""
        raise WrongType(
            f"expected a source such as bl.Parquet('data/plays'), got {source!r}{example}", step=step
        )
    try:
        schema = pl.Schema(source.schema())
    except FileNotFoundError as error:
        raise MissingFiles(str(error), step=step) from None
    for column in schema:
        require_column_name(column, step)
    return schema


def require_event_time(collection: Collection, step: str) -> None:
    """Windows and groupings need one; dead letters have none, and some rows have none yet."""
    if EVENT_TIME in collection.shape.system:
        return
    if has_dead_letters(collection):
        reason = "dead letters have no event time, so they can be neither windowed nor grouped"
    else:
        reason = (
            "its rows have no event time yet; call with_watermark(bl.BoundedOutOfOrderness('5s'), timestamp='at') "
            "before, or give both in read(...)"
        )
    raise PlanError(reason, step=step)


def require_letters(collection: Collection, step: str) -> None:
    """Sources and steps have dead letters, unless their rows are dead letters themselves."""
    if not _looks_at_rows(collection.origin):
        raise PlanError(
            "only a source and a step that computes something of each row have dead letters, such as map or filter, a "
            "grouping with a CombineFn, or windows of your own; "
            f"{collection.name!r} is neither: call it there",
            step=step,
        )
    if has_dead_letters(collection):
        raise PlanError(
            "its rows are dead letters, and have none of their own: those that a step cannot use go to the folder",
            step=step,
        )


def _looks_at_rows(origin: Origin) -> bool:
    """Whether there may be rows that it cannot use."""
    match origin:
        case WindowInto():
            return origin.python
        case Group(aggregates=aggregates):
            return any(isinstance(aggregate, Combine) for aggregate in aggregates.values())
    return isinstance(origin, Read | Step)


def require_choice(name: str, given: object, choices: Sequence[str], what: str) -> None:
    """One of a few words."""
    if given not in choices:
        known = " or ".join(map(repr, choices))
        raise UnknownName(f"{what}: {name} must be {known}, not {given!r}{nearest(given, choices)}")


def require_limit(given: object, on_error: str, what: str) -> None:
    """How many dead letters are too many: a count, or a share of the rows below 1; None for no limit."""
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise WrongType(
            f"{what}: max_dead_letters must be a count such as 1000, or a share of the rows such as 0.01, not {given!r}"
        )
    if not (given >= 0 and (isinstance(given, int) or given < 1)):
        hint = f"; did you mean {int(given)}?" if given >= 1 and given == int(min(given, 2**63)) else ""
        raise PlanError(
            f"{what}: max_dead_letters={given!r} is neither a count of at least 0 nor a share from 0 to below 1{hint}"
        )
    if on_error == "fail":
        raise PlanError(
            f"{what}: with on_error='fail' the first dead letter fails the run; leave out max_dead_letters={given!r}, "
            "or on_error"
        )


def has_dead_letters(collection: Collection) -> bool:
    """Whether its rows are dead letters, or some of them."""
    return isinstance(collection.origin, DeadLetters) or any(map(has_dead_letters, collection.inputs))


def require_no_windows(shape: Shape, step: str) -> None:
    """Windows follow from event times, so the times come first."""
    if WINDOW_START in shape.system:
        raise PlanError(
            "its rows are in windows already, by the event time that they have; set the time before window_into(...) "
            "and before any grouping",
            step=step,
        )


def require_arrow(schema: pl.Schema, step: str) -> None:
    """A function of Arrow tables gets columns that pyarrow knows."""
    for name, dtype in schema.items():
        if _is_long(dtype):
            raise WrongType(
                f"column {name!r} is {type_name(dtype)}, which a pyarrow Table cannot have; cast it with "
                "with_columns(...) or leave it out with select(...) before, or use map",
                step=step,
            )


def _is_long(dtype: Any) -> bool:
    """Whether there is a whole number of 128 bits in it."""
    if isinstance(dtype, pl.Struct):
        return any(_is_long(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return _is_long(dtype.inner)
    return dtype in (pl.Int128, pl.UInt128)


def require_keys(schema: pl.Schema, keys: Sequence[Any], step: str) -> None:
    """Keys are columns whose values are equal exactly when their text, or number, is: shards are chosen by it."""
    if not keys:
        raise PlanError(
            "group_by needs a key; to aggregate all rows of a window call .aggregate(...)", step=step
        )
    for index, key in enumerate(keys):
        if isinstance(key, nw.Expr | pl.Expr):
            raise WrongType(
                "a key is the name of a column; compute it with with_columns(...) before", step=step
            )
        require_column_name(key, step)
        if key not in schema:
            raise unknown_column(key, schema, step)
        if key in keys[:index]:
            raise DuplicateName(f"the key {key!r} is given twice", step=step)
        _require_key_type(key, schema[key], step)


def _require_key_type(key: str, dtype: pl.DataType, step: str) -> None:
    if dtype.is_nested() or dtype.is_float() or dtype in (pl.Duration, pl.Object, pl.Null):
        raise WrongType(
            f"the key {key!r} is {type_name(dtype)}; a key may be text, bytes, a whole number, Decimal, Boolean "
            "or a time: cast it with with_columns(...) before",
            step=step,
        )


def dropped(before: Shape, step: str) -> Shape:
    """The columns of what a grouping of such rows drops: theirs and the reason, with event time and window."""
    if "reason" in before.user:
        raise DuplicateName(
            "late() gives a column 'reason', and the input of the grouping has one; rename that before the grouping",
            step=step,
        )
    carried = tuple(
        name for name in before.with_windows() if name not in PANE_COLUMNS or name == PANE_RETRACTED
    )
    return Shape(pl.Schema({**before.user, "reason": pl.String()}), carried)


def aggregated(
    schema: pl.Schema, keys: Sequence[str], unnamed: Sequence[Any], aggregates: Mapping[str, Any], step: str
) -> pl.Schema:
    """The columns of a grouping: keys, then aggregates, whose columns and types are checked."""
    if unnamed:
        raise PlanError("give every aggregate a name: aggregate(plays=bl.count())", step=step)
    if not aggregates:
        raise PlanError("give at least one aggregate: aggregate(plays=bl.count())", step=step)
    result = {key: schema[key] for key in keys}
    for name, aggregate in aggregates.items():
        require_column_name(name, step)
        if name in result:
            raise DuplicateName(f"the aggregate {name!r} has the name of a key", step=step)
        result[name] = _aggregate_type(schema, name, aggregate, step)
        if name in SHOWN:
            # A sink would get it in place of the engine's column, which readers of the sink know by that name.
            raise ReservedName(
                f"an aggregate must not be named {name!r}, as sinks get a column of that name with every pane; "
                f"choose another, such as {f'{type(aggregate).__name__.lower()}_{name}'!r}",
                step=step,
            )
    return pl.Schema(result)


def _aggregate_type(schema: pl.Schema, name: str, aggregate: Any, step: str) -> pl.DataType:
    if not isinstance(aggregate, Aggregate):
        raise WrongType(f"{name} must be an aggregate such as bl.count(), not {_shown(aggregate)}", step=step)
    for column in aggregate.columns:
        if not isinstance(column, str):
            raise WrongType(f"{name} must aggregate a column by its name, not {_shown(column)}", step=step)
        if column not in schema:
            raise unknown_column(column, schema, step)
    try:
        return aggregate.dtype(schema)
    except TypeError as error:
        raise WrongType(f"{name}: {error}", step=step) from error


def _shown(given: Any) -> str:
    """What was given in place of an aggregate, with what was perhaps meant."""
    if isinstance(given, str):
        hint = nearest(given, AGGREGATES).replace("'", "")
        return f"{given!r}{hint}; a step is named with .named({given!r})"
    if isinstance(given, nw.Expr):
        return "an expression: compute columns with with_columns(...) before, and aggregate columns by name"
    function = function_name(given) if callable(given) else ""
    if function and getattr(expressions, function, None) is given:
        return f"the function itself; call it: bl.{function}(...)"
    return repr(given)


def require_collections(given: Sequence[Any], step: str) -> None:
    """At least two collections of one pipeline."""
    for item in given:
        if not hasattr(item, "shape"):
            raise WrongType(f"expected collections, got {item!r}", step=step)
    if len(given) < 2:
        raise PlanError(f"flatten needs at least two collections, got {len(given)}", step=step)
    pipelines = list(dict.fromkeys(item.pipeline.name for item in given))
    if any(item.pipeline is not given[0].pipeline for item in given):
        raise PlanError(f"these collections are of different pipelines: {', '.join(pipelines)}", step=step)


def require_alike(collections: Sequence[Collection], step: str) -> None:
    """The same windowing and the same columns, in any order."""
    first, *others = collections
    for other in others:
        _require_same_columns(first, other, step)
        _require_same_windowing(first, other, step)


def _require_same_columns(first: Collection, other: Collection, step: str) -> None:
    if dict(first.schema) != dict(other.schema):
        ours, theirs = dict(first.schema.items()), dict(other.schema.items())
        here = {name: dtype for name, dtype in ours.items() if theirs.get(name) != dtype}
        there = {name: dtype for name, dtype in theirs.items() if ours.get(name) != dtype}
        raise UnlikeCollections(
            f"unlike columns: {first.name!r} has {schema_text(here)}, "
            f"{other.name!r} has {schema_text(there)}; make them alike with select(...)",
            step=step,
        )
    if (EVENT_TIME in first.shape.system) != (EVENT_TIME in other.shape.system):
        raise UnlikeCollections(
            "rows with and without an event time cannot be one collection; dead letters have none", step=step
        )


def _require_same_windowing(first: Collection, other: Collection, step: str) -> None:
    ours, theirs = windowing_choices(first.windowing), windowing_choices(other.windowing)
    differences = [
        f"{choice} {ours[choice]} in {first.name!r} but {theirs[choice]} in {other.name!r}"
        for choice in ours
        if ours[choice] != theirs[choice]
    ]
    if first.merged != other.merged:
        merged, fresh = (first, other) if first.merged else (other, first)
        differences.append(
            f"{merged.name!r} was grouped, so its windows are merged, and {fresh.name!r} was not"
        )
    if differences:
        remedy = "call window_into(...) with the same choices on each before"
        raise UnlikeCollections(f"unlike windowings: {'; '.join(differences)}; {remedy}", step=step)
