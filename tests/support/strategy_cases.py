"""Every watermark strategy with a stream of elements and the watermark after each step, derived by hand.

Times are seconds. A step is some elements, or a duration of processing time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
import polars as pl

import beamlike as bl
from stages.strategies.base import Summary
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME
from windowing.triggers.base import Trigger

SCHEMA = {"user": str, "at": int, "split": str, "mark": bool, "until": datetime, "line": str}
Step = list[dict[str, Any]] | float
"""Elements, or for how long processing time passes."""


def came(*times: float, mark: bool = False, until: float | None = None, **splits: float) -> Step:
    """Returns elements of no split, or one of each of these; even ones are ada's, odd ones bob's."""
    given = [*((time, None) for time in times), *((time, split) for split, time in splits.items())]
    told = None if until is None else datetime.fromtimestamp(until, UTC).replace(tzinfo=None)
    return [
        {
            "user": "bob" if time % 2 else "ada",
            "at": time,
            "split": split,
            "mark": mark,
            "until": told,
            "line": f"{time}|{split}",
        }
        for time, split in given
    ]


def passed(seconds: float) -> Step:
    """Returns a step in which nothing arrives for this many seconds."""
    return seconds


def stream(steps: list[Step]) -> bl.TestStream:
    """Returns a test stream that announces no watermark."""
    made = bl.TestStream(SCHEMA)
    for step in steps:
        made = made.add_elements(step) if isinstance(step, list) else made.advance_processing_time(step)
    return made


Read = Callable[[bl.Pipeline, str, bl.TestStream, bl.WatermarkStrategy], bl.Collection]


def timed(p: bl.Pipeline, name: str, source: bl.TestStream, strategy: bl.WatermarkStrategy) -> bl.Collection:
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def untimed(
    p: bl.Pipeline, name: str, source: bl.TestStream, strategy: bl.WatermarkStrategy
) -> bl.Collection:
    return p.read(name, source, watermark=strategy)


def parse(row: dict[str, Any]) -> dict[str, Any]:
    second, split = row["line"].split("|")
    return {"user": row["user"], "second": int(second), "log": split}


def parsed(p: bl.Pipeline, name: str, source: bl.TestStream, strategy: bl.WatermarkStrategy) -> bl.Collection:
    lines = p.read(f"{name}, raw", source).select("user", "line")
    rows = lines.map(parse, schema={"user": str, "second": int, "log": str})
    return rows.with_watermark(strategy, timestamp="second", timestamp_unit="s", name=name)


def four_seconds_before(
    p: bl.Pipeline, name: str, source: bl.TestStream, strategy: bl.WatermarkStrategy
) -> bl.Collection:
    rows = timed(p, name, source, strategy).with_columns(before=bl.col("at") - 4)
    return rows.with_timestamps("before", timestamp_unit="s", allowed_skew="5s")


@attrs.frozen
class Halves(bl.WatermarkStrategy):
    """A user-defined strategy: half of the newest time."""

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {"newest": frame[EVENT_TIME].max()} if len(frame) else {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        return max(one, other, key=lambda part: part.get("newest", MIN_TIME))

    def watermark(self, state: Summary, processing_time: int) -> int:
        return int(state["newest"]) // 2 if state else MIN_TIME


@attrs.frozen
class Case:
    """A strategy, its steps with the watermark after each (None: none yet), and the expected panes.

    Windows are ten seconds long. `fired` maps the start of a window to the step of its on-time panes, `early` to the
    step of early ones; `late` counts dropped elements. In the steps of `idle` the whole source is idle.
    """

    strategy: bl.WatermarkStrategy
    steps: list[tuple[Step, float | None]]
    fired: Mapping[int, int]
    early: Mapping[int, int] = attrs.field(factory=dict)
    late: int = 0
    idle: frozenset[int] = frozenset()
    skew: int = 0
    read: Read = timed
    trigger: Trigger = attrs.field(factory=bl.AfterWatermark)

    @property
    def stream(self) -> bl.TestStream:
        return stream([step for step, _ in self.steps])


CASES = {
    "monotonous": Case(
        bl.MonotonousTimestamps(),
        [(came(1, 4), 4), (came(12, 11), 12), (came(5), 12), (passed(60), 12), (came(25), 25)],
        fired={0: 1, 10: 4},
        late=1,
    ),
    "bounded": Case(
        bl.BoundedOutOfOrderness("5s"),
        [(came(4), -1), (came(12, 14), 9), (came(9), 9), (came(15), 10), (came(9), 10)],
        fired={0: 3},
        late=1,
    ),
    "early panes": Case(
        bl.BoundedOutOfOrderness("5s"),
        [(came(2, 4), -1), (came(3), -1), (came(5, 6), 1), (came(11), 6), (came(15), 10)],
        fired={0: 4},
        early={0: 0, 10: 4},
        trigger=bl.AfterWatermark(early=bl.AfterCount(2)),
    ),
    "punctuated": Case(
        bl.Punctuated(bl.col("mark")),
        [(came(3, 8), None), (came(7, mark=True), 7), (came(30), 7), (came(20, mark=True), 20)],
        fired={0: 3},
    ),
    "punctuated by a column": Case(
        bl.Punctuated(bl.col("mark"), bl.col("until")),
        [
            (came(3), None),
            (came(3, mark=True, until=20), 20),
            (came(5, until=90), 20),
            (came(40, mark=True, until=15), 20),
            (came(40, mark=True), 20),
        ],
        fired={0: 1},
        late=1,
    ),
    "lag": Case(
        bl.ProcessingTimeLag("10s"),
        [(came(3, 500), -10), (passed(15), 5), (came(4), 5), (passed(5), 10), (came(9), 10)],
        fired={0: 3},
        late=1,
    ),
    "ingress": Case(
        bl.IngressTimestamps(),
        [(came(500), 0), (passed(12), 12), (came(1, 2), 12), (passed(7.5), 19.5), (passed(0.5), 20)],
        fired={0: 1, 10: 4},
        read=untimed,
    ),
    "logs with names": Case(
        bl.TimeOrderedLogs("split", expected=["eu", "us"]),
        [(came(eu=3), None), (came(eu=25), None), (came(us=11), 11), (came(us=30), 25)],
        fired={0: 2, 10: 3},
    ),
    "so many logs": Case(
        bl.TimeOrderedLogs("split", expected=2),
        [(came(eu=3), None), (came(eu=25), None), (came(ap=11), 11), (came(ap=30), 25), (came(us=2), 25)],
        fired={0: 2, 10: 3},
        late=1,
    ),
    "any logs": Case(
        bl.TimeOrderedLogs("split"),
        [
            (came(eu=3), 3),
            (came(us=20), 3),
            (came(eu=15), 15),
            (came(ap=4), 15),
            (came(eu=40, us=41), 15),
            (came(ap=35), 35),
        ],
        fired={0: 2, 10: 5, 20: 5},
        late=1,
    ),
    # Half of the elements are at most so late; 5 s fall into a bucket that reaches to 5.111807 s.
    "learned": Case(
        bl.PercentileLateness(0.5),
        [(came(10), None), (came(20, 30), 30), (came(25, 25, 25, 25), 30), (came(60), 54.888193)],
        fired={10: 1, 20: 1, 30: 3},
        late=4,
    ),
    "a user's own": Case(Halves(), [(came(8), 4), (came(30), 15), (came(12), 15)], fired={0: 1}),
    "per split": Case(
        bl.BoundedOutOfOrderness("5s", per_split="split"),
        [(came(eu=10, us=30), 5), (came(us=50), 5), (came(eu=32), 27)],
        fired={10: 2},
    ),
    "idle split": Case(
        bl.MonotonousTimestamps(per_split="split", idle_after="30s"),
        [
            (came(eu=5, us=8), 5),
            (passed(20), 5),
            (came(us=30), 5),
            (passed(10), 30),
            (came(eu=12), 30),
            (came(us=45), 30),
            (came(eu=50), 45),
        ],
        fired={0: 3, 30: 6},
        late=1,
    ),
    "expected but silent": Case(
        bl.TimeOrderedLogs("split", expected=["eu", "us"], idle_after="30s"),
        [(came(eu=12), None), (passed(29), None), (came(eu=14), None), (passed(1), 14), (came(us=8), 14)],
        fired={},
        late=1,
    ),
    "idle": Case(
        bl.BoundedOutOfOrderness("5s", idle_after="30s"),
        [(came(8, 14), 9), (passed(30), 9), (passed(60), 9), (came(16), 11), (passed(30), 11)],
        fired={0: 3},
        idle=frozenset({1, 2, 4}),
    ),
    "percentiles": Case(
        bl.BoundedOutOfOrderness("10s", percentiles=(50,)),
        [(came(5), -5), (came(12), 2), (came(6), 2), (came(21), 11)],
        fired={0: 3},
        early={0: 1, 10: 3},
        trigger=bl.AfterWatermark(early=bl.AfterWatermark(percentile=50)),
    ),
    "after a parse": Case(
        bl.BoundedOutOfOrderness("5s", per_split="log"),
        [(came(eu=8, us=30), 3), (came(eu=16), 11), (came(eu=9), 11), (came(us=70), 11), (came(eu=60), 55)],
        fired={0: 1, 10: 4, 30: 4},
        late=1,
        read=parsed,
    ),
    "with timestamps": Case(
        bl.MonotonousTimestamps(),
        [(came(5, 9), 9), (came(15), 15), (came(17), 17), (came(12), 17)],
        fired={0: 1},
        late=1,
        skew=5,
        read=four_seconds_before,
    ),
}
