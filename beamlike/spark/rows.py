"""Rows in memory on Spark: written beside the checkpoint as files once, so that a replay reads the same."""

from __future__ import annotations

import os

import attrs

from beamlike.io import Parquet, Rows
from beamlike.plan import Plan, SourcePlan
from beamlike.spark.checkpoint import Checkpoint

_CHUNK_ROWS = 250_000
# Spark takes files in order of their times; these are long past and a second apart.
_FIRST_TIME = 1_000_000_000


def with_rows_as_files(plan: Plan, checkpoint: Checkpoint) -> Plan:
    """The plan with each `Rows` source as the files that hold its rows; every chunk of it is a batch."""
    sources = {
        name: _as_files(source, checkpoint.at("rows", name)) if isinstance(source.source, Rows) else source
        for name, source in plan.sources.items()
    }
    return attrs.evolve(plan, sources=sources)


def _as_files(source: SourcePlan, folder: str) -> SourcePlan:
    done = os.path.join(folder, "_done")
    if not os.path.exists(done):
        os.makedirs(folder, exist_ok=True)
        for number, chunk in enumerate(source.source.chunks(_CHUNK_ROWS)):
            file = os.path.join(folder, f"{number:06d}.parquet")
            chunk.sink_parquet(file)
            os.utime(file, (_FIRST_TIME + number, _FIRST_TIME + number))
        with open(done, "w"):
            pass
    files = Parquet(folder, schema=source.schema, max_files_per_trigger=1)
    return attrs.evolve(source, source=files)
