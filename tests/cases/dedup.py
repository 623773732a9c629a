"""Cases of dedup, in a pipeline. An item is "id@time"; without `within` rows are distinct, by their id, per window."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import attrs
import narwhals as nw

import beamlike as bl
from tests.cases.case import Case, Outcome
from tests.cases.items import SCHEMA, batches, moves_of
from tests.cases.process import stream_of, window_fn
from tests.cases.recorder import Recorder
from tests.cases.scripts import windows_of

_CASE = frozenset({"within", "by", "windows", "lateness"})
_STEP = frozenset({"elements", "watermark", "processing_time", "out", "late", "output_watermark", "live"})
_ROLES = ("elements",)


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> Declared:
    """The case's part of a pipeline."""
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
    recorders = {"out": Recorder(), "late": Recorder()}
    once.with_columns(at=bl.event_time().cast(nw.Int64)).write(f"{name} out", recorders["out"])
    once.late().write(f"{name} late", recorders["late"])
    return Declared(case, name, recorders)


def on_stage(case: Case) -> list[Outcome]:
    """In a run of its own, which says as much."""
    pipeline = bl.Pipeline("case")
    declared = declare(pipeline, case, case.id)
    return declared.outcomes({record.batch: record for record in pipeline.run().batches})


@attrs.frozen
class Declared:
    """A case in a pipeline, and what its sinks have got."""

    case: Case
    name: str
    recorders: Mapping[str, Recorder]

    def outcomes(self, records: Mapping[int, Any]) -> list[Outcome]:
        """What each step gave."""
        return [self._outcome(taken, records) for taken in batches(self.case.steps, _ROLES)]

    def _outcome(self, taken: range, records: Mapping[int, Any]) -> Outcome:
        record = records[taken[-1]].stages[self.name]
        rows = {what: recorder.rows(taken) for what, recorder in self.recorders.items()}
        out = [(row["key"] or "null", row["at"]) for row in rows["out"]]
        return Outcome(out, [row["key"] for row in rows["late"]], [], record.output, record.live)
