"""Writes the state in files to a savepoint: for each shard of each operator, a table of keys and values."""

from __future__ import annotations

import io

import polars as pl

from beamlike.runtime.savepoint.savepoint import Savepoint
from beamlike.spark.checkpoint.files import StoredFiles
from beamlike.spark.state.shard import Shard
from beamlike.spark.state.versions import data_folder, version_after

_SCHEMA = {"shard": pl.Int32, "key": pl.String, "value": pl.Binary}


def save_from_files(folder: str, saved: Savepoint, files: StoredFiles) -> None:
    """Writes the state after the batch of the savepoint to its `files`."""
    for (operator, shard), head in sorted(version_after(folder, saved.batch).heads.items()):
        state = Shard(data_folder(folder), operator, shard).load(head, saved.batch)
        rows = [(shard, key, value) for key, value in state.values()]
        content = io.BytesIO()
        pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_parquet(content)
        target = saved.at("state", str(operator))
        files.make(target)
        files.write_bytes(f"{target}/part-{shard:05d}.parquet", content.getvalue())
