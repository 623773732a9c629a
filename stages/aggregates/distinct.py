"""The estimate of the number of distinct values of a column, in bounded space."""

from __future__ import annotations

from typing import Final

import attrs
import polars as pl

from stages.aggregates.base import OfComparable, Part, Schema
from stages.aggregates.lists import GROUP, ITEM, merged, only
from stages.keys import key_hash

KEPT: Final = 4096
"""The number of least hashes that are stored. The standard error is 1 / sqrt(KEPT), 1.6%; fewer values are exact."""

_HASHES: Final = "hashes"
_LIST: Final = pl.List(pl.UInt64())


@attrs.frozen
class ApproxCountDistinct(OfComparable):
    """An estimate of the number of distinct values of a column, without nulls, from the k least of their hashes.

    Hashes are spread evenly, so the k-th least of n hashes is at about k / n of their range. Bar-Yossef, Jayram, Kumar,
    Sivakumar, Trevisan: Counting distinct elements in a data stream, RANDOM 2002.
    """

    def result(self, dtype: pl.DataType) -> pl.DataType:
        return pl.Int64()

    def parts(self, schema: Schema) -> dict[str, Part]:
        return {_HASHES: Part(_LIST, ())}

    def lift(self, schema: Schema) -> dict[str, pl.Expr]:
        return {_HASHES: only(key_hash([self.column]), pl.col(self.column).is_not_null(), _LIST)}

    def merge(self, acc: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {_HASHES: merged(acc[_HASHES], _least)}

    def extract(self, acc: dict[str, pl.Expr], schema: Schema) -> pl.Expr:
        count = acc[_HASHES].list.len().cast(pl.Int64)
        share = acc[_HASHES].list.last().cast(pl.Float64) / 2.0**64
        return pl.when(count < KEPT).then(count).otherwise(((KEPT - 1) / share).round().cast(pl.Int64))


def _least(items: pl.DataFrame) -> pl.DataFrame:
    return items.unique().sort(GROUP, ITEM).group_by(GROUP, maintain_order=True).head(KEPT)
