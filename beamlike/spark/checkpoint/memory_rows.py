"""Stores the rows of in-memory sources as files next to the checkpoint, once, so that Spark reads the same rows in a
replay.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import attrs
import polars as pl

from beamlike.errors import CheckpointError, WrongType
from beamlike.io import Parquet
from beamlike.io.complete import is_complete
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.io.sources import ReadFromMemory
from beamlike.plan.model import Plan, SourcePlan
from beamlike.rows.dtypes import type_name
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.run.digests import digest_of_rows, other_rows
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.system.datasets import Dataset
from beamlike.system.durable import make_folder, sync_tree
from beamlike.system.file_digests import size_and_digest
from beamlike.system.path_names import is_remote
from beamlike.system.seals import sealed, unsealed

# Spark reads files in the order of their times. These times are in the past, and a second apart.
_FIRST_TIME = 1_000_000_000


@attrs.frozen(slots=False)
class RowsAsFiles(Parquet):
    """Files that this package wrote, so users need no advice about their order."""

    order_advice: ClassVar[str] = ""

    def datasets(self) -> list[Dataset]:
        return []


def with_rows_as_files(plan: Plan, checkpoint: Checkpoint) -> Plan:
    """Returns the plan with each source in memory replaced by files with its rows. Every chunk of the source is a
    batch.

    Raises `CheckpointError` if the checkpoint has other rows, or is not on this machine.
    """
    sources = {
        name: _as_files(source, source.source, checkpoint)
        if isinstance(source.source, ReadFromMemory)
        else source
        for name, source in plan.sources.items()
    }
    return attrs.evolve(plan, sources=sources)


def _as_files(source: SourcePlan, rows: ReadFromMemory, checkpoint: Checkpoint) -> SourcePlan:
    if is_remote(checkpoint.path):
        raise CheckpointError(
            f"source {source.name!r}: rows in memory need a checkpoint on this machine, not {checkpoint.path}"
        )
    for name, dtype in rows.schema().items():
        if _has_empty_struct(dtype):
            raise WrongType(
                f"column {name!r} is {type_name(dtype)}: a checkpoint stores rows as Parquet, which has no "
                "struct without fields; leave the column out",
                step=source.name,
            )
    folder = Path(checkpoint.at("rows", source.name))
    # A hidden name, which no reader takes for data.
    done = checkpoint.files.read(str(folder / "_rows"))
    digest = digest_of_rows(rows)
    if done is None:
        with stored("write", str(folder)):
            _write(rows, folder)
        listed = {file.name: size_and_digest(str(file)) for file in sorted(folder.glob("*.parquet"))}
        text = json.dumps(sealed({"rows": digest, "files": listed}, _place(source.name)))
        checkpoint.files.write(str(folder / "_rows"), text)
    else:
        _require_same(done, digest, folder, source.name, checkpoint)
    complete = is_complete(rows)
    files = RowsAsFiles(folder, schema=source.raw, max_files_per_trigger=1, complete=complete)
    return attrs.evolve(source, source=files)


def _require_same(done: str, digest: str, folder: Path, source: str, checkpoint: Checkpoint) -> None:
    """Raises `CheckpointError` if the source's rows differ from those of earlier runs, or the stored files are damaged.

    `done` is the content of the file `_rows`: a digest of the rows, and digests of the files.
    """
    try:
        said = unsealed(done, _place(source), f"{folder}/_rows")
    except ValueError as error:
        raise checkpoint.damaged(str(error)) from None
    if said["rows"] != digest:
        raise other_rows(source, checkpoint.path)
    for name, listed in said["files"].items():
        if size_and_digest(str(folder / name)) != tuple(listed):
            raise checkpoint.damaged(f"{folder}/{name} is missing, or is not what was written")


def _place(source: str) -> str:
    return f"rows/{source}"


def _has_empty_struct(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return not dtype.fields or any(_has_empty_struct(field.dtype) for field in dtype.fields)
    return isinstance(dtype, pl.List | pl.Array) and _has_empty_struct(dtype.inner)


def _write(rows: ReadFromMemory, folder: Path) -> None:
    make_folder(str(folder))
    for number, chunk in enumerate(rows.chunks(CHUNK_ROWS)):
        file = folder / f"{number:06d}.parquet"
        chunk.lazy().sink_parquet(file)
        os.utime(file, (_FIRST_TIME + number, _FIRST_TIME + number))
    sync_tree(str(folder))
