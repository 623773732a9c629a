"""Operators of changes continue from a checkpoint as if the run had not ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import beamlike as bl

EACH: dict[str, Any] = {
    "trigger": bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1)),
    "accumulation": "retracting",
    "allowed_lateness": "20s",
}


def looked_up(sums: bl.Collection) -> bl.Collection:
    counts = sums.window_into(bl.FixedWindows("60s")).group_by("k").aggregate(n=bl.count())
    seen = sums.window_into(bl.FixedWindows("60s")).with_columns(n=bl.lookup(counts, on="k")["n"])
    return seen.window_into(bl.GlobalWindows())


def in_sessions(sums: bl.Collection) -> bl.Collection:
    return sums.window_into(bl.Sessions("15s")).group_by("k").aggregate(n=bl.count(), v=bl.max("v"))


def in_batches(sums: bl.Collection) -> bl.Collection:
    batches = sums.window_into(bl.GlobalWindows()).group_by("k").group_into_batches(size=2)
    return batches.drop("k").explode("rows").unnest("rows")


OPERATORS: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "batches": in_batches,
    "dedup": lambda sums: sums.dedup("k", within="15s"),
    "distinct": lambda sums: sums.select("v").window_into(bl.FixedWindows("60s")).distinct(),
    "lookup": looked_up,
    "sessions": in_sessions,
    "with_watermark": lambda sums: sums.with_watermark(bl.BoundedOutOfOrderness("15s")),
}


def declare(folder: Path) -> tuple[bl.Pipeline, dict[str, list[pl.DataFrame]]]:
    """Declares totals that are corrected, and each operator after them."""
    p = bl.Pipeline("p")
    watermark = bl.BoundedOutOfOrderness("5s")
    files = bl.Parquet(str(folder / "in" / "*.parquet"), max_files_per_trigger=1)
    rows = p.read("rows", files, timestamp="at", timestamp_unit="s", watermark=watermark)
    windowed = rows.window_into(bl.FixedWindows("10s"), timestamp_combiner="earliest", **EACH)
    sums = windowed.group_by("k").aggregate(v=bl.sum("v"))
    found: dict[str, list[pl.DataFrame]] = {}
    for one, operator in OPERATORS.items():
        frames = found[one] = []

        def keep(frame: pl.DataFrame, batch: int, frames: list[pl.DataFrame] = frames) -> None:
            frames.append(frame)

        operator(sums).write(one, bl.Callback(keep))
    return p, found


def net(frames: list[pl.DataFrame]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for frame in frames:
        for row in frame.iter_rows(named=True):
            shown = tuple((name, row[name]) for name in sorted(row) if not name.startswith("pane_"))
            found[shown] += -1 if row.get("pane_retracted") else 1
    assert all(count >= 0 for count in found.values())
    return +found


def test_they_continue_from_a_checkpoint(tmp_path: Path) -> None:
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in OPERATORS}
    (tmp_path / "in").mkdir()
    for last in (1, 3):
        for number in (last - 1, last):
            rows = {"k": ["a", "b", "a"], "v": [number, 3 - number, 9], "at": [9 * number, 8, 7 * number]}
            pl.DataFrame(rows).write_parquet(tmp_path / "in" / f"{number}.parquet")
        p, found = declare(tmp_path)
        p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), drain=last == 3))
        for name, frames in found.items():
            parts[name] += frames
    p, whole = declare(tmp_path)
    p.run()
    assert {name: net(frames) for name, frames in parts.items()} == {
        name: net(frames) for name, frames in whole.items()
    }
