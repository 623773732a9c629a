"""Lookups of keys in the content of a side, in columns: by a join, or by a search among the hashes of the keys."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final

import attrs
import numpy as np
import numpy.typing as npt
import polars as pl

from stages.keys import key_hash
from stages.operator import Refused
from stages.sides.contents import Seen
from windowing.columns import EVENT_TIME, WINDOW_COLUMNS
from windowing.identity import Declared, identity_of

Places = npt.NDArray[np.int64]

_HASH: Final = "__hash"
_PLACE: Final = "__place"


@attrs.frozen
class KeyIndex:
    """The newest row of each key, of equals the last one, in the order of the hashes of the keys."""

    rows: pl.DataFrame
    keys: tuple[str, ...]
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str]) -> KeyIndex:
        """Builds the index of rows with an event time. A key with a null in it is never found."""
        known = rows.filter(pl.all_horizontal(pl.col(key).is_not_null() for key in keys))
        newest = known.sort(EVENT_TIME, maintain_order=True, nulls_last=False)
        newest = newest.unique(list(keys), keep="last", maintain_order=True)
        ordered = newest.with_columns(key_hash(keys).alias(_HASH)).sort(_HASH)
        return cls(ordered.drop(_HASH), tuple(keys), ordered[_HASH].to_numpy())

    def find(self, asked: pl.DataFrame) -> Places:
        """The row number for each of these keys, in columns of these names; -1 if there is none.

        A join builds a hash table of all rows each time, which pays if as many keys are looked up.
        """
        return self._joined(asked) if len(asked) >= len(self.rows) else self._searched(asked)

    def _joined(self, asked: pl.DataFrame) -> Places:
        places = self.rows.select(self.keys).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE)
        )
        found = asked.join(places, on=self.keys, how="left", maintain_order="left")
        return found[_PLACE].fill_null(-1).to_numpy()

    def _searched(self, asked: pl.DataFrame) -> Places:
        count = len(self.hashes)
        found = np.full(len(asked), -1, np.int64)
        if count == 0 or asked.is_empty():
            return found
        hashes = asked.select(key_hash(self.keys)).to_series().to_numpy()
        # In order, a search finds its way in what the last one has read.
        order = np.argsort(hashes)
        left, at = order, np.searchsorted(self.hashes, hashes[order])
        while len(left):
            there = at < count
            left, at = left[there], at[there]
            same = self.hashes[at] == hashes[left]
            left, at = left[same], at[same]
            equal = self._equal(asked, left, at)
            found[left[equal]] = at[equal]
            # Of another key with the same hash, the next one may be it.
            left, at = left[~equal], at[~equal] + 1
        return found

    def _equal(self, asked: pl.DataFrame, left: Places, at: Places) -> npt.NDArray[np.bool_]:
        equal = np.ones(len(left), np.bool_)
        for key in self.keys:
            ours, theirs = asked[key].gather(left), self.rows[key].gather(at)
            equal &= (ours == theirs).fill_null(False).to_numpy()
        return equal


@attrs.frozen
class Lookup:
    """The lookup of columns of a side, by the names that they get: from the row whose `keys` equal the columns `on`.

    Without keys it reads the side's only row. `found` is the name of a column that is true if there is a row. If there
    is none, a column has its value in `default`, else null.
    """

    side: str
    on: tuple[str, ...]
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    found: str | None = None
    default: Mapping[str, Any] = attrs.field(factory=dict)

    def give(self, rows: pl.DataFrame, seen: Seen, types: pl.Schema) -> list[pl.Series]:
        """Returns the columns for these rows. Raises `ValueError` if a side of one row has several."""
        index = seen.made((*self.keys, "index"), self._index)
        asked = rows.select(pl.col(own).alias(key) for own, key in zip(self.on, self.keys, strict=True))
        only = 0 if len(index.rows) else -1
        places = index.find(asked) if self.keys else np.full(len(rows), only, np.int64)
        found = pl.Series(places >= 0)
        at = (
            pl.Series(places).zip_with(found, pl.Series([None], dtype=pl.Int64))
            if not found.all()
            else pl.Series(places)
        )
        given = []
        for name, column in self.columns.items():
            values = index.rows[column].gather(at)
            if column in self.default:
                values = values.zip_with(found, pl.Series([self.default[column]], dtype=types[name]))
            given.append(values.alias(name))
        return [*given, *([] if self.found is None else [found.alias(self.found)])]

    def narrowed(self, wanted: Container[str]) -> Lookup | None:
        """Restricts the lookup to the wanted columns; None if none is wanted, and no check for a single row is due."""
        columns = {name: column for name, column in self.columns.items() if name in wanted}
        found = self.found if self.found in wanted else None
        return attrs.evolve(self, columns=columns, found=found) if columns or found or not self.keys else None

    def _index(self, rows: pl.DataFrame) -> KeyIndex:
        rows = rows.drop(WINDOW_COLUMNS, strict=False)
        if self.keys:
            return KeyIndex.of(rows, self.keys)
        if len(rows) > 1:
            raise ValueError(f"side {self.side!r} has {len(rows):,} rows where there should be one")
        return KeyIndex(rows, (), np.zeros(len(rows), np.uint64))


@attrs.frozen(slots=False, eq=False)
class LookedUp(Declared):
    """Rows of the columns `own`, with the columns that are looked up for them."""

    own: pl.Schema
    lookups: tuple[Lookup, ...]
    types: pl.Schema
    python: ClassVar[bool] = False

    def identity(self) -> Any:
        return {"kind": "lookup", "lookups": identity_of(self.lookups)}

    @cached_property
    def schema(self) -> pl.Schema:
        """The columns of the rows, then those that are looked up, with their `types`."""
        return pl.Schema({**self.own, **self.types})

    def narrowed(self, wanted: Container[str]) -> LookedUp:
        """Restricts the lookups to the wanted columns."""
        kept = (lookup.narrowed(wanted) for lookup in self.lookups)
        types = pl.Schema({name: dtype for name, dtype in self.types.items() if name in wanted})
        return attrs.evolve(self, lookups=tuple(one for one in kept if one is not None), types=types)

    def give(self, rows: pl.DataFrame, sides: Mapping[str, Seen]) -> tuple[pl.DataFrame, Refused | None]:
        """Returns all rows with their columns; none if a side that should have one row has several."""
        try:
            columns = [
                column
                for lookup in self.lookups
                for column in lookup.give(rows, sides[lookup.side], self.types)
            ]
        except ValueError as error:
            nothing = rows.clear().with_columns(
                pl.lit(None, dtype).alias(name) for name, dtype in self.types.items()
            )
            own = rows.select(name for name in self.own if name in rows.columns)
            return nothing, Refused(own, (error,) * len(rows))
        return rows.with_columns(columns), None
