"""Cases of interval joins and as-of joins, in a pipeline; on the stage, the rows in state are compared, too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import attrs

import beamlike as bl
from beamlike.local.engine import Engine
from beamlike.records.model import StageRecord
from beamlike.runtime.batch.batch_sinks import BatchSinks
from beamlike.runtime.loop.batch_input import batch_inputs
from stages.snapshot import save
from tests.cases.case import Case, Outcome
from tests.cases.declared import DeclaredCase, Rows, recorded
from tests.cases.items import SCHEMA, batches, moves_of
from tests.cases.process import stream_of
from windowing.columns import EVENT_TIME

_KINDS = {
    "interval_join": frozenset({"how", "low", "high", "event_time", "stamp", "lateness"}),
    "asof_join": frozenset({"how", "tolerance", "lateness"}),
}
_STEP = frozenset(
    {"left", "right", "watermark", "processing_time", "out", "late", "output_watermark", "live", "kept"}
)
_SIDES = ("left", "right")
_TABLES = {"interval_join": {"left": "", "right": "right"}, "asof_join": {"left": "waiting", "right": ""}}
"""The state tables of each side, by kind of join."""
_DELETED = "deleted"
"""A version that says that there is none."""


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    """Declares the case in a pipeline."""
    case.require(_KINDS[case.kind], _STEP)
    left, right = (_side(pipeline, case, name, side) for side in _SIDES)
    joined = _joined(case, left, right, name)
    # The stage in which the rows meet.
    return DeclaredCase(f"{name}.pairs", batches(case.steps, _SIDES), recorded(joined, name), _outcome)


def on_stage(case: Case) -> list[Outcome]:
    """Plays a case in process, step by step."""
    pipeline = bl.Pipeline("case")
    declared = declare(pipeline, case, case.id)
    plan = pipeline.plan()
    engine, kept, records = Engine(plan, lambda: 0), [], {}
    sinks = BatchSinks(plan, {name: sink.sink for name, sink in plan.sinks.items()}, plan.name)
    for number, batch in enumerate(batch_inputs(plan, 1, engine.clock, engine.inputs)):
        records[number] = engine.run(batch, number, sinks)
        rows = save(plan.stages[declared.stage].stage, engine.store).rows
        kept.append({side: sorted(rows[table][EVENT_TIME]) for side, table in _TABLES[case.kind].items()})
    outcomes = zip(declared.outcomes(records), declared.batches, strict=True)
    return [attrs.evolve(outcome, kept=kept[taken[-1]]) for outcome, taken in outcomes]


def _side(pipeline: bl.Pipeline, case: Case, name: str, side: str) -> bl.Collection:
    moves = [move for step in case.steps for move in moves_of(step, side, _SIDES)]
    rows = pipeline.read(f"{name} {side}s", stream_of(moves, SCHEMA), timestamp="at", timestamp_unit="us")
    return rows.window_into(allowed_lateness=timedelta(seconds=case.given.get("lateness", 0))).select(
        "key", "value"
    )


def _joined(case: Case, left: bl.Collection, right: bl.Collection, name: str) -> bl.Collection:
    given = case.given
    if case.kind == "asof_join":
        return left.join_asof(
            right, on="key", how=given.get("how", "left"), tolerance=given.get("tolerance"), name=name
        )
    bounds = (given["low"], given["high"])
    how, event_time = given.get("how", "inner"), given.get("event_time", given.get("stamp"))
    return left.join(right, on="key", how=how, within=bounds, event_time=event_time, name=name)


def _outcome(rows: Rows, record: StageRecord) -> Outcome:
    late = [f"{side} {row[side]['value']}" for row in rows["late"] for side in _SIDES if row[side]]
    return Outcome([(_text(row), row["at"]) for row in rows["out"]], late, [], record.output, record.live)


def _text(row: Mapping[str, Any]) -> str:
    values = (row["value"], None if row["value_right"] == _DELETED else row["value_right"])
    return ",".join("-" if value is None else value for value in values)
