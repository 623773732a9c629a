"""The pipeline of the soak: two sources with invalid rows, a step that fails on some rows, sessions, and totals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import beamlike as bl

SCHEMA = {"id": int, "user": str, "at": str, "value": float}
IDLE = "3s"
"""A source that is silent for so long is not waited for."""


def checked(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the row; raises if its value is impossible."""
    if row["value"] < 0:
        raise ValueError(f"a value of {row['value']}")
    return row


def pipeline(folder: Path, max_files_per_trigger: int | None = None) -> bl.Pipeline:
    """Declares sessions per user with early and late panes, and their counts per ten seconds; writes all to files."""
    soak = bl.Pipeline("soak")
    strategy = bl.BoundedOutOfOrderness("2s", idle_after=IDLE)
    files = {
        name: bl.JSONLines(folder / name, schema=SCHEMA, max_files_per_trigger=max_files_per_trigger)
        for name in ("mobile", "web")
    }
    sources = [soak.read(name, files[name], timestamp="at", watermark=strategy) for name in files]
    plays = bl.flatten(sources, name="plays").filter(bl.col("user") != "nobody", name="known")
    sessions = (
        plays.map(checked, name="checked")
        .window_into(
            bl.Sessions("5s"),
            trigger=bl.AfterWatermark(early=bl.AfterProcessingTime("2s"), late=bl.AfterCount(1)),
            accumulation="discarding",
            allowed_lateness="3s",
        )
        .group_by("user", name="sessions")
        .aggregate(n=bl.count(), total=bl.sum("value"))
    )
    sessions.write("panes", bl.Parquet(folder / "panes"))
    totals = sessions.window_into(bl.FixedWindows("10s"), trigger=bl.AfterWatermark(late=bl.AfterCount(1)))
    totals.aggregate(n=bl.sum("n"), panes=bl.count()).named("totals").write(
        "sums", bl.Parquet(folder / "sums")
    )
    return soak
