"""Cases of dedup, in a pipeline. An item is "id@time"; without `within` rows are distinct, by their id, per window."""

from __future__ import annotations

from datetime import timedelta

import beamlike as bl
from beamlike.records.model import StageRecord
from tests.cases.case import Case, Outcome
from tests.cases.declared import DeclaredCase, Rows, recorded
from tests.cases.items import SCHEMA, batches, moves_of
from tests.cases.process import stream_of, window_fn
from tests.cases.scripts import windows_of

_CASE = frozenset({"within", "by", "windows", "lateness"})
_STEP = frozenset({"elements", "watermark", "processing_time", "out", "late", "output_watermark", "live"})
_ROLES = ("elements",)


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> DeclaredCase:
    """Declares the case in a pipeline."""
    case.require(_CASE, _STEP)
    moves = [move for step in case.steps for move in moves_of(step, "elements", _ROLES)]
    rows = pipeline.read(f"{name} rows", stream_of(moves, SCHEMA), timestamp="at", timestamp_unit="us")
    windows = windows_of(case.given.get("windows", {"kind": "global"}))
    lateness = timedelta(seconds=case.given.get("lateness", 0))
    ids = rows.window_into(window_fn(windows), allowed_lateness=lateness).select("key")
    if "within" in case.given:
        within, by = timedelta(seconds=case.given["within"]), case.given.get("by", "event")
        once = ids.dedup("key", within=within, by=by, name=name)
    else:
        once = ids.distinct(name=name)
    return DeclaredCase(name, batches(case.steps, _ROLES), recorded(once, name), _outcome)


def _outcome(rows: Rows, record: StageRecord) -> Outcome:
    out = [(row["key"] or "null", row["at"]) for row in rows["out"]]
    return Outcome(out, [row["key"] for row in rows["late"]], [], record.output, record.live)
