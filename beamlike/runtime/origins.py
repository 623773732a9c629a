"""Who sends rows and reports: the names of shards and of tasks."""

from __future__ import annotations

from typing import Final

_UNIT: Final = "\x1f"  # no name of a user's has it


def shard_name(stage: str, shard: int) -> str:
    """The name under which one shard of a stage reports."""
    return f"{stage}{_UNIT}{shard}"


def sender(origin: str) -> str:
    """The source or stage that rows are from: their origin has, after its name, the task or shard that sent them."""
    stage, unit, _ = origin.partition(_UNIT)
    return stage if unit else origin.rpartition(":")[0]
