"""The state of a stage as a frame, for one key or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from beamlike.errors import UnknownKey, UnknownName, listed, nearest
from beamlike.plan.model import StagePlan
from beamlike.replaying.chunks import rows_of_key
from stages.snapshot import save
from stages.state.store import StateStore
from windowing.columns import RESERVED_PREFIX
from windowing.time import GLOBAL_WINDOW_END, MIN_TIME


def state_rows(
    plan: StagePlan, store: StateStore, key: Mapping[str, Any] | None = None, table: str | None = None
) -> pl.DataFrame:
    """Returns the rows of a state table of a stage, by default of its first one.

    Internal columns have a leading underscore, and window bounds are times. Raises `UnknownKey` if the stage has no
    such key column, and `UnknownName` if it has no such table.
    """
    tables = {kept.table.name: kept.table for kept in plan.stage.operator.tables}
    name = next(iter(tables)) if table is None else table
    if name not in tables:
        raise UnknownName(
            f"stage {plan.name!r} has no state table {name!r}; it has {listed(map(repr, tables))}"
        )
    rows = save(plan.stage, store).rows[name]
    for column in key or {}:
        if column not in tables[name].keys:
            known = tables[name].keys
            raise UnknownKey(
                f"stage {plan.name!r} has no key column {column!r}; it has {listed(known)}{nearest(column, known)}"
            )
    return _readable(rows_of_key(rows, key or {}), tables[name].bounds)


def _readable(rows: pl.DataFrame, bounds: tuple[str, str]) -> pl.DataFrame:
    # Both bounds of a row that is no interval are one column.
    times = [name for name in dict.fromkeys(bounds) if rows.schema.get(name) == pl.Int64]
    shown = rows.with_columns(_moment(name) for name in times)
    return shown.rename({name: _plain(name, shown.columns) for name in shown.columns})


def _moment(name: str) -> pl.Expr:
    time = pl.col(name)
    return (
        pl.when(time.is_between(MIN_TIME + 1, GLOBAL_WINDOW_END - 1))
        .then(time)
        .cast(pl.Datetime("us", "UTC"))
    )


def _plain(name: str, columns: list[str]) -> str:
    plain = name.removeprefix(RESERVED_PREFIX)
    return plain if plain == name or plain not in columns else f"_{plain}"
