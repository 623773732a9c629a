"""Lookups of rows in the content of a side by key, vectorized: by a join, or by binary search among key hashes."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs
import polars as pl

from stages.keys import key_hash
from stages.operator import Refused
from stages.sides.contents import SideContent, newest
from windowing.columns import WINDOW_COLUMNS
from windowing.identity import Declared, identity_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    RowNumbers = npt.NDArray[np.int64]

_HASH: Final = "__hash"
_PLACE: Final = "__place"


@attrs.frozen(eq=False)
class KeyIndex:
    """An index of a side: the newest row of each key, sorted by key hash. Of equal times, the last row counts."""

    rows: pl.DataFrame
    keys: tuple[str, ...]
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str]) -> KeyIndex:
        """Builds the index of rows, which must have an event time. Rows with a null in their key are left out."""
        known = rows.filter(pl.all_horizontal(pl.col(key).is_not_null() for key in keys))
        ordered = newest(known, keys).with_columns(key_hash(keys).alias(_HASH)).sort(_HASH)
        return cls(ordered.drop(_HASH), tuple(keys), ordered[_HASH].to_numpy())

    def find(self, requested: pl.DataFrame) -> RowNumbers:
        """Returns the position in `rows` of each of these keys, a frame with the key columns; -1 if a key is not
        found.
        """
        # A join builds a hash table of all rows, which pays only if about as many keys are looked up.
        return self._joined(requested) if len(requested) >= len(self.rows) else self._searched(requested)

    def _joined(self, requested: pl.DataFrame) -> RowNumbers:
        places = self.rows.select(self.keys).with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE)
        )
        found = requested.join(places, on=self.keys, how="left", maintain_order="left")
        return found[_PLACE].fill_null(-1).to_numpy()

    def _searched(self, requested: pl.DataFrame) -> RowNumbers:
        import numpy as np  # slow to import

        count = len(self.hashes)
        found = np.full(len(requested), -1, np.int64)
        if count == 0 or requested.is_empty():
            return found
        hashes = requested.select(key_hash(self.keys)).to_series().to_numpy()
        # Sorted, so that each search reads cache lines that the previous one has read.
        order = np.argsort(hashes)
        remaining, positions = order, np.searchsorted(self.hashes, hashes[order])
        while len(remaining):
            in_range = positions < count
            remaining, positions = remaining[in_range], positions[in_range]
            same = self.hashes[positions] == hashes[remaining]
            remaining, positions = remaining[same], positions[same]
            equal = self._equal(requested, remaining, positions)
            found[remaining[equal]] = positions[equal]
            # The row has another key with the same hash, so the next row is compared.
            remaining, positions = remaining[~equal], positions[~equal] + 1
        return found

    def _equal(
        self, requested: pl.DataFrame, remaining: RowNumbers, positions: RowNumbers
    ) -> npt.NDArray[np.bool_]:
        import numpy as np

        equal = np.ones(len(remaining), np.bool_)
        for key in self.keys:
            ours, theirs = requested[key].gather(remaining), self.rows[key].gather(positions)
            equal &= (ours == theirs).fill_null(False).to_numpy()
        return equal


@attrs.frozen
class Lookup:
    """The lookup of columns of a side for each row of the main input.

    Attributes:
        side: The name of the side.
        on: The columns of the main input that are compared.
        keys: The columns of the side that are compared. Without keys, the side's only row is read.
        columns: The columns of the side to read, by the names that they get.
        found: The name of a column that is true if there is a matching row; None for no such column.
        default: The values of columns if there is no matching row; null for a column that is missing.
    """

    side: str
    on: tuple[str, ...]
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    found: str | None = None
    default: Mapping[str, Any] = attrs.field(factory=dict)

    def compute(self, rows: pl.DataFrame, seen: SideContent, types: pl.Schema) -> list[pl.Series]:
        """Returns the looked-up columns for these rows. Raises `ValueError` if a side without keys has several rows."""
        index = seen.cached((*self.keys, "index"), self._index)
        requested = rows.select(pl.col(own).alias(key) for own, key in zip(self.on, self.keys, strict=True))
        only = 0 if len(index.rows) else -1
        places = (
            pl.Series(index.find(requested))
            if self.keys
            else pl.repeat(only, len(rows), dtype=pl.Int64, eager=True)
        )
        found = places >= 0
        positions = places if found.all() else places.zip_with(found, pl.Series([None], dtype=pl.Int64))
        given = []
        for name, column in self.columns.items():
            values = index.rows[column].gather(positions)
            if column in self.default:
                values = values.zip_with(found, pl.Series([self.default[column]], dtype=types[name]))
            given.append(values.alias(name))
        return [*given, *([] if self.found is None else [found.alias(self.found)])]

    def narrowed(self, wanted: Container[str]) -> Lookup | None:
        """Restricts the lookup to the `wanted` columns. None if there are none, except for a side without keys.

        Such a side must still be checked to have only one row.
        """
        columns = {name: column for name, column in self.columns.items() if name in wanted}
        found = self.found if self.found in wanted else None
        return attrs.evolve(self, columns=columns, found=found) if columns or found or not self.keys else None

    def _index(self, rows: pl.DataFrame) -> KeyIndex:
        rows = rows.drop(WINDOW_COLUMNS, strict=False)
        if self.keys:
            return KeyIndex.of(rows, self.keys)
        if len(rows) > 1:
            raise ValueError(f"side {self.side!r} has {len(rows):,} rows where there should be one")
        return KeyIndex(rows, (), pl.repeat(0, len(rows), dtype=pl.UInt64, eager=True).to_numpy())


@attrs.frozen(slots=False, eq=False)
class LookedUp(Declared):
    """The computation that adds looked-up columns, with these `types`, to rows with the columns `own`."""

    own: pl.Schema
    lookups: tuple[Lookup, ...]
    types: pl.Schema
    python: ClassVar[bool] = False

    def identity(self) -> Any:
        return {"kind": "lookup", "lookups": identity_of(self.lookups)}

    @cached_property
    def schema(self) -> pl.Schema:
        """The schema of the result: the columns of the rows, then the looked-up columns."""
        return pl.Schema({**self.own, **self.types})

    def narrowed(self, wanted: Container[str]) -> LookedUp:
        """Restricts the lookups to the `wanted` columns."""
        kept = (lookup.narrowed(wanted) for lookup in self.lookups)
        types = pl.Schema({name: dtype for name, dtype in self.types.items() if name in wanted})
        return attrs.evolve(self, lookups=tuple(one for one in kept if one is not None), types=types)

    def compute(
        self, rows: pl.DataFrame, sides: Mapping[str, SideContent]
    ) -> tuple[pl.DataFrame, Refused | None]:
        """Adds the looked-up columns. If a side without keys has several rows, all rows become dead letters."""
        try:
            columns = [
                column
                for lookup in self.lookups
                for column in lookup.compute(rows, sides[lookup.side], self.types)
            ]
        except ValueError as error:
            nothing = rows.clear().with_columns(
                pl.lit(None, dtype).alias(name) for name, dtype in self.types.items()
            )
            own = rows.select(name for name in self.own if name in rows.columns)
            return nothing, Refused(own, (error,) * len(rows))
        return rows.with_columns(columns), None
