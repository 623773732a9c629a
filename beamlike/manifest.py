"""The manifest of a run: what state depends on, as plain text, so that a plan can be held against a checkpoint.

Spark binds state to the position of an operator and would accept a plan whose stages were swapped.
"""

from __future__ import annotations

from typing import Any

from beamlike.describe import aggregate_text
from beamlike.describe import describe as text
from beamlike.origins import EventTime
from beamlike.plan import Plan, SourcePlan, StagePlan
from stages.state import ENCODING
from stages.strategies import WatermarkStrategy


def describe(plan: Plan, shards: int) -> dict[str, Any]:
    """The manifest of a plan on so many shards."""
    return {
        "pipeline": plan.name,
        "encoding": ENCODING,
        "shards": shards,
        "sources": {name: _source(source) for name, source in plan.sources.items()},
        "stages": {name: _stage(stage) for name, stage in plan.stages.items()},
    }


def _source(source: SourcePlan) -> dict[str, str]:
    return {
        "kind": type(source.source).__name__,
        "event time": _event_time(source.time),
        "watermark": _watermark(source.watermark),
    }


def _event_time(time: EventTime | None) -> str:
    return "" if time is None else f"{time.column}: {time.dtype} {time.unit or ''}".rstrip()


def _watermark(strategy: WatermarkStrategy) -> str:
    """What the state of a source depends on: the kind of strategy, and by which column it is cut."""
    kind = type(strategy).__name__
    return kind if strategy.per_split is None else f"{kind} per {strategy.per_split}"


def _stage(stage: StagePlan) -> dict[str, str]:
    grouping = stage.stage.grouping
    windowing = grouping.windowing
    return {
        "level": str(stage.level),
        "inputs": ", ".join(stage.inputs),
        "keys": ", ".join(f"{key}: {grouping.schema[key]}" for key in grouping.keys),
        "windows": repr(windowing.windows),
        "merging": str(grouping.merging),
        "trigger": repr(windowing.trigger),
        "accumulation": windowing.accumulation.value,
        "timestamp combiner": text(windowing.timestamp_combiner),
        "allowed lateness": f"{windowing.allowed_lateness} us",
        "on_time": windowing.on_time,
        "closing": windowing.closing,
        "aggregates": ", ".join(f"{name}={aggregate_text(agg)}" for name, agg in grouping.aggregates.items()),
        "state": ", ".join(f"{name}: {dtype}" for name, dtype in grouping.layout.state.items()),
    }


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """How a plan does not fit the one that a checkpoint was made with; nothing if it fits."""
    found = [
        f"{fact}: it has {saved[fact]}, this run {now[fact]}"
        for fact in ("encoding", "shards")
        if saved[fact] != now[fact]
    ]
    for kind in ("source", "stage"):
        found += _differences(kind, saved[f"{kind}s"], now[f"{kind}s"])
    return found


def _differences(kind: str, saved: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    found = [f"{kind} {name!r} is gone" for name in saved if name not in now]
    found += [f"{kind} {name!r} is new" for name in now if name not in saved]
    for name in saved.keys() & now.keys():
        changed = [fact for fact in now[name] if saved[name].get(fact) != now[name][fact]]
        found += [
            f"{kind} {name!r}: {fact} was {saved[name].get(fact)}, now {now[name][fact]}" for fact in changed
        ]
    return sorted(found)
