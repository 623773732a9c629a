"""The names with which tasks and shards identify themselves as the origin of rows and reports."""

from __future__ import annotations

from beamlike.plan.route import UNIT


def shard_name(stage: str, shard: int) -> str:
    """Returns the name under which a shard of a stage reports."""
    return f"{stage}{UNIT}{shard}"


def sender(origin: str) -> str:
    """Returns the source or stage in the name of a task or shard."""
    stage, unit, _ = origin.partition(UNIT)
    return stage if unit else origin.rpartition(":")[0]
