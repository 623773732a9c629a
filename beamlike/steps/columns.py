"""Builds the expressions of the steps `drop`, `rename`, `cast` and `unnest`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import narwhals as nw
import polars as pl

from beamlike.errors import DuplicateName, PlanError, UnknownColumn, WrongType, unknown_column
from beamlike.rows.dtypes import SchemaLike, as_narwhals, as_schema, is_schema, require_column_name, type_name
from beamlike.steps.infer import flat
from windowing.columns import RESERVED_PREFIX, SYSTEM_COLUMNS


def without(schema: pl.Schema, given: Sequence[str], step: str) -> list[str]:
    """Returns the columns except `given`. Raises `PlanError` if none is left."""
    dropped = flat(given)
    if not dropped:
        raise PlanError("give it the names of the columns to leave out", step=step)
    for name in dropped:
        _require_column(schema, name, step)
    left = [name for name in schema if name not in dropped]
    if not left:
        raise PlanError("no column would be left; keep at least one", step=step)
    return left


def renamed(schema: pl.Schema, names: Mapping[str, str], step: str) -> list[nw.Expr]:
    """Returns all columns in order, renamed by `names`. Raises `DuplicateName` if two columns would have the
    same name.
    """
    if not isinstance(names, Mapping) or not names:
        raise WrongType(
            f'rename takes a dict of old and new names, such as {{"old": "new"}}, not {names!r}', step=step
        )
    for old, new in names.items():
        _require_column(schema, old, step)
        require_column_name(new, step)
    after = Counter(names.get(name, name) for name in schema)
    for old, new in names.items():
        if after[new] > 1:
            raise DuplicateName(
                f"column {old!r} cannot be named {new!r}: another one has that name", step=step
            )
    return [nw.col(name).alias(names[name]) if name in names else nw.col(name) for name in schema]


def casts(schema: pl.Schema, types: SchemaLike, step: str) -> list[nw.Expr]:
    """Returns the columns in `types`, cast to these types. Raises `WrongType` if a column can never be cast."""
    if not types or not is_schema(types):
        raise WrongType(
            f'cast takes a dict of columns and types, such as {{"score": float}}, not {types!r}', step=step
        )
    wanted = as_schema(types, step)
    for name in wanted:
        _require_column(schema, name, step)
    expressions = []
    for name, dtype in wanted.items():
        target = as_narwhals(dtype)
        if target is None:
            raise WrongType(
                f"column {name!r} cannot be cast to {type_name(dtype)}; use map(..., schema=...)", step=step
            )
        expressions.append(nw.col(name).cast(target))
    return expressions


def unnested(schema: pl.Schema, column: str, step: str) -> list[nw.Expr]:
    """Returns all columns in order, with the fields of the structs in `column` at its position."""
    _require_column(schema, column, step)
    dtype = schema[column]
    if not isinstance(dtype, pl.Struct):
        raise WrongType(f"unnest needs a column of structs, but {column!r} is {type_name(dtype)}", step=step)
    fields = [field.name for field in dtype.fields]
    taken = [name for name in fields if name in schema and name != column]
    if taken:
        raise DuplicateName(
            f"the field {taken[0]!r} of {column!r} has the name of a column; rename or drop that before",
            step=step,
        )
    parts = [nw.col(column).struct.field(name).alias(name) for name in fields]
    return [each for name in schema for each in (parts if name == column else [nw.col(name)])]


def require_lists(schema: pl.Schema, column: str, number: str | None, step: str) -> None:
    """Raises `PlanError` unless `column` has lists, and `number` is a free name."""
    _require_column(schema, column, step)
    if not isinstance(schema[column], pl.List):
        raise WrongType(
            f"explode needs a column of lists, but {column!r} is {type_name(schema[column])}", step=step
        )
    if number is not None:
        require_column_name(number, step)
        if number in schema:
            raise DuplicateName(f"number={number!r} is the name of a column; choose another", step=step)


def _require_column(schema: pl.Schema, name: object, step: str) -> None:
    if not isinstance(name, str):
        raise WrongType(f"a column is named by a string, not by {name!r}", step=step)
    if name not in schema:
        raise _missing(schema, name, step)


def _missing(schema: pl.Schema, name: str, step: str) -> UnknownColumn:
    system = f"{RESERVED_PREFIX}{name}" in SYSTEM_COLUMNS
    note = (
        f"; the {name.replace('_', ' ')} of a row is no column of its own, and always stays with it"
        if system
        else ""
    )
    return unknown_column(name, schema, step, note=note)
