"""Sends lookup tables to every executor, once per run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import attrs
import polars as pl
from pyspark.sql import SparkSession

from beamlike.io.files.paths import open_file
from beamlike.plan.model import Plan
from beamlike.plan.tables import with_tables
from beamlike.runtime.run.side_tables import as_bytes, file_of_table, kept_tables, seen_of, table_in
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.task_activity import wall_clock
from beamlike.spark.session.kinds import is_connect
from stages.sides.contents import SideContent

if TYPE_CHECKING:
    from pyspark import Broadcast


@attrs.frozen
class Sent:
    """A lookup table in a broadcast of Spark. A process reads it unless it has a result made of the table in memory."""

    rows: Broadcast[bytes]

    def __call__(self) -> pl.DataFrame:
        return pl.read_ipc(io.BytesIO(self.rows.value))


@attrs.frozen
class Kept:
    """A lookup table in a file of the checkpoint, which workers read, for sessions that have no broadcasts."""

    file: str
    table: str

    def __call__(self) -> pl.DataFrame:
        with open_file(self.file) as file:
            return table_in(file.read(), self.table, self.file)


def with_tables_sent(
    plan: Plan,
    session: SparkSession,
    checkpoint: Checkpoint,
    before: Mapping[str, Any] | None,
    held: ExitStack,
) -> Plan:
    """Returns the plan with its lookup tables as the first run on the checkpoint read them. `before` is that run's
    manifest.
    """
    if not plan.tables:
        return plan
    tables = kept_tables(plan, wall_clock(), checkpoint, checkpoint.files, before)
    if is_connect(session):
        kept = {name: Kept(file_of_table(checkpoint, name), name) for name in tables}
        return with_tables(plan, {name: seen_of(rows, kept[name]) for name, rows in tables.items()})
    return with_tables(plan, {name: _sent(rows, session, held) for name, rows in tables.items()})


def _sent(rows: pl.DataFrame, session: SparkSession, held: ExitStack) -> SideContent:
    broadcast = session.sparkContext.broadcast(as_bytes(rows))
    held.callback(broadcast.unpersist)
    return seen_of(rows, Sent(broadcast))
