"""Watermark strategies of every kind, sources for them, and ways to divide batches into tasks, for Hypothesis."""

from __future__ import annotations

import random

import attrs
import polars as pl
from hypothesis import strategies as st

from beamlike.io.test_stream.times import instant
from stages.progress.logs import TimeOrderedLogs
from stages.progress.splits import SourceState, SourceSummary, merge, summarize
from stages.strategies.base import (
    BoundedOutOfOrderness,
    IngressTimestamps,
    MonotonousTimestamps,
    PercentileLateness,
    ProcessingTimeLag,
    Summary,
    WatermarkStrategy,
)
from stages.strategies.punctuated import Punctuated
from tests.support.places import ROOT
from tests.support.strategies import us
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

Row = tuple[int, str | None, bool]
"""Event time, split, and whether it is a marker."""

SCHEMA = pl.Schema({EVENT_TIME: pl.Int64(), "part": pl.String(), "mark": pl.Boolean()})


@attrs.frozen
class Slowest(WatermarkStrategy):
    """A user-defined strategy that falls as well as rises: the oldest element of the last batch."""

    slack: int = 1

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {"oldest": int(frame[EVENT_TIME].min())} if len(frame) else {}  # type: ignore[arg-type]

    def merge(self, one: Summary, other: Summary) -> Summary:
        return min(one, other, key=lambda part: int(part["oldest"])) if one and other else one or other

    def fold(self, state: Summary, summary: Summary) -> Summary:
        return summary

    def watermark(self, state: Summary, processing_time: int) -> int:
        return state.get("oldest", MIN_TIME) - self.slack


@attrs.frozen
class Announced(WatermarkStrategy):
    """A strategy whose watermarks the source itself announces."""

    @property
    def learns_lateness(self) -> bool:
        return False

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {}

    def merge(self, one: Summary, other: Summary) -> Summary:
        return other or one

    def watermark(self, state: Summary, processing_time: int) -> int:
        return int(state.get("watermark", MIN_TIME))

    def percentile_watermarks(self, state: Summary) -> dict[int, int]:
        return {int(share): time for share, time in state.get("percentiles", {}).items()}


durations = st.integers(0, 20).map(us)
some = st.integers(1, 30).map(us)
percentiles = st.lists(st.integers(1, 99), max_size=3, unique=True)


@st.composite
def strategies(
    draw: st.DrawFn, *, with_percentiles: bool = False, idle: bool | None = None
) -> WatermarkStrategy:
    """Draws any strategy, with or without splits, idleness and percentiles."""
    fields = {
        "per_split": draw(st.sampled_from([None, "part"])),
        "idle_after": draw(some) if (draw(st.booleans()) if idle is None else idle) else None,
        "percentiles": draw(st.just((33, 66)) if with_percentiles else percentiles),
    }
    by_time = {"percentiles": fields["percentiles"]}
    logs = {**fields, "per_split": "part"}
    expected = st.sampled_from([None, 1, 2, ["a"], ["a", "b"]])
    ends = st.sampled_from([None, pl.col("mark")])
    kinds = [
        lambda: MonotonousTimestamps(**fields),
        lambda: BoundedOutOfOrderness(draw(durations), **fields),
        lambda: Punctuated(pl.col("mark"), **fields),
        lambda: ProcessingTimeLag(draw(durations), **by_time),
        lambda: IngressTimestamps(**by_time),
        lambda: TimeOrderedLogs(logs.pop("per_split"), draw(expected), ends=draw(ends), **logs),
        lambda: PercentileLateness(
            draw(st.sampled_from([0.01, 0.5, 0.9, 1])), half_life=draw(some), **fields
        ),
        lambda: Slowest(draw(st.integers(0, 3)), **fields),
    ]
    return draw(st.sampled_from(kinds))()


times = st.integers(-200, 200) | st.integers(-(10**15), 10**15) | st.sampled_from([MIN_TIME, MAX_TIME])
rows = st.tuples(times, st.sampled_from(["a", "b", "c", None]), st.booleans())
batches = st.lists(rows, max_size=8)
streams = st.lists(st.tuples(batches, st.integers(0, 25)), max_size=8)
"""Batches, and how much processing time passes before each."""


def frame(batch: list[Row]) -> pl.DataFrame:
    """Returns the rows as a frame, as a source's task has them."""
    return pl.DataFrame(batch, schema=SCHEMA, orient="row")


def in_tasks(strategy: WatermarkStrategy, batch: list[Row], tasks: int, seed: int) -> SourceSummary:
    """Returns the summary of a batch that `tasks` tasks have summarized in parts, merged in any order."""
    chance = random.Random(seed)
    parts: list[list[Row]] = [[] for _ in range(tasks)]
    for row in batch:
        chance.choice(parts).append(row)
    summaries = [summarize(strategy, frame(part)) for part in parts]
    chance.shuffle(summaries)
    while len(summaries) > 1:
        at = chance.randrange(len(summaries) - 1)
        summaries[at : at + 2] = [merge(strategy, summaries[at], summaries[at + 1])]
    return summaries[0]


def play(strategy: WatermarkStrategy, stream: list[tuple[list[Row], int]]) -> list[SourceState]:
    """Returns the states of a source, before the first batch and after each."""
    states, now = [SourceState()], 0
    for batch, passed in stream:
        now += passed
        states.append(states[-1].advance(strategy, summarize(strategy, frame(batch)), now))
    return states


def figure_3_11() -> list[tuple[int, int]]:
    """Returns arrival and event times (us) of events that arrive three to six minutes late, in order of arrival.

    Ten are in the window from 12:00 to 12:02. At 12:06, 12:07 and 12:08, when the 33rd percentile, two thirds and all
    of the events are through, four, seven and ten of these have arrived.
    """
    table = pl.read_csv(ROOT / "tests" / "data" / "figure_3_11.csv")
    return [(instant(arrival), instant(event)) for arrival, event in table.rows()]
