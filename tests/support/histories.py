"""Histories of runs, made by hand: two sources, sessions of each, and their average; times are seconds after noon."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs

from beamlike.records.graph import (
    RunDescription,
    SinkDescription,
    SourceDescription,
    Spacing,
    StageDescription,
)
from beamlike.records.history import History
from beamlike.records.model import BatchRecord, SourceRecord, StageRecord, Upstream
from beamlike.runtime.run.dead_letter_limit import Counted, DeadLetterLimit
from stages.facts import from_json, to_json
from stages.state.index import HoldOwner
from windowing.time import MAX_TIME, MIN_TIME

SECOND = 1_000_000
NOON = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * SECOND
CHOICES = {
    "windows": "Sessions(gap=1m)",
    "trigger": "DefaultTrigger()",
    "accumulation": "discarding",
    "timestamp": "end_of_window",
    "allowed lateness": "0s",
    "on_time": "always",
    "closing": "if_non_empty",
}


def at(seconds: float) -> int:
    """Returns a time this many seconds after noon, in microseconds; MIN_TIME and MAX_TIME are returned unchanged."""
    return int(seconds) if seconds in (MIN_TIME, MAX_TIME) else NOON + int(seconds * SECOND)


def stage(
    inputs: tuple[str, ...],
    keys: tuple[str, ...] = (),
    spacing: Spacing | None = None,
    lateness: int = 0,
    clocks: tuple[str, ...] = ("watermark",),
    global_window: bool = False,
    fires_at_end: bool = True,
    fires_before_end: bool = False,
    **choices: str,
) -> StageDescription:
    """Returns the description of a stage with these choices and usual defaults."""
    return StageDescription(
        inputs=inputs,
        level=1,
        keys=keys,
        aggregates={"n": "count()"},
        choices={**CHOICES, **choices},
        spacing=spacing,
        allowed_lateness=lateness * SECOND,
        clocks=clocks,
        global_window=global_window,
        fires_at_end=fires_at_end,
        fires_before_end=fires_before_end,
    )


def sliding(size: int, period: int) -> Spacing:
    return Spacing(size * SECOND, period * SECOND, 0)


TWO_MINUTES = {"spacing": sliding(120, 120), "windows": "FixedWindows(size=2m)"}

PLAN = RunDescription(
    "scores",
    {
        "console": SourceDescription(
            'Parquet("console")', "BoundedOutOfOrderness(bound=5s)", per_split="partition"
        ),
        "mobile": SourceDescription('Parquet("mobile")', "BoundedOutOfOrderness(bound=5s)"),
    },
    {
        "sessions": stage(("console", "mobile"), ("user",)),
        "average": stage(("sessions",), **TWO_MINUTES),
    },
    {"out": SinkDescription(("average",), "Memory()")},
)


def window(hold: float, start: float, end: float, key: str = "") -> HoldOwner:
    return HoldOwner(at(hold), key, at(start), at(end))


def stage_record(
    input: float, output: float, upstream: Mapping[str, float] | None = None, **facts: Any
) -> StageRecord:
    """Returns a stage's record; `upstream` has the watermarks of its inputs, `idle` the names of idle inputs."""
    idle = facts.pop("idle", ())
    heard = {name: Upstream(at(mark), name in idle) for name, mark in (upstream or {}).items()}
    since = facts.pop("since", None)
    return StageRecord(
        at(input),
        at(output),
        facts.pop("holder", ""),
        upstream=heard,
        since=None if since is None else at(since),
        **facts,
    )


def source_record(watermark: float, since: float | None = None, **facts: Any) -> SourceRecord:
    return SourceRecord(at(watermark), since=None if since is None else at(since), **facts)


def batch(
    number: int,
    now: float,
    sources: Mapping[str, SourceRecord],
    stages: Mapping[str, StageRecord],
    finished: float | None = None,
) -> BatchRecord:
    return BatchRecord(number, at(now), sources, stages, finished=None if finished is None else at(finished))


def history(*batches: BatchRecord, plan: RunDescription = PLAN, closed: str | None = None) -> History:
    return History(plan, list(batches), closed)


def goes_on(limit: int | float | None, batches: Iterable[BatchRecord]) -> DeadLetterLimit:
    """Returns the dead letter limit of a run that resumes after these batches, from the checkpoint's record."""
    before = DeadLetterLimit(sys.maxsize)
    for record in batches:
        before.take(record)
    return DeadLetterLimit(limit, from_json(Counted, to_json(before.counted)))


def replanned(plan: RunDescription, **stages: StageDescription) -> RunDescription:
    """Returns the plan with other stages under these names."""
    return attrs.evolve(plan, stages={**plan.stages, **stages})


def waiting(**console: Any) -> BatchRecord:
    """Returns the batch five minutes after noon: sessions wait for the console, whose split 3 is silent since 48 s."""
    console = {"watermark": 43, "since": 48, "split": "3", **console}
    return batch(
        7,
        300,
        {"console": source_record(**console), "mobile": source_record(290, 300, elements=10)},
        {
            "sessions": stage_record(
                43, 43, {"console": 43, "mobile": 290}, holder="console", elements=10, live=4, since=60
            ),
            "average": stage_record(43, 43, {"sessions": 43}, holder="sessions", since=60),
        },
    )
