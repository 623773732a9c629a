"""Windows whose elements were all retracted are as if none had arrived, except for earlier output."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from stages.aggregates.builtin import Count
from stages.aggregates.totals import Sum
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.examples import share
from tests.support.strategies import us
from windowing import AfterCount, AfterWatermark, FixedWindows, SlidingWindows, WindowFn, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_START
from windowing.panes import Accumulation
from windowing.time import MAX_TIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Plays = list[list[tuple[str, int]]]
"""Bundles of users and seconds."""

EARLY = bl.AfterWatermark(early=bl.AfterCount(1))


def histogram(plays: Plays, accumulation: bl.Accumulation | None) -> tuple[bl.Pipeline, bl.Memory]:
    """Declares the number of users by their number of plays in a minute; each play moves a user to the next group."""
    p, out = bl.Pipeline("histogram"), bl.Memory()
    stream = bl.TestStream({"user": str, "at": int})
    for bundle in plays:
        stream = stream.add_elements([{"user": user, "at": at} for user, at in bundle])
    source = stream.advance_watermark_to_infinity()
    rows = p.read("plays", source, timestamp="at", timestamp_unit="s")
    windowed = rows.window_into(bl.FixedWindows("1m"), trigger=EARLY, accumulation=bl.RETRACTING)
    per_user = windowed.group_by("user", name="per user").aggregate(plays=bl.count())
    choices: dict[str, Any] = (
        {"trigger": bl.DefaultTrigger()}
        if accumulation is None
        else {"trigger": EARLY, "accumulation": accumulation}
    )
    groups = per_user.window_into(bl.FixedWindows("1m"), **choices).group_by("plays", name="histogram")
    groups.aggregate(users=bl.count()).write("out", out)
    return p, out


def expected(plays: Plays) -> dict[tuple[int, int], int]:
    """Returns the number of users by minute and number of plays."""
    per_user = Counter((at // 60, user) for bundle in plays for user, at in bundle)
    return dict(Counter((minute, number) for (minute, _), number in per_user.items()))


def standing(out: bl.Memory) -> dict[tuple[int, int], int]:
    """Returns the content of a table that keeps the last row of each group until it is retracted."""
    table = {}
    for row in out.rows():
        key = (row["window_start"].minute, row["plays"])
        if row.get("pane_retracted"):
            assert table.pop(key) == row["users"]
        else:
            assert key not in table or "pane_retracted" not in row
            table[key] = row["users"]
    return table


def check_accounts(result: Any) -> None:
    pending = 0
    for batch in result.batches:
        stage = batch.stages["histogram"]
        assert pending + stage.placed == stage.emitted + sum(stage.dropped.values()) + stage.pending
        pending = stage.pending
    assert pending == 0


plays = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 119)), max_size=4), min_size=1, max_size=6
)
some = share(4)


@some
@given(plays, st.sampled_from([None, bl.RETRACTING, bl.ACCUMULATING]))
def test_what_stands_is_what_a_table_would_have(plays: Plays, accumulation: bl.Accumulation | None) -> None:
    p, out = histogram(plays, accumulation)
    check_accounts(p.run())
    found = standing(out)
    if accumulation is bl.ACCUMULATING:  # a result that is not retracted is corrected by an empty pane
        found = {group: users for group, users in found.items() if users}
    assert found == expected(plays)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("accumulation", [None, bl.RETRACTING])
def test_spark_says_no_more(
    spark: SparkSession, tmp_path: Path, accumulation: bl.Accumulation | None
) -> None:
    plays = [[(user, at) for user in "abcde"[:most]] for at, most in enumerate((5, 4, 4, 1, 5))]
    p, out = histogram(plays, accumulation)
    p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=2, drain=True))
    assert standing(out) == expected(plays)


# The stage alone

SCHEMA = pl.Schema({"k": pl.String(), "v": pl.Int64()})
ARRIVALS = pl.Schema({**SCHEMA, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()})
TEN = FixedWindows(us(10))


def stage_of(accumulation: Accumulation, windows: WindowFn = TEN) -> Stage:
    trigger = AfterWatermark(early=AfterCount(1))
    windowing = Windowing(windows, trigger, accumulation)
    aggregates = {"n": Count(), "sum": Sum("v")}
    return Stage("stage", Grouping(("k",), windowing, aggregates, SCHEMA, retractions=True))


def played(stage: Stage, *bundles: list[tuple[int, bool]]) -> list[list[tuple[int, int, bool]]]:
    """Returns (count, sum, retracted) of the panes of each bundle of values, and of the end of input."""
    store, given = DictStore(), []
    for number, bundle in enumerate([*bundles, []]):
        rows = pl.DataFrame([("a", value, 0, back) for value, back in bundle], ARRIVALS, orient="row")
        step = stage.step(store, {MAIN: rows}, Times.of(MAX_TIME if number == len(bundles) else 0))
        given.append(step.panes.select("n", "sum", PANE_RETRACTED).rows())
    return given


COMES, GOES, AGAIN = [(3, False)], [(3, True)], [(4, False)]


def test_a_group_of_which_nothing_is_left_is_taken_back() -> None:
    stage = stage_of(Accumulation.RETRACTING)
    assert played(stage, COMES, GOES) == [[(1, 3, False)], [(1, 3, True)], []]
    assert played(stage, COMES, GOES, AGAIN) == [
        [(1, 3, False)],
        [(1, 3, True)],
        [(1, 4, False)],
        [(1, 4, True), (1, 4, False)],
    ]


def test_a_pane_that_stays_is_corrected_by_one_of_no_elements() -> None:
    stage = stage_of(Accumulation.ACCUMULATING)
    assert played(stage, COMES, GOES) == [[(1, 3, False)], [(0, 0, False)], [(0, 0, False)]]


def test_a_difference_of_nothing_is_one_only_where_something_was_said() -> None:
    stage = stage_of(Accumulation.DISCARDING)
    changed = [(3, True), (5, False)]  # as many elements as before
    assert played(stage, COMES, changed)[:2] == [[(1, 3, False)], [(0, 2, False)]]


@pytest.mark.parametrize("accumulation", Accumulation)
def test_of_elements_that_come_and_go_at_once_nothing_is_said(accumulation: Accumulation) -> None:
    assert played(stage_of(accumulation), [*COMES, *GOES]) == [[], []]


def test_elements_that_are_folded_before_they_are_placed_are_counted_as_well() -> None:
    stage = stage_of(Accumulation.ACCUMULATING, SlidingWindows(us(10), us(5)))
    grouping, number = stage.operator, 2_000
    assert isinstance(grouping, Grouping)
    back = pl.Series([False, True] * (number // 2))
    rows = pl.DataFrame({"k": ["gone"] * number, "v": [1] * number, EVENT_TIME: [7] * number})
    rows = rows.with_columns(back.alias(PANE_RETRACTED))
    stays = rows.filter(~back).with_columns(pl.lit("here").alias("k"))
    arrivals = grouping.pre_aggregated(pl.concat([rows, stays]))
    assert len(arrivals) < 10
    step = stage.step(DictStore(), {MAIN: arrivals}, Times.of(MAX_TIME))
    early = step.panes.filter(pl.col("n") > 0).select("k", WINDOW_START, "n").rows()
    assert set(step.panes["k"]) == {"here"}
    assert set(early) == {("here", 0, 1_000), ("here", 5, 1_000)}


def test_a_window_that_was_kept_when_nobody_counted_says_what_it_has() -> None:
    before, since = (
        Grouping(("k",), Windowing(TEN), {"sum": Sum("v")}, SCHEMA, retractions=counts)
        for counts in (False, True)
    )
    store = DictStore()
    for grouping, values in ((before, [(3, False)]), (since, [(4, False), (4, True)])):
        rows = pl.DataFrame([("a", value, 0, back) for value, back in values], ARRIVALS, orient="row")
        Stage("stage", grouping).step(store, {MAIN: rows}, Times.of(0))
    step = Stage("stage", since).step(store, {MAIN: pl.DataFrame(schema=ARRIVALS)}, Times.of(MAX_TIME))
    assert step.panes["sum"].to_list() == [3]
