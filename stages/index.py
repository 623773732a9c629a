"""The index of a stage's state: for each bucket of rows when it is next due and where it holds the watermark."""

from __future__ import annotations

from typing import Final

import attrs
import polars as pl
from windowing.columns import WINDOW_END, WINDOW_START
from windowing.time import format_time

from stages.state import StateStore, decode, encode
from stages.watermarks import Watermarks

KEY: Final = "index"
BUCKET: Final = "__bucket"
SCHEMA: Final = pl.Schema(
    {
        BUCKET: pl.Int64(),
        "rows": pl.Int64(),
        "deadline": pl.Int64(),
        "hold": pl.Int64(),
        "holder_key": pl.String(),
        "holder_start": pl.Int64(),
        "holder_end": pl.Int64(),
    }
)


@attrs.frozen
class Holder:
    """The key and window whose pending elements hold a stage's output watermark, at `hold` microseconds."""

    hold: int
    key: str
    start: int
    end: int

    def __str__(self) -> str:
        who = f"key {self.key} in" if self.key else "window"
        return f"{who} [{format_time(self.start)}, {format_time(self.end)})"


@attrs.frozen
class Index:
    """What a stage knows of its state without reading it; the minimum of its holds is the stage's hold."""

    buckets: pl.DataFrame = attrs.field(factory=lambda: pl.DataFrame(schema=SCHEMA))
    watermarks: Watermarks = attrs.field(factory=Watermarks)

    @classmethod
    def load(cls, store: StateStore, stage: str) -> Index:
        """The index as it was saved last; empty in the beginning."""
        value = store.get(stage, KEY)
        if value is None:
            return cls()
        frame, facts = decode(value)
        return cls(frame, Watermarks(facts["input"], facts["output"]))

    def save(self, store: StateStore, stage: str) -> None:
        facts = {"input": self.watermarks.input, "output": self.watermarks.output}
        store.put(stage, KEY, encode(self.buckets, facts))

    def due(self, watermark: int) -> list[int]:
        """The buckets in which a window is due at this watermark."""
        return self.buckets.filter(pl.col("deadline") <= watermark)[BUCKET].to_list()

    def existing(self) -> list[int]:
        """The buckets that hold rows."""
        return self.buckets[BUCKET].to_list()

    def replace(self, touched: list[int], summary: pl.DataFrame) -> Index:
        """With these buckets described anew; one that the summary lacks is empty."""
        others = self.buckets.filter(~pl.col(BUCKET).is_in(touched))
        return attrs.evolve(self, buckets=pl.concat([others, summary]).sort(BUCKET))

    @property
    def rows(self) -> int:
        """Live (key, window) rows."""
        return int(self.buckets["rows"].sum())

    @property
    def holder(self) -> Holder | None:
        """Who has the least hold; None where nothing holds."""
        held = self.buckets.filter(pl.col("hold").is_not_null())
        if held.is_empty():
            return None
        least = held.row(held["hold"].arg_min(), named=True)
        return Holder(least["hold"], least["holder_key"], least["holder_start"], least["holder_end"])


def summarize(rows: pl.DataFrame, keys: tuple[str, ...], deadline: pl.Expr, hold: str) -> pl.DataFrame:
    """State rows with their bucket -> a row of the index per bucket."""
    if rows.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    # Keys get names of ours: a user's may be those of the index's own columns.
    named = {f"__key.{number}": pl.col(key) for number, key in enumerate(keys)}
    least = pl.col("hold").arg_min()
    name = pl.concat_str([pl.col(key).cast(pl.String).fill_null("null") for key in named], separator=", ")
    bounds = (WINDOW_START, WINDOW_END)
    return (
        rows.select(BUCKET, *bounds, deadline.alias("deadline"), pl.col(hold).alias("hold"), **named)
        .group_by(BUCKET)
        .agg(
            pl.len().cast(pl.Int64).alias("rows"),
            pl.col("deadline", "hold").min(),
            *(pl.col(key).get(least) for key in named),
            pl.col(WINDOW_START).get(least).alias("holder_start"),
            pl.col(WINDOW_END).get(least).alias("holder_end"),
        )
        .with_columns((name if keys else pl.lit("")).alias("holder_key"))
        .select(list(SCHEMA))
    )
