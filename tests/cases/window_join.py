"""Cases of joins in the same windows, in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import beamlike as bl
from beamlike.records.model import StageRecord
from tests.cases.case import Case, Outcome
from tests.cases.declared import DeclaredCase, Rows, recorded
from tests.cases.items import SCHEMA, batches, moves_of
from tests.cases.process import stream_of, window_fn
from tests.cases.scripts import windows_of

_CASE = frozenset({"how", "windows", "lateness", "accumulation", "early"})
_STEP = frozenset(
    {"left", "right", "watermark", "processing_time", "out", "late", "output_watermark", "live"}
)
_SIDES = ("left", "right")


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    """Declares the case in a pipeline. `early` is the number of rows of an early pane. Retractions begin with "-"."""
    case.require(_CASE, _STEP)
    left, right = (_side(pipeline, case, name, side) for side in _SIDES)
    how = case.given.get("how", "inner")
    joined = left.join(right, on="key", how=how, name=name)
    made = partial(_outcome, how)
    return DeclaredCase(f"{name}.cogroup", batches(case.steps, _SIDES), recorded(joined, name), made)


def _side(pipeline: bl.Pipeline, case: Case, name: str, side: str) -> bl.Collection:
    moves = [move for step in case.steps for move in moves_of(step, side, _SIDES)]
    rows = pipeline.read(f"{name} {side}s", stream_of(moves, SCHEMA), timestamp="at", timestamp_unit="us")
    early = case.given.get("early")
    return rows.window_into(
        _windows(case.given.get("windows", {"kind": "global"})),
        allowed_lateness=timedelta(seconds=case.given.get("lateness", 0)),
        accumulation=case.given.get("accumulation"),
        trigger=None
        if early is None
        else bl.AfterWatermark(early=bl.AfterCount(early), late=bl.AfterCount(1)),
    ).select("key", "value")


def _windows(given: Mapping[str, Any]) -> bl.WindowFn:
    if given["kind"] == "sessions":
        return bl.Sessions(timedelta(seconds=given["gap"]))
    return window_fn(windows_of(given))


def _outcome(how: str, rows: Rows, record: StageRecord) -> Outcome:
    late = [f"{side} {row[side]['value']}" for row in rows["late"] for side in _SIDES if row[side]]
    out = [(_text(row, how), row["at"]) for row in rows["out"]]
    return Outcome(out, late, [], record.output, record.live)


def _text(row: Mapping[str, Any], how: str) -> str:
    sides = ["value"] if how in ("semi", "anti") else ["value", "value_right"]
    sign = "-" if row.get("pane_retracted") or row.get("__pane_retracted") else ""
    return sign + ",".join("-" if row[side] is None else row[side] for side in sides)
