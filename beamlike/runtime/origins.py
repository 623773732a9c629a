"""Who sends rows and reports: the names of shards and of tasks."""

from __future__ import annotations

from beamlike.plan.route import UNIT


def shard_name(stage: str, shard: int) -> str:
    """The name under which one shard of a stage reports."""
    return f"{stage}{UNIT}{shard}"


def sender(origin: str) -> str:
    """The source or stage that rows are from: their origin has, after its name, the task or shard that sent them."""
    stage, unit, _ = origin.partition(UNIT)
    return stage if unit else origin.rpartition(":")[0]
