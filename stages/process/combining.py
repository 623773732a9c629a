"""The value of a `Combining` field: an aggregate of added rows, with the same accumulators as in a grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stages.aggregates.base import Aggregate

Accumulators = dict[str, Any]
"""The value of each accumulator column."""


class CombinedRows:
    """The accumulators of a key, and rows that were added since. They are merged at a read and at the step's end."""

    __slots__ = ("accumulators", "added", "aggregate", "schema")

    def __init__(self, aggregate: Aggregate, schema: pl.Schema, accumulators: Accumulators | None) -> None:
        self.aggregate, self.schema = aggregate, schema
        self.accumulators, self.added = accumulators, list[Mapping[str, Any]]()

    def add(self, row: Mapping[str, Any] | None = None) -> None:
        """Adds a row. It must have the columns that the aggregate reads; further ones are ignored."""
        given = row or {}
        missing = [column for column in self.aggregate.columns if column not in given]
        if missing:
            raise KeyError(f"{missing[0]!r} is missing in what was added: {given!r}")
        self.added.append({column: given[column] for column in self.aggregate.columns})

    def read(self) -> Any:
        """Returns the aggregate of all added rows."""
        return self.merged().select(self._extract()).to_series().to_list()[0]

    def clear(self) -> None:
        """Removes all added rows, so that the aggregate is that of no rows."""
        self.accumulators = None
        self.added.clear()

    def merged(self) -> pl.DataFrame:
        """Merges the added rows into the accumulators, and returns these as a frame of one row."""
        parts = self.aggregate.parts(self.schema)
        dtypes = {name: part.dtype for name, part in parts.items()}
        before = self.accumulators or {name: part.empty for name, part in parts.items()}
        rows = pl.DataFrame([before], dtypes, orient="row")
        if not self.added:
            return rows
        columns = {name: self.schema[name] for name in self.aggregate.columns}
        added = pl.DataFrame(self.added, columns, orient="row") if columns else _nothing(len(self.added))
        added = added.filter(self.aggregate.accepted(added))
        # By `with_columns`, since an aggregate may consist of literals only, as a count does.
        lifted = added.with_columns(
            **{name: part.cast(dtypes[name]) for name, part in self.aggregate.lift(self.schema).items()}
        )
        both = pl.concat([rows, lifted.select(list(dtypes))])
        merged = self.aggregate.merge({name: pl.col(name) for name in parts})
        # In a group, since some merges return several values, which only a group collects in a list.
        return both.group_by(pl.lit(0).alias("")).agg(**merged).select(list(parts))

    def stored(self) -> Accumulators | None:
        """Returns the accumulators as the state column stores them; None if no row was ever added."""
        if not self.added:
            return self.accumulators
        return self.merged().row(0, named=True)

    def _extract(self) -> pl.Expr:
        acc = {name: pl.col(name) for name in self.aggregate.parts(self.schema)}
        return self.aggregate.extract(acc, self.schema)


def _nothing(rows: int) -> pl.DataFrame:
    return pl.DataFrame({"": pl.repeat(0, rows, eager=True)})
