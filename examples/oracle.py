"""The answer of the flagship example, computed in plain polars over the whole input, without the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl

_GAP = 60_000_000  # microseconds
_WINDOW = 120_000_000  # microseconds


def read(data: str | os.PathLike[str]) -> dict[str, pl.LazyFrame]:
    """Returns the plays of each source below the folder `data`, as `examples.generate` writes them."""
    return {source: pl.scan_parquet(Path(data) / source / "*.parquet") for source in ("mobile", "console")}


def sessions(plays: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the sessions of one source: user, first and last play (microseconds UTC), length in seconds.

    A session ends if the next play of the user is one gap or more after the last: plays exactly one gap apart belong to
    two sessions. Its length is that of its window: [first, last + gap).
    """
    time = pl.col("event_time").dt.timestamp("us").alias("time")
    starts = (pl.col("user") != pl.col("user").shift(1)) | (pl.col("time").diff() >= _GAP)
    return (
        plays.select("user", time)
        .sort("user", "time")
        .with_columns(session=starts.fill_null(True).cum_sum())
        .group_by("session")
        .agg(pl.col("user").first(), first=pl.col("time").min(), last=pl.col("time").max())
        .select("user", "first", "last", length=(pl.col("last") + _GAP - pl.col("first")) / 1e6)
    )


def averages(plays: Mapping[str, pl.LazyFrame], combiner: str) -> pl.DataFrame:
    """Mean session length (seconds) and number of sessions in each window of two minutes, by window.

    A session counts at the event time of its result: with the combiner "end_of_window" at the last microsecond
    of its window, with "earliest" at its first play. Columns: window_start, window_end (Datetime us UTC), mean,
    sessions. A window without sessions has no row.
    """
    stamps = {"end_of_window": pl.col("last") + _GAP - 1, "earliest": pl.col("first")}
    if combiner not in stamps:
        raise ValueError(f"averages: combiner={combiner!r}, expected one of {', '.join(sorted(stamps))}")
    start = (stamps[combiner] // _WINDOW * _WINDOW).alias("window_start")
    return (
        pl.concat([sessions(frame) for frame in plays.values()])
        .group_by(start)
        .agg(mean=pl.col("length").mean(), sessions=pl.len().cast(pl.Int64))
        .sort("window_start")
        .select(
            pl.col("window_start").cast(pl.Datetime("us", "UTC")),
            (pl.col("window_start") + _WINDOW).cast(pl.Datetime("us", "UTC")).alias("window_end"),
            "mean",
            "sessions",
        )
        .collect()
    )


def written(out: str | os.PathLike[str]) -> pl.DataFrame:
    """Returns the windows in all Parquet files below `out`: window_start (Datetime us UTC), mean, sessions.

    A window_start without a time zone, as native Spark returns it to pandas, is in UTC.
    """
    start = pl.col("window_start").dt.replace_time_zone("UTC").dt.cast_time_unit("us")
    frames = [pl.read_parquet(path) for path in sorted(Path(out).rglob("*.parquet"))]
    empty = {"window_start": pl.Datetime("us", "UTC"), "mean": pl.Float64(), "sessions": pl.Int64()}
    none = pl.DataFrame(schema=empty)
    return pl.concat([none, *(frame.select(start, "mean", "sessions") for frame in frames)])


def differences(result: pl.DataFrame, expected: pl.DataFrame) -> list[str]:
    """Returns the differences between `result` and `expected`, a line for each window; empty if they are equal.

    Means may differ by one part in a thousand million: sums of the same numbers in another order.
    """
    found = result.group_by("window_start").agg(
        pl.col("mean", "sessions").first().name.suffix("_found"), pl.len().alias("rows")
    )
    both = expected.join(found, on="window_start", how="full", coalesce=True).sort("window_start")
    close = ((pl.col("mean") - pl.col("mean_found")) / pl.col("mean")).abs() <= 1e-9
    same = close & (pl.col("sessions") == pl.col("sessions_found")) & (pl.col("rows") == 1)
    return [
        f"window {row['window_start']:%H:%M}: expected {_shown(row['sessions'], row['mean'])}, "
        f"found {_shown(row['sessions_found'], row['mean_found'], row['rows'])}"
        for row in both.filter(~same.fill_null(False)).iter_rows(named=True)
    ]


def _shown(sessions: int | None, mean: float | None, rows: int | None = 1) -> str:
    if rows is not None and rows > 1:
        return f"{rows} rows"
    if sessions is None and mean is None:
        return "nothing"
    return f"{sessions} sessions with mean " + ("null" if mean is None else f"{mean:.6f} s")
