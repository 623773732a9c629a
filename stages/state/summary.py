"""The summary of rows of a table: a row of the index for each bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
import numpy as np
import polars as pl

from stages.frames import repeated
from stages.keys import key_shown, shown_one
from stages.operator import HOLD, OUTSTANDING_HOLD, PENDING
from stages.packed import packed
from stages.state.buckets import BUCKET, single_bucket
from stages.state.index import DEADLINE, SIZES, Size, no_buckets, schema_of
from stages.state_tables import Table
from windowing.clocks import PROCESSING_TIME

_ID: Final = "__id"
_SAME: Final = pl.Series(_ID, [0])
_NEVER: Final = pl.lit(None, pl.Int64)


@attrs.frozen
class _Summary:
    """The expressions that summarize the rows of a table to index rows.

    Attributes:
        columns: The columns to compute for each row of the table.
        computed: Those of them that are no column of the table, or a constant.
        aggregations: The aggregations of these columns for each bucket.
        holder_key: The key of the row with the least hold, as text.
    """

    columns: tuple[pl.Expr, ...]
    computed: tuple[pl.Expr, ...]
    aggregations: tuple[pl.Expr, ...]
    holder_key: pl.Expr


# Cached, since creating the expressions takes as long as evaluating them for a small bucket.
@lru_cache(maxsize=256)
def _summary(table: Table, clocks: tuple[str, ...], *, panes: bool) -> _Summary:
    """Creates the expressions that summarize a table. `panes` is true if rows may have panes that can be retracted."""
    named = dict(zip(_named(table), map(pl.col, table.keys), strict=True))
    start, end = table.bounds
    pane = pl.col(OUTSTANDING_HOLD) if panes else pl.lit(None, pl.Int64)
    columns = {
        BUCKET: pl.col(BUCKET),
        "start": pl.col(start),
        "end": pl.col(end),
        "pending": pl.col(PENDING),
        "timers": table.pending_timers.cast(pl.Int64),
        # A row holds the watermark at the least hold of its pending elements and of its panes that may be retracted.
        "hold": pl.min_horizontal(HOLD, pane),
        "pane": pane.is_not_null() & (pane < pl.col(HOLD)).fill_null(True),
        "timer": table.holding_timer,
        **named,
    }
    least = pl.col("hold").arg_min()
    aggregations = (
        pl.len().cast(pl.Int64).alias("rows"),
        pl.col("pending", "timers").sum(),
        pl.col(_ID).n_unique().cast(pl.Int64).alias("keys"),
        pl.col("hold", *(DEADLINE + clock for clock in clocks)).min(),
        *(pl.col(key).get(least) for key in named),
        pl.col("start", "end", "pane", "timer", "due").get(least).name.prefix("holder_"),
    )
    name = pl.concat_str([key_shown(key) for key in named], separator=", ") if named else pl.lit("")
    computed = (*(("hold", "pane") if panes else ()), *(("timers", "timer") if table.has_timers else ()))
    return _Summary(
        tuple(column.alias(name) for name, column in columns.items()),
        tuple(columns[name].alias(name) for name in computed),
        aggregations,
        pl.when(pl.col("hold").is_not_null()).then(name).alias("holder_key"),
    )


def summarize(
    rows: pl.DataFrame,
    table: Table,
    deadlines: Mapping[str, pl.Expr],
    sizes: Mapping[int, Size],
) -> pl.DataFrame:
    """Computes the index row of each bucket from all of its rows, which have the column BUCKET.

    `deadlines` are expressions by the name of the clock, `sizes` are keyed by bucket number.
    """
    clocks = tuple(deadlines)
    if rows.is_empty():
        return no_buckets(clocks)
    if (only := single_bucket(rows)) is not None:
        return _of_one(rows, table, deadlines, only, sizes[only])
    summary = _summary(table, clocks, panes=OUTSTANDING_HOLD in rows.columns)
    due = {DEADLINE + clock: deadline for clock, deadline in deadlines.items()}
    due["due"] = deadlines.get(PROCESSING_TIME, _NEVER)
    columns = _with_id(rows.select(*summary.columns, **due), _named(table))
    found = columns.group_by(BUCKET).agg(summary.aggregations)
    stored = np.array(
        [[getattr(sizes[bucket], size) for size in SIZES] for bucket in found[BUCKET]], np.int64
    )
    sizes_of = pl.DataFrame(stored, schema=list(SIZES), orient="row")
    return found.with_columns(summary.holder_key).hstack(sizes_of)[:, list(schema_of(clocks))]


def _of_one(
    rows: pl.DataFrame, table: Table, deadlines: Mapping[str, pl.Expr], bucket: int, size: Size
) -> pl.DataFrame:
    """Summarizes the rows of a single bucket. Only deadlines take a query, and columns of some tables."""
    clocks, panes = tuple(deadlines), OUTSTANDING_HOLD in rows.columns
    columns = _columns(rows, _summary(table, clocks, panes=panes).computed, deadlines)
    hold = columns["hold"] if panes else rows[HOLD]
    values: dict[str, Any] = {BUCKET: bucket, "base": size.base, "chunks": size.chunks}
    values |= {"bytes": size.bytes, "log": size.log, "rows": len(rows), "keys": _count_keys(rows, table.keys)}
    values |= {"pending": rows[PENDING].sum(), "timers": columns["timers"].sum() if table.has_timers else 0}
    values |= {"hold": hold.min(), **{name: columns[name].min() for name in map(DEADLINE.__add__, clocks)}}
    if (least := hold.arg_min()) is not None:
        values |= _holder(rows, columns, table, least)
    return pl.from_dicts([values], schema_of(clocks))


def _columns(
    rows: pl.DataFrame, computed: Sequence[pl.Expr], deadlines: Mapping[str, pl.Expr]
) -> dict[str, pl.Series]:
    """Returns the columns `computed` and those of the deadlines, with a query only if one is no column of `rows`."""
    named = {DEADLINE + clock: deadline for clock, deadline in deadlines.items()}
    plain = {
        name: rows[deadline.meta.output_name()]
        for name, deadline in named.items()
        if deadline.meta.is_column()
    }
    wanted = [*computed, *(deadline.alias(name) for name, deadline in named.items() if name not in plain)]
    if not wanted:
        return plain
    # Among other columns, a deadline that is a constant has as many values as there are rows.
    found = rows.select(pl.col(HOLD).alias(_ID), *wanted)
    return plain | {column.name: column for column in found.iter_columns()}


def _holder(rows: pl.DataFrame, columns: Mapping[str, pl.Series], table: Table, place: int) -> dict[str, Any]:
    """Returns the columns of the index that describe the row with the least hold, which is at this place."""
    start, end = table.bounds
    waits = columns.get(DEADLINE + PROCESSING_TIME)
    return {
        "holder_key": ", ".join(shown_one(rows[key][place : place + 1]) for key in table.keys),
        "holder_start": rows[start][place],
        "holder_end": rows[end][place],
        "holder_pane": columns["pane"][place] if "pane" in columns else False,
        "holder_timer": columns["timer"][place] if table.has_timers else None,
        "holder_due": None if waits is None else waits[place],
    }


def _count_keys(rows: pl.DataFrame, keys: Sequence[str]) -> int:
    if len(keys) < 2:
        return rows[keys[0]].n_unique() if keys else 1
    return _with_id(rows[:, list(keys)], keys)[_ID].n_unique()


def _named(table: Table) -> list[str]:
    """Returns the names of the key columns in a summary, since a user's column may have the name of an index column."""
    return [f"__key.{number}" for number in range(len(table.keys))]


def _with_id(columns: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Adds a column that is equal in rows of the same key."""
    if len(keys) < 2:
        # A query would take longer: this is done for each batch.
        return columns.hstack([(columns[keys[0]] if keys else repeated(_SAME, len(columns))).alias(_ID)])
    # Counting distinct integers takes a fifth of the time of counting distinct structs.
    key = packed(columns.select(keys))
    return columns.with_columns((pl.struct(keys) if key is None else pl.Series(key)).alias(_ID))
