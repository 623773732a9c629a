"""A pipeline with stages of all kinds, and its run on a Spark Connect server that is killed during a batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import polars as pl

import beamlike as bl
from beamlike.records.model import BatchRecord
from beamlike.spark.session import connect
from tests.support.every_operator import Counts

ROWS: Final = 40
EACH: Final = 10
SINKS: Final = ("sums", "counts", "joined", "side")


def generate(folder: Path) -> None:
    """Writes the files of the sources; each file is a batch."""
    given = [{"k": f"k{number % 3}", "v": number % 7, "t": number} for number in range(ROWS)]
    names = [{"k": f"k{number}", "name": f"name {number}"} for number in range(3)]
    sources: dict[str, list[dict[str, Any]]] = {"rows": given, "others": given[::2], "names": [*names]}
    for source, rows in sources.items():
        (folder / source).mkdir(parents=True)
        for number, start in enumerate(range(0, len(rows), EACH)):
            file = folder / source / f"{number}.parquet"
            pl.DataFrame(rows[start : start + EACH]).write_parquet(file)
            os.utime(file, (1_000_000_000 + number,) * 2)


def many(folder: Path, out: Path, *told: Any) -> bl.Pipeline:
    """Declares windows, a process with timers, a join, a side input and a lookup table. Sinks `told` get rows, too."""
    p = bl.Pipeline("many")

    def read(name: str) -> bl.Collection:
        source = bl.Parquet(folder / name, max_files_per_trigger=1)
        late = bl.BoundedOutOfOrderness("2s")
        return p.read(name, source, timestamp="t", timestamp_unit="s", watermark=late)

    rows, others, names = read("rows"), read("others"), p.read("names", bl.Parquet(folder / "names"))
    windowed = rows.window_into(bl.FixedWindows("10s"))
    sums = windowed.group_by("k").aggregate(v=bl.sum("v"))
    sums.with_columns(name=bl.lookup(names, on="k")["name"]).write("sums", bl.Parquet(out / "sums"))
    counts = rows.group_by("k").process(Counts(), {"k": str, "v": int})
    counts.write("counts", bl.Parquet(out / "counts"))
    for number, sink in enumerate(told):
        counts.write(f"told {number}", sink)
    rows.join(others, on="k", within=("0s", "3s")).write("joined", bl.Parquet(out / "joined"))
    greatest = others.window_into(bl.FixedWindows("10s")).group_by("k").aggregate(w=bl.max("v"))
    added = windowed.map(
        lambda row, side: {"k": row["k"], "v": row["v"] + side.get(row["k"], 0)},
        {"k": str, "v": int},
        side={"side": bl.as_dict(greatest, "k", "w")},
    )
    added.write("side", bl.Parquet(out / "side"))
    return p


def few(folder: Path) -> bl.Pipeline:
    """Declares windows only, with a batch for each file."""
    p = bl.Pipeline("few")
    source = bl.Parquet(folder / "rows", max_files_per_trigger=1)
    rows = p.read("rows", source, timestamp="t", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    sums = rows.window_into(bl.FixedWindows("10s")).group_by("k").aggregate(v=bl.sum("v"))
    sums.write("sums", bl.Parquet(folder / "sums"))
    return p


def written(out: Path, sinks: tuple[str, ...] = SINKS) -> dict[str, list[str]]:
    """Returns the rows of each sink, sorted."""
    frames = {name: pl.read_parquet(out / name / "**" / "*.parquet") for name in sinks}
    return {name: sorted(map(str, frame.to_dicts())) for name, frame in frames.items()}


def die(record: BatchRecord) -> None:
    """Kills the process as SIGKILL would, after the sinks have written a batch that is not committed."""
    if record.batch == 1:
        os._exit(9)


def wait(record: BatchRecord) -> None:
    """Tells the number of a batch, and waits for an answer."""
    print(record.batch, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":  # on the server that the environment names
    folder, on_batch = Path(sys.argv[1]), {"die": die, "wait": wait}[sys.argv[2]]
    connect._SECONDS = 4  # for which a server that is gone is asked again
    few(folder).run(bl.SparkRunner(folder / "checkpoint", on_batch=on_batch))
