"""Retractions end to end over two stages: what is taken back upstream is subtracted downstream."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given

from stages.aggregates import Count, Mean, Sum, WindowLength
from stages.grouping import Grouping
from stages.stage import Stage
from stages.state import DictStore
from stages.watermarks import Clock
from tests.strategies import Bundle, Stream, streams, us
from windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    FixedWindows,
    Sessions,
    TimestampCombiner,
    Windowing,
)
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME

PLAYS = pl.Schema({"key": pl.String(), "value": pl.Int64()})
LENGTHS = pl.Schema({"total": pl.Int64(), "length": pl.Float64()})
FOREVER = us(10**12)

SESSIONS = Stage(
    "sessions",
    Grouping(
        ("key",),
        Windowing(
            Sessions(us(5)),
            AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
            Accumulation.RETRACTING,
            TimestampCombiner.EARLIEST,
            FOREVER,
        ),
        {"total": Sum("value"), "length": WindowLength()},
        PLAYS,
    ),
)
"""Every bundle gives panes of all sessions that it touches, and takes back those that they replace."""

TOTALS = Stage(
    "totals",
    Grouping(
        (),
        Windowing(FixedWindows(us(20)), accumulation=Accumulation.ACCUMULATING, allowed_lateness=FOREVER),
        {"sessions": Count(), "total": Sum("total"), "mean": Mean("length")},
        LENGTHS,
    ),
)


class Chain:
    """Sessions, then totals over all users, as a runner would play them."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.sessions: list[pl.DataFrame] = []
        self.totals: list[pl.DataFrame] = []

    def step(self, bundle: Bundle) -> None:
        arrivals = pl.DataFrame(list(bundle.elements), schema={**PLAYS, EVENT_TIME: pl.Int64()}, orient="row")
        one = SESSIONS.step(self.store, arrivals, Clock(bundle.watermark))
        panes = one.panes.select("total", "length", EVENT_TIME, PANE_RETRACTED)
        two = TOTALS.step(self.store, panes, Clock(one.watermarks.output))
        self.sessions.append(one.panes)
        self.totals.append(two.panes)


@given(streams(drained=False))
def test_the_last_totals_are_those_of_the_last_sessions(stream: Stream) -> None:
    chain = Chain()
    for bundle in (*stream, Bundle((), MAX_TIME)):
        chain.step(bundle)
    sign = pl.when(PANE_RETRACTED).then(-1).otherwise(1)
    window = (pl.col(EVENT_TIME) // 20 * 20).alias("window")
    expected = (
        pl.concat(chain.sessions)
        .group_by(window)
        .agg(sign.sum().alias("sessions"), (sign * pl.col("total")).sum().alias("total"))
        .sort("window")
    )
    last = (
        pl.concat(chain.totals)
        .group_by(pl.col("__window_start").alias("window"), maintain_order=True)
        .last()
        .sort("window")
    )
    assert last.select("window", "sessions", "total").rows() == expected.rows()


def test_a_session_that_absorbs_two_others_replaces_both_downstream() -> None:
    chain = Chain()
    chain.step(Bundle((("a", 1, 0), ("a", 2, 8), ("b", 5, 30)), 0))
    chain.step(Bundle((("a", 4, 4),), 0))
    chain.step(Bundle((), 100))
    merged = chain.sessions[1].select("total", PANE_RETRACTED).rows()
    assert merged == [(1, True), (2, True), (7, False)]
    assert [tuple(row) for row in chain.totals[2].select("__window_start", "sessions", "total").rows()] == [
        (0, 1, 7),
        (20, 1, 5),
    ]
    assert chain.totals[2]["mean"].to_list() == [pytest.approx(13e-6), pytest.approx(5e-6)]
