"""Reading the sides that rows are looked up in without state: once for a run, and the same when it goes on."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import polars as pl

from beamlike.errors import CheckpointError, StepError
from beamlike.plan.model import Plan, TablePlan
from beamlike.plan.tables import with_tables
from beamlike.runtime.ingest import ingest, read_in_process
from beamlike.system.path_names import file_name
from stages.errors import ResultError
from stages.sides.contents import Seen, digest, require_small
from stages.sizes import size_of
from windowing.columns import EVENT_TIME

TABLES: Final = "tables"
"""The folder in a checkpoint, and in a savepoint, that has them."""

_CHUNK_ROWS: Final = 250_000


class Files(Protocol):
    """Files of a checkpoint. Raises `CheckpointError` where storage does not let that be done."""

    def read_bytes(self, name: str) -> bytes | None:
        """What is in a file; None if there is none."""

    def write_bytes(self, name: str, content: bytes) -> None:
        """Makes a file, at once."""


def read_tables(plan: Plan, now: int) -> dict[str, pl.DataFrame]:
    """The tables of a plan by name, read from its sources at this processing time (us).

    Raises `StepError` for one that is too large, and what reading its sources raises.
    """
    return {name: _read(table, now) for name, table in plan.tables.items()}


def kept_tables(plan: Plan, now: int, files: Files, folder: str) -> dict[str, pl.DataFrame]:
    """The same; those that an earlier run on the checkpoint has read, and kept in this folder of it, as they were."""
    found = {}
    for name, table in plan.tables.items():
        file = f"{folder}/{file_name(name)}.arrow"
        content = files.read_bytes(file)
        if content is None:
            found[name] = _read(table, now)
            files.write_bytes(file, as_bytes(found[name]))
        else:
            found[name] = _as_it_was(table, content, file)
    return found


def as_bytes(rows: pl.DataFrame) -> bytes:
    """Rows of a table as a file has them."""
    buffer = io.BytesIO()
    rows.write_ipc(buffer, compression="lz4")
    return buffer.getvalue()


def with_tables_read(plan: Plan, now: int) -> Plan:
    """The plan with its tables, for a run in this process that keeps nothing."""
    return with_tables(plan, at_hand(read_tables(plan, now)))


def at_hand(tables: Mapping[str, pl.DataFrame]) -> dict[str, Seen]:
    """Tables in the memory of this process."""
    return {name: seen_of(rows, lambda rows=rows: rows) for name, rows in tables.items()}  # type: ignore[misc]


def seen_of(rows: pl.DataFrame, load: Callable[[], pl.DataFrame]) -> Seen:
    """What is seen of a table that has these rows, and is loaded so."""
    return Seen(digest(rows), size_of(rows), load)


def _read(table: TablePlan, now: int) -> pl.DataFrame:
    frames = [pl.DataFrame(schema=table.schema)]
    for source in table.sources:
        for chunk in read_in_process(source, _CHUNK_ROWS):
            rows = ingest(source, chunk, now).frames.get(table.name)
            if rows is not None:
                frames.append(_timed(rows).select(list(table.schema)))
    whole = pl.concat(frames)
    try:
        require_small(table.side, size_of(whole), len(whole))
    except ResultError as error:
        raise StepError(table.name, str(error)) from None
    return whole


def _timed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows if EVENT_TIME in rows.columns else rows.with_columns(pl.lit(None, pl.Int64).alias(EVENT_TIME))


def _as_it_was(table: TablePlan, content: bytes, file: str) -> pl.DataFrame:
    try:
        rows = pl.read_ipc(io.BytesIO(content))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CheckpointError(
            f"{file} is damaged ({error}): put it back from a copy, or start anew with another checkpoint"
        ) from None
    if rows.schema != table.schema:
        was, now = (_columns(schema) for schema in (rows.schema, table.schema))
        raise CheckpointError(
            f"side {table.side.name!r} was read with the columns {was} when the run began, and is kept in {file}; the "
            f"plan now has {now}: start anew with another checkpoint, or go on with what it was"
        )
    return rows


def _columns(schema: pl.Schema) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items() if name != EVENT_TIME)
