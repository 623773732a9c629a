"""Sends the tables for lookups to every executor, once for a run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import attrs
import polars as pl
from pyspark import Broadcast
from pyspark.sql import SparkSession

from beamlike.plan.model import Plan
from beamlike.plan.tables import with_tables
from beamlike.runtime.run.side_tables import as_bytes, kept_tables, seen_of
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.query.task_activity import wall_clock
from stages.sides.contents import Seen


@attrs.frozen
class Sent:
    """A table in a broadcast of Spark; a process reads it if it has no result of the table in memory yet."""

    rows: Broadcast[bytes]

    def __call__(self) -> pl.DataFrame:
        return pl.read_ipc(io.BytesIO(self.rows.value))


def with_tables_sent(
    plan: Plan,
    session: SparkSession,
    checkpoint: Checkpoint,
    before: Mapping[str, Any] | None,
    held: ExitStack,
) -> Plan:
    """The plan with its tables as the first run on the checkpoint read them; `before` is the manifest of that run."""
    if not plan.tables:
        return plan
    tables = kept_tables(plan, wall_clock(), checkpoint, checkpoint.files, before)
    return with_tables(plan, {name: _sent(rows, session, held) for name, rows in tables.items()})


def _sent(rows: pl.DataFrame, session: SparkSession, held: ExitStack) -> Seen:
    broadcast = session.sparkContext.broadcast(as_bytes(rows))
    held.callback(broadcast.unpersist)
    return seen_of(rows, Sent(broadcast))
