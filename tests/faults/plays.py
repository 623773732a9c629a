"""Input of killed runs: many small files of two sources, out of order, with late and dropped plays."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

SCHEMA = {"at": pl.Datetime("us", "UTC"), "user": pl.String, "score": pl.Int64}
BOUND = "5s"  # of the sources' watermarks
LATENESS = "40s"  # what the stages allow
SOURCES = ("mobile", "console")

_SECOND = 1_000_000
_START = 1_767_268_800 * _SECOND  # 2026-01-01 12:00:00 UTC
USERS = [f"user {number}" for number in range(12)]
_ROWS = (1, 5, 20, 40, 100)  # of a file
_FILE_SECONDS = 15  # of arrivals in one file


def write(folder: Path, *, files: int, seed: int) -> Path:
    """Writes `<source>/0000.parquet` (mobile) or `.jsonl` (console) and so on, files of up to a hundred rows.

    Of the plays, 8 in 100 arrive up to 30 s after the watermark, and 2 in 100 minutes after it.
    """
    rng = np.random.default_rng(seed)
    for source in SOURCES:
        (folder / source).mkdir(parents=True)
        for number in range(files):
            frame = _plays(rng, int(rng.choice(_ROWS)), number)
            path = folder / source / f"{number:04d}"
            if source == "mobile":
                path = path.with_suffix(".parquet")
                frame.write_parquet(path)
            else:
                path = path.with_suffix(".jsonl")
                frame.with_columns(pl.col("at").dt.to_string("iso:strict")).write_ndjson(path)
            # The order of arrival.
            os.utime(path, (_START // _SECOND + number, _START // _SECOND + number))
    return folder


def _plays(rng: np.random.Generator, rows: int, number: int) -> pl.DataFrame:
    """Returns the plays that arrive in an interval, in order of arrival."""
    arrival = np.sort(rng.integers(0, _FILE_SECONDS * _SECOND, rows)) + number * _FILE_SECONDS * _SECOND
    kind = rng.random(rows)
    delay = np.where(
        kind < 0.02,
        rng.integers(90 * _SECOND, 180 * _SECOND, rows),
        np.where(
            kind < 0.10, rng.integers(5 * _SECOND, 35 * _SECOND, rows), rng.integers(0, 4 * _SECOND, rows)
        ),
    )
    users = rng.integers(0, len(USERS), rows)
    return pl.DataFrame(
        {
            "at": pl.Series(_START + arrival - delay).cast(pl.Datetime("us", "UTC")),
            "user": [USERS[user] for user in users.tolist()],
            "score": rng.integers(1, 100, rows),
        },
        schema=SCHEMA,
    )
