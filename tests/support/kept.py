"""Runs on Spark, with either store, and one in process, halfway through their input, kept in `tests/data`.

`python -m tests.support.kept` writes `encoding-<number>.tar.xz`, `files-encoding-<number>.tar.xz` and
`local-encoding-<number>.tar.xz`. Run it and commit the files when the encoding changes, and remove those of the former
encoding.
"""

from __future__ import annotations

import shutil
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

import beamlike as bl
from stages.state.store import ENCODING
from tests.support.places import ROOT

DATA: Final = ROOT / "tests" / "data"
FILES: Final = 6
HALF: Final = 3
SHARDS: Final = 2
DELAY: Final = 8  # seconds
_FOLDER: Final = Path("/tmp/kept")  # the files that were read have names in the checkpoint


def write(folder: Path, first: int, last: int) -> None:
    """Writes plays of twelve users, ten seconds a file; every user's plays end in different gaps."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, last):
        rows = [
            {
                "user": f"u{user}",
                "game": -(2**user),
                "at": 10 * number + (user * 7 + number) % 10,
                "score": user,
            }
            for user in range(12)
            if (user + number) % 3
        ]
        pl.DataFrame(rows).write_ndjson(folder / f"{number}.jsonl")


def pipeline(folder: Path, sessions: bl.Memory, games: bl.Memory) -> bl.Pipeline:
    """Declares sessions, which merge, and windows of twenty seconds over them."""
    p = bl.Pipeline("kept")
    source = bl.JSONLines(
        folder, schema={"user": str, "game": int, "at": int, "score": int}, max_files_per_trigger=1
    )
    plays = p.read(
        "plays",
        source,
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.BoundedOutOfOrderness(timedelta(seconds=DELAY)),
    )
    grouped = plays.window_into(bl.Sessions("12s")).group_by("user", "game", name="sessions")
    totals = grouped.aggregate(total=bl.sum("score"), most=bl.max("score"), n=bl.count())
    totals.write("sessions out", sessions)
    windows = totals.window_into(bl.FixedWindows("20s")).group_by("game", name="games")
    windows.aggregate(n=bl.sum("n")).write("games out", games)
    return p


def panes(*sinks: bl.Memory) -> list[tuple[Any, ...]]:
    """Returns the panes of all sinks, in an order that does not depend on shards."""
    return sorted((row for sink in sinks for row in sink.frame().rows()), key=repr)


def expected(folder: Path, before: int) -> list[tuple[Any, ...]]:
    """Returns the panes that all plays in a folder still emit, drained, after its first `before` files."""
    sessions, games = bl.Memory(), bl.Memory()
    pipeline(folder, sessions, games).run()
    read = pl.read_ndjson([folder / f"{number}.jsonl" for number in range(before)])
    watermark = datetime.fromtimestamp(read.select(pl.col("at").max()).item() - DELAY, UTC)
    return [pane for pane in panes(sessions, games) if pane[1] > watermark]


def main() -> None:
    """Writes the archives of the current encoding."""
    keep("encoding", on_spark("spark"))
    keep("files-encoding", on_spark("files"))
    keep("local-encoding", bl.LocalRunner(checkpoint=_FOLDER / "checkpoint"))


def on_spark(state: Literal["spark", "files"]) -> bl.SparkRunner:
    return bl.SparkRunner(str(_FOLDER / "checkpoint"), shards=SHARDS, master="local[2]", state=state)


def keep(name: str, runner: Any) -> None:
    """Writes the archive of a stopped run on this runner."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    write(_FOLDER / "plays", 0, HALF)
    pipeline(_FOLDER / "plays", bl.Memory(), bl.Memory()).run(runner)
    with tarfile.open(DATA / f"{name}-{ENCODING}.tar.xz", "w:xz") as archive:
        archive.add(_FOLDER / "checkpoint", "checkpoint")


if __name__ == "__main__":
    main()
