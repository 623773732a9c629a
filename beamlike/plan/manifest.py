"""The manifest of a run: what state depends on, as plain text, so that a plan can be held against a checkpoint.

Spark binds state to the position of an operator and would accept a plan whose stages were swapped.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from beamlike.errors import CheckpointError
from beamlike.expressions.describe import aggregate_text
from beamlike.expressions.describe import describe as text
from beamlike.io.sources import Planned, ReadFromMemory, ReadInFiles
from beamlike.logical.origins import EventTime
from beamlike.plan.model import Plan, SourcePlan, StagePlan, TablePlan
from beamlike.plan.stepped import steps_of
from beamlike.system.seals import NotAsWritten, unsealed
from stages.grouping.grouping import Grouping
from stages.joins.base import TimeJoin
from stages.operator import Operator
from stages.process.keyed import Keyed
from stages.sides.operator import SideInputs
from stages.state.store import BROUGHT_ALONG, ENCODING
from stages.strategies.base import WatermarkStrategy
from windowing.time import format_duration
from windowing.triggers.base import PROCESSING_TIME


class Remedy(StrEnum):
    """What a user can do about a plan that does not fit; the strongest is last."""

    RESTORE = "take a savepoint of it and restore that with this plan"
    ANEW = "start anew with another checkpoint, or go on with what it was"
    VERSION = "go on with the version of beamlike that made it, or start anew with another checkpoint"


class Runner(StrEnum):
    """Whose checkpoint it is, as the command line calls it."""

    LOCAL = "local"
    SPARK = "spark"


@attrs.frozen
class Difference:
    """One way in which a plan does not fit a run that it is to go on with, and what can be done about it."""

    what: str
    remedy: Remedy

    def __str__(self) -> str:
        return self.what


_OF_RUN: Final = {
    "runner": Remedy.RESTORE,
    "encoding": Remedy.RESTORE,
    "shards": Remedy.RESTORE,
    "levels": Remedy.RESTORE,
    "batches without input": Remedy.RESTORE,
}
_OF_SOURCE: Final = {
    "kind": Remedy.ANEW,
    "event time": Remedy.ANEW,
    "watermark": Remedy.ANEW,
    "files listed by": Remedy.RESTORE,
}
_OF_STAGE: Final = {
    "level": Remedy.RESTORE,
    "inputs": Remedy.RESTORE,
    **dict.fromkeys(
        (
            "keys",
            "operator",
            "order",
            "join",
            "sides",
            "windows",
            "merging",
            "trigger",
            "accumulation",
            "timestamp combiner",
            "allowed lateness",
            "on_time",
            "closing",
        ),
        Remedy.ANEW,
    ),
}
"""The facts of which each must stay as it was, and what can be done about one that has changed."""

_SINCE: Final = {"files listed by": "Spark"}
"""Facts that older manifests lack, as they were then."""

_RUN_SINCE: Final = {"runner": Runner.SPARK}
"""The same, of the run."""

_STATES: Final = ("begun", "whole", "restoring", "draining", "drained")
_SHAPE: Final[Mapping[str, type]] = {
    **dict.fromkeys(("shards", "levels"), int),
    **dict.fromkeys(("pipeline", "batches without input", "run"), str),
    **dict.fromkeys(("sources", "stages"), dict),
    **dict.fromkeys(_STATES, bool),
}
_SHAPE_OF_STAGE: Final = ("level", "aggregates", "accumulators", "state")
_PUT_BACK: Final = "put it back from a copy, or start anew with another checkpoint"

_BUILT_IN: Final = ("FixedWindows(", "SlidingWindows(", "Sessions(")
_IN_WINDOWS: Final = re.compile(r"\b(gap|size|period|offset)=(-?\d+)")


def describe(plan: Plan, shards: int, runner: Runner = Runner.SPARK) -> dict[str, Any]:
    """The manifest of a plan on so many shards."""
    return {
        "runner": runner,
        "pipeline": plan.name,
        "encoding": ENCODING,
        "shards": shards,
        "levels": len(plan.levels),
        "batches without input": "some, for processing time" if needs_processing_time(plan) else "none",
        "sources": {name: _source(source) for name, source in plan.sources.items()},
        "stages": {name: _stage(stage) for name, stage in plan.stages.items()},
        "tables": {name: _table(table) for name, table in plan.tables.items()},
    }


def new_manifest(described: Mapping[str, Any]) -> dict[str, Any]:
    """That of a run that begins.

    `begun`: its sinks were made ready; `whole`: it was stopped between two batches; `restoring`: its state is still
    being put back; `draining` and `drained`: its sources were ended, and its windows closed.
    """
    return {**described, **dict.fromkeys(_STATES, False), "run": uuid.uuid4().hex[:8]}


def parse(text: str, what: str) -> dict[str, Any]:
    """The manifest of what is meant in words. Raises `CheckpointError` where it is none, or of an unknown encoding."""
    try:
        found = unsealed(json.loads(text))
    except NotAsWritten as error:
        raise CheckpointError(f"{what} has a damaged manifest, {error}: {_PUT_BACK}") from None
    except ValueError:
        raise CheckpointError(f"{what} has a manifest that is no JSON: {_PUT_BACK}") from None
    return checked(found, what)


def checked(found: Any, what: str) -> dict[str, Any]:
    """The same, of what was read as JSON."""
    if not isinstance(found, dict) or not isinstance(encoding := found.get("encoding"), int):
        raise CheckpointError(f"{what} has a manifest that names no encoding of state: {_PUT_BACK}")
    if encoding not in (ENCODING, *BROUGHT_ALONG):
        known = " and ".join(map(str, sorted((*BROUGHT_ALONG, ENCODING))))
        told = f"{what} has state of encoding {encoding}, and this version of beamlike knows {known}"
        raise CheckpointError(f"{told}: {Remedy.VERSION}")
    wrong = [fact for fact, kind in _SHAPE.items() if not isinstance(found.get(fact), kind)]
    wrong += (
        [f"stages: {name}" for name, stage in found.get("stages", {}).items() if not _is_stage(stage)]
        if not wrong
        else []
    )
    if wrong:
        raise CheckpointError(
            f"{what} has a manifest in which {wrong[0]!r} is missing or damaged: {_PUT_BACK}"
        )
    return {**_RUN_SINCE, **found}


def _is_stage(facts: object) -> bool:
    return isinstance(facts, dict) and all(fact in facts for fact in _SHAPE_OF_STAGE)


def needs_processing_time(plan: Plan) -> bool:
    """Whether a stage or a source waits for processing time, which must then pass also when nothing comes."""
    waits = any(PROCESSING_TIME in stage.stage.operator.clocks for stage in plan.stages.values())
    waits = waits or any(source.watermark.needs_time for source in plan.sources.values())
    return waits and steps_of(plan) is None


def _table(table: TablePlan) -> dict[str, str]:
    columns = ", ".join(f"{name} {dtype}" for name, dtype in table.side.schema.items())
    return {"sources": ", ".join(source.name for source in table.sources), "columns": columns}


def _source(source: SourcePlan) -> dict[str, str]:
    listed = (
        {"files listed by": "the driver"} if isinstance(source.source, ReadInFiles | ReadFromMemory) else {}
    )
    return {
        "kind": type(source.source).__name__,
        "event time": _event_time(source.time),
        "watermark": _watermark(source.watermark),
        **listed,
        **({"batches planned by": "the source"} if isinstance(source.source, Planned) else {}),
    }


def _event_time(time: EventTime | None) -> str:
    return "" if time is None else f"{time.column}: {time.dtype} {time.unit or ''}".rstrip()


def _watermark(strategy: WatermarkStrategy) -> str:
    """What the state of a source depends on: the kind of strategy, and by which column it is cut."""
    kind = type(strategy).__name__
    return kind if strategy.per_split is None else f"{kind} per {strategy.per_split}"


def _stage(stage: StagePlan) -> dict[str, Any]:
    table, *others = (kept.table for kept in stage.stage.operator.tables)
    facts: dict[str, Any] = {
        "level": str(stage.level),
        "inputs": ", ".join(stage.inputs),
        "keys": ", ".join(f"{key}: {table.schema[key]}" for key in table.keys),
        **_operator(stage.stage.operator),
    }
    state = {name: str(dtype) for name, dtype in table.schema.items() if name not in facts["accumulators"]}
    state |= {f"{other.name}/{name}": str(dtype) for other in others for name, dtype in other.schema.items()}
    return {**facts, "state": state}


def _operator(operator: Operator) -> dict[str, Any]:
    """What the state of an operator depends on, choice by choice."""
    if isinstance(operator, Keyed):
        return _keyed(operator)
    if isinstance(operator, TimeJoin):
        lateness = f"{operator.allowed_lateness} us"
        return {"join": operator.text, "allowed lateness": lateness, "aggregates": {}, "accumulators": {}}
    if isinstance(operator, SideInputs):
        sides = {side.name: f"{text(side.windows)}, {side.feed}" for side in operator.sides}
        lateness = f"{operator.allowed_lateness} us"
        return {"sides": str(sides), "allowed lateness": lateness, "aggregates": {}, "accumulators": {}}
    if not isinstance(operator, Grouping):
        return {"operator": text(operator), "aggregates": {}, "accumulators": {}}
    windowing = operator.windowing
    return {
        "windows": repr(windowing.windows),
        "merging": str(operator.merging),
        "trigger": repr(windowing.trigger),
        "accumulation": windowing.accumulation.value,
        "timestamp combiner": text(windowing.timestamp_combiner),
        "allowed lateness": f"{windowing.allowed_lateness} us",
        "on_time": windowing.on_time,
        "closing": windowing.closing,
        "aggregates": {name: aggregate_text(agg) for name, agg in operator.aggregates.items()},
        "accumulators": {name: str(part.dtype) for name, part in operator.layout.parts.items()},
    }


def _keyed(operator: Keyed) -> dict[str, Any]:
    """What is kept may be added to: what is there is then as if nothing had been written to it."""
    return {
        "operator": type(operator).__name__,
        "order": operator.order,
        "windows": repr(operator.windowing.windows),
        "allowed lateness": f"{operator.windowing.allowed_lateness} us",
        "aggregates": {},
        "fields": dict(operator.kept),
        "accumulators": {name: str(dtype) for name, dtype in operator.content.items()},
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """How a plan does not fit the run that a checkpoint or savepoint is of; nothing if it may go on with it.

    What is not told may change: watermark delays, stages that are new on a level that was there, aggregates that are
    new, and whatever has no state, such as steps and sinks.
    """
    if saved["encoding"] not in (now["encoding"], *BROUGHT_ALONG):
        # What else differs cannot be known: a manifest of another encoding may have other facts.
        return [_changed("", "encoding", saved, now, Remedy.VERSION)]
    found = [_changed("", fact, saved, now, _OF_RUN[fact]) for fact in _OF_RUN if saved[fact] != now[fact]]
    found += _of_all("source", saved["sources"], now["sources"], _OF_SOURCE)
    found += _of_all("stage", saved["stages"], now["stages"], _OF_STAGE)
    found += [
        Difference(f"source {name!r} is new", Remedy.RESTORE)
        for name in now["sources"]
        if name not in saved["sources"]
    ]
    found += [
        Difference(f"stage {name!r} is new, on level {stage['level']}", Remedy.RESTORE)
        for name, stage in now["stages"].items()
        if name not in saved["stages"] and int(stage["level"]) > saved["levels"]
    ]
    found += _of_tables(saved, now)
    for name in saved["stages"].keys() & now["stages"].keys():
        found += _of_columns(f"stage {name!r}", saved["stages"][name], now["stages"][name])
    return sorted(found, key=lambda difference: (list(Remedy).index(difference.remedy), difference.what))


def _of_all(
    kind: str, saved: Mapping[str, Any], now: Mapping[str, Any], facts: Mapping[str, Remedy]
) -> Iterator[Difference]:
    yield from (Difference(f"{kind} {name!r} is gone", Remedy.RESTORE) for name in saved if name not in now)
    for name in saved.keys() & now.keys():
        older = _SINCE if saved[name].get("kind") == now[name].get("kind") else {}
        before, after = older | saved[name], older | now[name]
        for fact, remedy in facts.items():
            if before.get(fact, after.get(fact)) != after.get(fact, before.get(fact)):
                yield _changed(f"{kind} {name!r}: ", fact, before, after, remedy)


def _of_tables(saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """What was read before the first batch stays as it was, and is not read again for a stage."""
    tables = now["tables"]
    for name, before in saved.get("tables", {}).items():
        if name in tables and tables[name]["columns"] != before["columns"]:
            yield _changed(f"side {name!r}: ", "columns", before, tables[name], Remedy.ANEW)
        sources = {*before["sources"].split(", ")}
        for stage, facts in now["stages"].items() if name not in tables else ():
            if read := sorted(sources.intersection(facts["inputs"].split(", "))):
                told = f"stage {stage!r}: it keeps side {name!r}, which was a table, and {read[0]!r} is not read again"
                yield Difference(told, Remedy.ANEW)


def _changed(
    where: str, fact: str, saved: Mapping[str, Any], now: Mapping[str, Any], remedy: Remedy
) -> Difference:
    before, after = _shown(saved[fact]), _shown(now[fact])
    if where:
        return Difference(f"{where}{fact} was {before}, now {after}", remedy)
    return Difference(f"{fact}: it has {before}, this run {after}", remedy)


def _shown(fact: object) -> str:
    """A fact with its durations as users write them; a manifest has them in microseconds."""
    shown = str(fact)
    if shown.endswith(" us"):
        return format_duration(int(shown.removesuffix(" us")))
    return _IN_WINDOWS.sub(_as_duration, shown) if shown.startswith(_BUILT_IN) else shown


def _as_duration(found: re.Match[str]) -> str:
    return f"{found[1]}='{format_duration(int(found[2]))}'"


def _of_columns(where: str, saved: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """Aggregates may be added: windows that are open then have of them what no elements give."""
    for kind, fact in (("aggregate", "aggregates"), ("state field or timer", "fields")):
        before, after = saved.get(fact, {}), now.get(fact, {})
        for name in before:
            if before[name] != after.get(name):
                told = f"{where}: {kind} {name} was {before[name]}, now {after.get(name, 'gone')}"
                yield Difference(told, Remedy.ANEW)
    for column, dtype in saved["accumulators"].items():
        # Of one that is gone, its aggregate has been told.
        if now["accumulators"].get(column, dtype) != dtype:
            told = f"{where}: column {column} was {dtype}, now {now['accumulators'][column]}"
            yield Difference(told, Remedy.ANEW)
    for column in saved["state"].keys() | now["state"].keys():
        was, is_now = saved["state"].get(column, "missing"), now["state"].get(column, "gone")
        if was != is_now:
            yield Difference(f"{where}: column {column} was {was}, now {is_now}", Remedy.ANEW)


def refusal(found: Iterable[Difference], what: str, remedies: Mapping[Remedy, str]) -> str:
    """The differences from `what`, by what can be done about them. `remedies` may say more of one."""
    lines = [f"this plan does not fit {what}:"]
    by_remedy: dict[Remedy, list[str]] = {}
    for difference in found:
        by_remedy.setdefault(difference.remedy, []).append(difference.what)
    for remedy, told in by_remedy.items():
        lines += [f"  {line}" for line in told]
        lines.append(f"  -> {remedies.get(remedy, remedy)}")
    return "\n".join(lines)
