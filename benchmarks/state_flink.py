"""Operators whose state is read by key in Flink SQL, with state in RocksDB.

Flink has no batches, so its figure is the CPU time of so many more arrivals, which follow the rows that make the state
and arrivals that let Java compile what it needs. They are files that are read one after another, each when Flink has
nothing left to do (`peers/flink_state.py`), on two cores. Results are dropped. State is in RocksDB, with memory for all
of it and a checkpoint every five seconds.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import polars as pl

from beamlike.spark.session.java import find_java
from benchmarks.engines import CORES, ENGINES, install, variables
from benchmarks.state_native import frames
from benchmarks.workloads import Load

OPERATORS: Final = ("early panes", "dedup", "distinct", "interval join", "interval join, outer")
"""The operators of `state_operators` that Flink SQL has."""
_WARM_UP: Final = 10
BATCHES: Final = 20
"""The number of batches whose arrivals are measured, after others."""

_LIMIT: Final = 600  # seconds of a run
_ENGINE: Final = ENGINES["flink-sql"]
_JOB: Final = Path(__file__).parent / "peers" / "flink_state.py"


def seconds(work: Path) -> tuple[float, float]:
    """Returns the wall and CPU seconds of a batch of arrivals, from those of all which the job wrote to `work`."""
    found = json.loads((work / "seconds.json").read_text())
    return found["wall"] / BATCHES, found["cpu"] / BATCHES


def command(operator: str, work: Path, environments: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the command of the job over the files of `work`, and its variables. Flink is installed if it is missing.

    Raises `Failed` if it cannot be installed.
    """
    python = install(_ENGINE, environments.absolute())
    env = {**os.environ, "JAVA_HOME": str(find_java().home)}
    run = ["timeout", str(_LIMIT), str(python), str(_JOB), str(work), str(work), str(CORES), operator]
    return run, variables(_ENGINE, python, environments.absolute(), env)


def write(operator: str, load: Load, folder: Path) -> None:
    """Writes a file each of the rows that make the state, of the first arrivals and of the others."""
    rows = pl.concat(frames(operator, load, _WARM_UP + BATCHES))
    rows = rows.with_columns(pl.col("at").dt.timestamp("us"))
    warm = load.rows + _WARM_UP * load.arrivals
    parts = {"state": rows[: load.rows], "warm": rows[load.rows : warm], "measured": rows[warm:]}
    for name, part in parts.items():
        part.write_parquet(folder / f"{name}.parquet", compression="snappy")
