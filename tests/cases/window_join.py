"""Cases of joins in the same windows, in a pipeline."""

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

_CASE = frozenset({"how", "windows", "lateness", "accumulation", "early"})
_STEP = frozenset(
    {"left", "right", "watermark", "processing_time", "out", "late", "output_watermark", "live"}
)
_SIDES = ("left", "right")


def declare(pipeline: bl.Pipeline, case: Case, name: str) -> Declared:
    """The case's part of a pipeline. `early`: a pane after so many rows. What is taken back begins with "-"."""
    case.require(_CASE, _STEP)
    left, right = (_side(pipeline, case, name, side) for side in _SIDES)
    how = case.given.get("how", "inner")
    joined = left.join(right, on="key", how=how, name=name)
    recorders = {"out": Recorder(), "late": Recorder()}
    joined.with_columns(at=bl.event_time().cast(nw.Int64)).write(f"{name} out", recorders["out"])
    joined.late().write(f"{name} late", recorders["late"])
    return Declared(case, name, how, recorders)


def on_stage(case: Case) -> list[Outcome]:
    """A join is a stage with steps before and after it: the shortest way to all of them is a run."""
    pipeline = bl.Pipeline("case")
    declared = declare(pipeline, case, case.id)
    return declared.outcomes({record.batch: record for record in pipeline.run().batches})


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


@attrs.frozen
class Declared:
    """A case in a pipeline, and what its sinks have got."""

    case: Case
    name: str
    how: str
    recorders: Mapping[str, Recorder]

    def outcomes(self, records: Mapping[int, Any]) -> list[Outcome]:
        """What each step gave."""
        return [self._outcome(taken, records) for taken in batches(self.case.steps, _SIDES)]

    def _outcome(self, taken: range, records: Mapping[int, Any]) -> Outcome:
        record = records[taken[-1]].stages[f"{self.name}.cogroup"]
        rows = {what: recorder.rows(taken) for what, recorder in self.recorders.items()}
        late = [f"{side} {row[side]['value']}" for row in rows["late"] for side in _SIDES if row[side]]
        return Outcome(
            [(self._text(row), row["at"]) for row in rows["out"]], late, [], record.output, record.live
        )

    def _text(self, row: Mapping[str, Any]) -> str:
        sides = ["value"] if self.how in ("semi", "anti") else ["value", "value_right"]
        sign = "-" if row.get("pane_retracted") or row.get("__pane_retracted") else ""
        return sign + ",".join("-" if row[side] is None else row[side] for side in sides)
