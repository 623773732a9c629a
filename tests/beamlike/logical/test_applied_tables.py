"""Invalid state tables of user-defined operators are refused at `apply`."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import polars as pl
import pytest

import beamlike as bl
from beamlike.operators import HOLD, MAIN, PENDING, KeyedTable, StateTable, Table
from stages.state_tables import Spread
from tests.support.pipelines import plays
from tests.support.release import DUE, Held, Release


@attrs.frozen
class Changed(Held):
    """The table of `Release`, with one change of its description."""

    change: Callable[[KeyedTable], KeyedTable]

    @property
    def table(self) -> KeyedTable:
        return self.change(super().table)


@attrs.frozen
class OneChanged(Release):
    """The operator `Release` with a changed table."""

    change: Callable[[KeyedTable], KeyedTable] = attrs.field(kw_only=True)

    @property
    def tables(self) -> tuple[StateTable[Table], ...]:
        return (Changed((self.key,), self.inputs[MAIN].schema, self.change),)


def without(schema: pl.Schema, *columns: str) -> pl.Schema:
    return pl.Schema({name: dtype for name, dtype in schema.items() if name not in columns})


def fails(table: KeyedTable) -> KeyedTable:
    raise KeyError("bounds")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda table: attrs.evolve(table, keys=("usr",)),
            r"no column 'usr' in the rows of OneChanged's table 'row' \(keys=\).*did you mean 'user'",
        ),
        (
            lambda table: attrs.evolve(table, bounds=("__duo", DUE)),
            r"no column '__duo' in .* \(bounds=\).*did you mean '__due'",
        ),
        (
            lambda table: attrs.evolve(table, incoming=without(table.incoming, "user")),
            r"no column 'user' in the arrivals of .* \(incoming=\)",
        ),
        (
            lambda table: attrs.evolve(table, incoming=pl.Schema({**table.incoming, "user": pl.Int64()})),
            "the key 'user' is Int64 in the arrivals of .* and String in its rows; it must have one type",
        ),
        (
            lambda table: attrs.evolve(table, spread=Spread("__duu", 1, 1)),
            r"no column '__duu' in .* \(spread=\)",
        ),
        (
            lambda table: attrs.evolve(table, schema=without(table.schema, HOLD)),
            "have no column '__hold', from which the output watermark is computed",
        ),
        (
            lambda table: attrs.evolve(table, schema=pl.Schema({**table.schema, PENDING: pl.Boolean()})),
            "'__pending' of .* must be Int64, not Boolean",
        ),
        (fails, "Changed.table fails with KeyError: 'bounds'"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    change: Callable[[KeyedTable], KeyedTable], told: str
) -> None:
    with pytest.raises(bl.PlanError, match=told):
        plays(bl.Pipeline("p")).apply(OneChanged("user", "score", change=change), name="released")


def test_a_description_that_fits_is_accepted() -> None:
    plays(bl.Pipeline("p")).apply(OneChanged("user", "score", change=lambda table: table), name="released")
