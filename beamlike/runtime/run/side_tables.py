"""Reads lookup tables, once per run. A continued run loads them from its checkpoint instead."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import attrs
import polars as pl

from beamlike.errors import MissingFiles, StepError
from beamlike.io.in_process import CHUNK_ROWS
from beamlike.plan.model import Plan, SourcePlan, TablePlan
from beamlike.plan.tables import with_tables
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Chunk
from beamlike.runtime.batch.reading import read_in_process
from beamlike.runtime.run.checkpoint import CheckpointFolder
from beamlike.system.path_names import file_name
from beamlike.system.seals import NotAsWritten, sealed_bytes, unsealed_bytes
from stages.errors import ResultError
from stages.frames import size_of
from stages.sides.contents import SideContent, digest, require_small
from windowing.columns import EVENT_TIME

_TABLES: Final = "tables"
"""The folder with the lookup tables in a checkpoint or savepoint."""


class Folder(Protocol):
    """The folder of a checkpoint or savepoint."""

    def at(self, *names: str) -> str:
        """Returns a path in the folder, made of these components."""


class TableFiles(Protocol):
    """Access to the files of lookup tables. Raises `CheckpointError` if the storage fails."""

    def read_bytes(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""

    def write_bytes(self, name: str, content: bytes) -> None:
        """Writes a file atomically."""


def read_tables(plan: Plan, now: int, *, globs: bool = True) -> dict[str, pl.DataFrame]:
    """Reads the lookup tables of a plan from their sources, at this processing time (us). Returns them by name.

    Each source is read once. Raises `StepError` for a table that is too large, and the errors of the sources. With
    `globs=False`, a glob that matches no file gives no rows.
    """
    sources: dict[str, SourcePlan] = {}
    for one in (source for table in plan.tables.values() for source in table.sources):
        before = sources[one.name].routes if one.name in sources else ()
        sources[one.name] = attrs.evolve(one, routes=(*before, *one.routes))
    frames = {name: [pl.DataFrame(schema=table.schema)] for name, table in plan.tables.items()}
    for source in sources.values():
        for chunk in _chunks(source, globs=globs):
            for name, rows in ingest(source, chunk, now).frames.items():
                if name in frames:
                    frames[name].append(_timed(rows).select(frames[name][0].columns))
    return {name: _whole(table, frames[name]) for name, table in plan.tables.items()}


def kept_tables(
    plan: Plan, now: int, checkpoint: CheckpointFolder, files: TableFiles, before: Mapping[str, Any] | None
) -> dict[str, pl.DataFrame]:
    """Returns the lookup tables of a plan. Those that an earlier run stored in the checkpoint are loaded from there.

    `before` is the manifest of that run. Raises `CheckpointError` if a stored table is missing.
    """
    folder = checkpoint.at(_TABLES)
    contents = {name: files.read_bytes(_file(folder, name)) for name in plan.tables}
    missing = {name: table for name, table in plan.tables.items() if contents[name] is None}
    for name in missing:
        if before is not None and before["begun"] and name in before.get("tables", {}):
            raise checkpoint.damaged(f"{_file(folder, name)} is missing")
    read = read_tables(attrs.evolve(plan, tables=missing), now, globs=False)
    for name, rows in read.items():
        files.write_bytes(_file(folder, name), sealed_bytes(as_bytes(rows), _file(_TABLES, name)))
    kept = ((name, content) for name, content in contents.items() if content is not None)
    try:
        return {**read, **{name: table_in(content, name, _file(folder, name)) for name, content in kept}}
    except NotAsWritten as error:
        raise checkpoint.damaged(str(error)) from None


def copy_tables(tables: Iterable[str], source: Folder, target: Folder, files: TableFiles) -> None:
    """Copies the stored lookup tables of these names between a checkpoint and a savepoint."""
    for name in tables:
        if (content := files.read_bytes(_file(source.at(_TABLES), name))) is not None:
            files.write_bytes(_file(target.at(_TABLES), name), content)


def file_of_table(checkpoint: Folder, table: str) -> str:
    """Returns the path of a stored lookup table."""
    return _file(checkpoint.at(_TABLES), table)


def table_in(content: bytes, table: str, file: str) -> pl.DataFrame:
    """Returns the rows of a lookup table in the content of its file. Raises `NotAsWritten` if it is damaged."""
    return pl.read_ipc(io.BytesIO(unsealed_bytes(content, _file(_TABLES, table), file)))


def _file(folder: str, table: str) -> str:
    return f"{folder}/{file_name(table)}.arrow"


def as_bytes(rows: pl.DataFrame) -> bytes:
    """Returns the rows of a lookup table as the bytes of a file."""
    buffer = io.BytesIO()
    rows.write_ipc(buffer, compression="lz4")
    return buffer.getvalue()


def with_tables_read(plan: Plan, now: int) -> Plan:
    """Returns the plan with its lookup tables read, for a run in this process without a checkpoint."""
    return with_tables(plan, at_hand(read_tables(plan, now)))


def at_hand(tables: Mapping[str, pl.DataFrame]) -> dict[str, SideContent]:
    """Returns the contents of lookup tables, by name, whose rows are in the memory of this process."""
    return {name: seen_of(rows, lambda rows=rows: rows) for name, rows in tables.items()}  # type: ignore[misc]


def seen_of(rows: pl.DataFrame, load: Callable[[], pl.DataFrame]) -> SideContent:
    """Returns the content of a lookup table: the digest and size of its `rows`, and `load`, which returns the rows when
    a lookup needs them.
    """
    return SideContent(digest(rows), size_of(rows), load)


def _chunks(source: SourcePlan, *, globs: bool) -> Iterable[Chunk]:
    try:
        return read_in_process(source, CHUNK_ROWS)
    except MissingFiles:
        if globs:
            raise
        return ()


def _whole(table: TablePlan, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    rows = pl.concat(frames)
    try:
        require_small(table.side, size_of(rows), len(rows))
    except ResultError as error:
        raise StepError(table.name, str(error)) from None
    return rows


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows if EVENT_TIME in rows.columns else rows.with_columns(pl.lit(None, pl.Int64).alias(EVENT_TIME))
