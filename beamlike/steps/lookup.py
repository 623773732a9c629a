"""Lookups in tables that are constant during a run, so that a lookup needs no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs
import polars as pl

from beamlike.rows.dead_letters import Attempt, dead_letters, error_text
from beamlike.steps.base import Step
from stages.operator import Refused
from stages.sides.contents import SideContent
from stages.sides.lookup import LookedUp, Lookup
from windowing.identity import fields_of

TABLE: Final = "@table"
"""The key, in the identity of a lookup, for the name of its lookup table."""


@attrs.frozen(eq=False)
class LookUp(Step):
    """A step that adds columns of lookup tables to rows, found by key.

    Attributes:
        use: The lookups, with the types of the columns that they add.
        tables: The name of the lookup table of each side.
        seen: The content of the lookup table of each side. It is empty until a run has read the tables.
    """

    kind: ClassVar[str] = "lookup"
    use: LookedUp
    tables: Mapping[str, str]
    seen: Mapping[str, SideContent] = attrs.field(factory=dict)

    def identity(self) -> Any:
        found = [
            {**fields_of(lookup, without=("side",)), TABLE: self.tables[lookup.side]}
            for lookup in self.use.lookups
        ]
        return {"kind": self.kind, "lookups": found} if found else None

    @property
    def everything(self) -> frozenset[str]:
        return frozenset(self.use.types)

    def apply(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        if not self.use.lookups:
            return frame
        schema = pl.Schema({**frame.collect_schema(), **self.use.types})
        return frame.map_batches(self._all, schema=schema)

    def attempt(self, frame: pl.LazyFrame) -> Attempt:
        rows = frame.collect()
        made, refused = self._give(rows)
        letters = None
        if refused is not None:
            letters = dead_letters(self.name, refused.rows, [error_text(error) for error in refused.errors])
        return Attempt(made.lazy(), letters, len(rows))

    def needs(self, wanted: frozenset[str]) -> frozenset[str]:
        keys = (lookup.on for lookup in self.use.narrowed(wanted).lookups)
        return wanted.difference(self.use.types).union(*keys)

    def narrowed(self, wanted: frozenset[str]) -> LookUp:
        return attrs.evolve(self, use=self.use.narrowed(wanted))

    def with_tables(self, tables: Mapping[str, SideContent]) -> LookUp:
        """Returns the step with the contents `tables` of its lookup tables, by table name."""
        return attrs.evolve(self, seen={side: tables[table] for side, table in self.tables.items()})

    def detail(self) -> str:
        return "; ".join(map(_in_words, self.use.lookups))

    def _all(self, rows: pl.DataFrame) -> pl.DataFrame:
        made, refused = self._give(rows)
        if refused is not None and len(refused.rows):
            raise pl.exceptions.ComputeError(error_text(refused.errors[0]))
        return made

    def _give(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, Refused | None]:
        made, refused = self.use.compute(rows, self.seen)
        return made.select(*rows.columns, *(name for name in self.use.types if name not in rows)), refused


def _in_words(lookup: Lookup) -> str:
    sought = [*lookup.columns.values(), *(["whether it is there"] if lookup.found else [])]
    by = f" by {', '.join(lookup.on)}" if lookup.on else ""
    return f"{', '.join(sought)} in {lookup.side!r}{by}"
