"""Small pipelines for tests of the plan, over sources that are never read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import attrs
import polars as pl

import beamlike as bl
from windowing.columns import EVENT_TIME

SCHEMA = pl.Schema(
    {
        "user": pl.String(),
        "score": pl.Int64(),
        "rate": pl.Float64(),
        "at": pl.Datetime("us", "UTC"),
        "tick": pl.Int64(),
        "won": pl.Boolean(),
    }
)


@attrs.frozen
class Declared:
    """A source with columns and no data."""

    columns: pl.Schema = attrs.field(default=SCHEMA, repr=False)
    bounded: bool = True

    def schema(self) -> pl.Schema:
        return self.columns

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        return iter(())


def plays(pipeline: bl.Pipeline | None = None, name: str = "plays", *, bounded: bool = True) -> bl.Collection:
    """Returns a collection with the columns of SCHEMA, in a new pipeline by default."""
    return (pipeline or bl.Pipeline("test")).read(
        name, Declared(bounded=bounded), timestamp="at", watermark=bl.BoundedOutOfOrderness("5s")
    )


def frame(*scores: int, **columns: pl.Series) -> pl.DataFrame:
    """Returns rows of SCHEMA and the event time: for each score a row, a second apart, from time 0."""
    count = len(scores)
    ticks = pl.Series("tick", range(count), dtype=pl.Int64)
    values = {
        "user": pl.Series([f"user {score % 3}" for score in scores], dtype=pl.String),
        "score": pl.Series(scores, dtype=pl.Int64),
        "rate": pl.Series(scores, dtype=pl.Int64).cast(pl.Float64) / 2,
        "at": (ticks * 1_000_000).cast(pl.Datetime("us", "UTC")),
        "tick": ticks,
        "won": pl.Series([score > 0 for score in scores], dtype=pl.Boolean),
        EVENT_TIME: ticks * 1_000_000,
    }
    return pl.DataFrame(values | columns)
