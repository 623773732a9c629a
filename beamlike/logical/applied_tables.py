"""Checks of the state tables of a user's own operator, at `apply`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from beamlike.errors import PlanError, WrongType, listed, unknown_column
from beamlike.rows.dtypes import type_name
from stages.operator import HOLD, PENDING
from stages.state_tables import KINDS, BucketTable, StateTable, Table


def require_tables(operator: str, tables: Sequence[StateTable[Table]], step: str) -> None:
    """Raises `PlanError` or `WrongType` unless an operator of this name can keep its state in these tables."""
    if not tables:
        raise PlanError(
            f"{operator}.tables is empty; without state, map_batches(...) does the same and needs no stage",
            step=step,
        )
    described = [_described(operator, kept, step) for kept in tables]
    for table in described:
        _require_columns(operator, table, step)
    if len({table.name for table in described}) < len(described):
        raise PlanError(f"two tables of {operator} have the same name; give each another one", step=step)


def _described(operator: str, kept: StateTable[Table], step: str) -> Table:
    """Returns the description of a table. It is code of the user's, which may raise anything or return anything."""
    if StateTable not in type(kept).__mro__:
        raise WrongType(
            f"{operator}.tables must have objects of classes that extend StateTable, not {kept!r}", step=step
        )
    name = type(kept).__name__
    try:
        table: object = kept.table
    except PlanError:
        raise
    except Exception as error:
        raise PlanError(f"{name}.table fails with {type(error).__name__}: {error}", step=step) from error
    if not isinstance(table, KINDS):
        kinds = ", ".join(kind.__name__ for kind in KINDS)
        raise WrongType(f"{name}.table must be one of {kinds}, not {table!r}", step=step)
    return table


def _require_columns(operator: str, table: Table, step: str) -> None:
    """Raises `PlanError` unless rows and arrivals of a state table have the columns that its description names, with
    fitting types.
    """
    rows = f"the rows of {operator}'s table {table.name or table.row!r}"
    lacking = [column for column in (PENDING, HOLD) if column not in table.schema]
    if lacking:
        raise PlanError(
            f"{rows} have no column {listed(map(repr, lacking))}, from which the output watermark is computed",
            step=step,
        )
    for column in (PENDING, HOLD):
        if table.schema[column] != pl.Int64():
            found = type_name(table.schema[column])
            raise WrongType(f"the column {column!r} of {rows} must be Int64, not {found}", step=step)
    _require(table.keys, table.schema, f"{rows} (keys=)", step)
    _require(table.bounds, table.schema, f"{rows} (bounds=)", step)
    if isinstance(table, BucketTable):
        _require_arrivals(table, rows, step)


def _require_arrivals(table: BucketTable, rows: str, step: str) -> None:
    # Rows and arrivals of a key must be on one shard, so the key columns of both are hashed alike.
    arrivals = rows.replace("the rows of", "the arrivals of", 1)
    _require(table.keys, table.incoming, f"{arrivals} (incoming=)", step)
    for key in table.keys:
        if table.incoming[key] != table.schema[key]:
            raise WrongType(
                f"the key {key!r} is {type_name(table.incoming[key])} in {arrivals} and "
                f"{type_name(table.schema[key])} in its rows; it must have one type",
                step=step,
            )
    if table.spread is not None:
        _require([table.spread.column], table.schema, f"{rows} (spread=)", step)


def _require(columns: Iterable[str], schema: pl.Schema, where: str, step: str) -> None:
    for column in columns:
        if column not in schema:
            raise unknown_column(column, schema, step, where)
