"""The manifest of a run: the facts on which its state depends, as plain data. A plan that continues the run is compared
with it.

Spark binds state to the position of an operator, and would accept a plan whose stages were swapped.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.sources import Planned, ReadFromMemory, ReadInFiles
from beamlike.plan.description import SourceFacts, StageFacts, TableFacts, describe_plan, fact_text
from beamlike.plan.differences import NEW_TABLES, TICKS, Remedy
from beamlike.plan.model import Plan, SourcePlan
from beamlike.plan.stepped import steps_of
from beamlike.system.seals import NotAsWritten, unsealed
from stages.declared import Declaration, Said, choices_of
from stages.state.store import ENCODING
from stages.strategies.base import WatermarkStrategy
from windowing.clocks import PROCESSING_TIME
from windowing.identity import identity_of, kind_of
from windowing.windowing import Windowing

MANIFEST: Final = "manifest.json"
"""The name of the file with the manifest."""
VERSION: Final = 2
"""The version of the manifest's format."""
WITH_FILES: Final = 3
"""The version of the manifest of a run on Spark whose state is in files. Code that would look for it in Spark's own
store refuses this version.
"""


class Store(StrEnum):
    """The store of the state of a run on Spark: Spark's own, or files of the checkpoint."""

    SPARK = "spark"
    FILES = "files"


class Runner(StrEnum):
    """The runner of a checkpoint, with the name that the command line uses."""

    LOCAL = "local"
    SPARK = "spark"


_STATES: Final = ("begun", "whole", "restoring", "draining", "drained")
_SHAPE: Final[Mapping[str, type]] = {
    **dict.fromkeys(("shards", "levels", "operators"), int),
    **dict.fromkeys(("pipeline", "run", "store"), str),
    **dict.fromkeys(("sources", "stages"), dict),
    **dict.fromkeys((TICKS, *_STATES, "rows"), bool),
}
_SHAPE_OF_STAGE: Final = ("level", "aggregates", "accumulators", "state")
_PUT_BACK: Final = "put it back from a copy, or start again with another checkpoint"

_USUAL: Final = {**choices_of(Windowing()), "windows": None}
"""Settings at their default. They are left out of a manifest, as are settings that are false, zero or empty."""


def describe(plan: Plan, shards: int, runner: Runner = Runner.SPARK) -> dict[str, Any]:
    """Returns the manifest of a plan that runs on this number of shards."""
    described = describe_plan(plan)
    return {
        "version": VERSION,
        "runner": runner,
        "pipeline": plan.name,
        "encoding": ENCODING,
        "shards": shards,
        "levels": len(plan.levels),
        TICKS: needs_processing_time(plan),
        "sources": {name: _source(source) for name, source in described.sources.items()},
        "stages": {name: _stage(stage) for name, stage in described.stages.items()},
        "tables": {name: _table(table) for name, table in described.tables.items()},
    }


def new_manifest(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the manifest of a new run.

    Its flags are `begun` (the sinks are prepared), `whole` (the run stopped between two batches), `restoring` (state is
    being restored), `draining` and `drained` (the sources were ended, and all windows closed). The manifest of a
    restored savepoint also has `restored`. On Spark there are `operators`, the number of stateful operators of the
    query, `rows`, which is true if the last of them exchanges rows with Spark, and `store`, which has their state.
    """
    return {**described, **dict.fromkeys(_STATES, False), "run": uuid.uuid4().hex[:8]}


def parse(text: str, what: str) -> dict[str, Any]:
    """Parses a manifest; `what` names it in errors. Raises `CheckpointError` if it is damaged or has an unknown
    encoding.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{what} has a manifest that is no JSON: {_PUT_BACK}") from None
    require_readable(found, what)  # first, as other encodings have other seals
    try:
        return checked(unsealed(text, MANIFEST), what)
    except NotAsWritten as error:
        raise CheckpointError(f"{what} has a damaged manifest, {error}: {_PUT_BACK}") from None


def require_readable(read: Any, what: str) -> None:
    """Raises `CheckpointError` if a manifest, of which nothing else was checked yet, is of another encoding."""
    found = read if isinstance(read, dict) else {}
    if not isinstance(encoding := found.get("encoding"), int):
        raise CheckpointError(f"{what} has a manifest that names no encoding of state: {_PUT_BACK}")
    if encoding != ENCODING:
        told = f"{what} has state of encoding {encoding}, and this version of beamlike knows {ENCODING}"
        raise CheckpointError(f"{told}: {Remedy.VERSION}")
    if (version := found.get("version")) not in (VERSION, WITH_FILES):
        told = f"{what} has a manifest of version {version}, and this version of beamlike knows up to {WITH_FILES}"
        raise CheckpointError(f"{told}: {Remedy.VERSION}")


def checked(read: Any, what: str) -> dict[str, Any]:
    """Checks a manifest that was parsed as JSON. Raises `CheckpointError` like `parse`."""
    require_readable(read, what)
    found: dict[str, Any] = {"operators": read.get("levels"), "rows": False, "store": Store.SPARK, **read}
    wrong = [fact for fact, kind in _SHAPE.items() if not isinstance(found.get(fact), kind)]
    wrong += (
        [f"stages: {name}" for name, stage in found.get("stages", {}).items() if not _is_stage(stage)]
        if not wrong
        else []
    )
    if not wrong and found["store"] not in {*Store}:
        wrong = ["store"]
    if wrong:
        raise CheckpointError(
            f"{what} has a manifest in which {wrong[0]!r} is missing or damaged: {_PUT_BACK}"
        )
    return found


def _is_stage(facts: object) -> bool:
    return isinstance(facts, dict) and all(fact in facts for fact in _SHAPE_OF_STAGE)


def needs_processing_time(plan: Plan) -> bool:
    """True if a stage or source waits for processing time. Batches without input are then needed."""
    waits = any(PROCESSING_TIME in stage.stage.operator.clocks for stage in plan.stages.values())
    waits = waits or any(source.watermark.needs_time for source in plan.sources.values())
    return waits and steps_of(plan) is None


def _table(facts: TableFacts) -> dict[str, Any]:
    table = facts.plan
    return {
        "named": table.named,
        "sources": [source.name for source in table.sources],
        "columns": types_of(table.side.schema),
        "ways": facts.ways,
        "text": {"columns": facts.columns, "ways": facts.way_texts},
    }


def _source(facts: SourceFacts) -> dict[str, Any]:
    source = facts.plan
    listed = (
        {"files listed by": "the driver"} if isinstance(source.source, ReadInFiles | ReadFromMemory) else {}
    )
    return {
        "named": source.named,
        "stem": stem(source.name),
        "kind": facts.kind,
        "event time": identity_of(source.time),
        "watermark": _watermark(source.watermark),
        "ways": facts.ways,
        "text": {**_texts_of(source), "ways": [facts.way_text]},
        **listed,
        **({"batches planned by": "the source"} if isinstance(source.source, Planned) else {}),
    }


def _watermark(strategy: WatermarkStrategy) -> dict[str, Any]:
    """Returns the kind of the strategy and the column of its splits. The state of a source depends only on these."""
    split = {} if strategy.per_split is None else {"per split": identity_of(strategy.per_split)}
    return {"kind": kind_of(type(strategy)), **split}


def _texts_of(source: SourcePlan) -> dict[str, str]:
    """Returns the event time and the watermark of a source as text."""
    time, strategy = source.time, source.watermark
    kind = type(strategy).__name__
    return {
        "event time": "" if time is None else f"{time.column}: {time.dtype} {time.unit or ''}".rstrip(),
        "watermark": kind if strategy.per_split is None else f"{kind} per {strategy.per_split}",
    }


def _stage(facts: StageFacts) -> dict[str, Any]:
    stage, declared = facts.plan, facts.declared
    step = stage.name.removesuffix(stage.part)
    # Accumulators are compared separately from other columns, because aggregates may be added to a run.
    accumulators = types_of(declared.accumulators)
    state = {name: dtype for name, dtype in types_of(facts.table.schema).items() if name not in accumulators}
    state |= {f"{one.name}/{name}": str(dtype) for one in facts.others for name, dtype in one.schema.items()}
    return {
        "named": stage.named,
        "stem": f"{stem(step)}{stage.part}",
        "step": step,
        "kind": declared.kind,
        "level": stage.level,
        "inputs": [*stage.inputs],
        "keys": facts.keys,
        "choices": _choices(declared),
        "aggregates": {name: identity_of(_value(each)) for name, each in declared.aggregates.items()},
        "fields": {name: identity_of(_value(each)) for name, each in declared.fields.items()},
        "does": identity_of(declared.does),
        "ways": facts.ways,
        "accumulators": accumulators,
        "state": state,
        **({NEW_TABLES: new} if (new := [one.name for one in facts.others if one.may_be_new]) else {}),
        "text": {
            "choices": {name: fact_text(each) for name, each in declared.choices.items()},
            "aggregates": facts.aggregates,
            "fields": {name: fact_text(each) for name, each in declared.fields.items()},
            "ways": facts.way_texts,
        },
    }


def _choices(declared: Declaration) -> dict[str, Any]:
    found = {name: identity_of(_value(each)) for name, each in declared.choices.items()}
    if declared.exact:
        return found
    return {name: each for name, each in found.items() if each and each != identity_of(_USUAL.get(name))}


def _value(fact: object) -> object:
    return fact.value if isinstance(fact, Said) else fact


def stem(name: str) -> str:
    """Returns a name without the number that was appended because an earlier step has the same derived name."""
    rest, _, number = name.rpartition("_")
    return rest if rest and number.isdecimal() else name


def types_of(schema: Mapping[str, pl.DataType]) -> dict[str, str]:
    """Returns the columns with their types as text."""
    return {name: str(dtype) for name, dtype in schema.items()}
