"""The names of senders of rows and reports: shards and tasks."""

from __future__ import annotations

from beamlike.plan.route import UNIT


def shard_name(stage: str, shard: int) -> str:
    """The name under which one shard of a stage reports."""
    return f"{stage}{UNIT}{shard}"


def sender(origin: str) -> str:
    """The source or stage that sent rows: the part of their origin before the name of the task or shard."""
    stage, unit, _ = origin.partition(UNIT)
    return stage if unit else origin.rpartition(":")[0]
