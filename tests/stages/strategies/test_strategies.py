"""Laws of watermark strategies, and the watermark that each reports."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from datetime import datetime

import attrs
import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamlike.expressions.tree import columns_read, expression_text
from stages.progress.logs import TimeOrderedLogs
from stages.progress.splits import SourceState, merge, summarize
from stages.strategies.base import (
    BoundedOutOfOrderness,
    IngressTimestamps,
    MonotonousTimestamps,
    PercentileLateness,
    ProcessingTimeLag,
    Summary,
    WatermarkStrategy,
)
from stages.strategies.punctuated import Punctuated, RowExpression
from tests.support.strategies import us
from tests.support.watermark_strategies import (
    Row,
    Slowest,
    batches,
    frame,
    in_tasks,
    play,
    strategies,
    streams,
    times,
)
from windowing.columns import EVENT_TIME
from windowing.time import MIN_TIME

# Laws


@given(strategies(), batches, batches, batches)
def test_merging_is_associative_and_commutative_with_nothing_as_identity(
    strategy: WatermarkStrategy, one: list[Row], two: list[Row], three: list[Row]
) -> None:
    a, b, c = (summarize(strategy, frame(batch)) for batch in (one, two, three))
    assert merge(strategy, merge(strategy, a, b), c) == merge(strategy, a, merge(strategy, b, c))
    assert merge(strategy, a, b) == merge(strategy, b, a)
    assert merge(strategy, a, {}) == a == merge(strategy, {}, a)


@given(strategies(), batches, batches)
def test_so_it_is_within_a_split(strategy: WatermarkStrategy, one: list[Row], two: list[Row]) -> None:
    a, b = strategy.observe(frame(one)), strategy.observe(frame(two))
    assert strategy.merge(a, b) == strategy.merge(b, a) == strategy.observe(frame([*one, *two]))
    assert strategy.merge(a, {}) == a == strategy.merge({}, a)


@given(strategies(), streams, st.integers(1, 5), st.integers(0, 1000))
def test_any_split_of_batches_into_tasks_gives_the_same_state_and_watermark(
    strategy: WatermarkStrategy, stream: list[tuple[list[Row], int]], tasks: int, seed: int
) -> None:
    whole = parts = SourceState()
    now = 0
    for batch, passed in stream:
        now += passed
        whole = whole.advance(strategy, summarize(strategy, frame(batch)), now)
        parts = parts.advance(strategy, in_tasks(strategy, batch, tasks, seed), now)
        assert parts == whole


@given(strategies(), batches)
def test_a_summary_travels_as_json(strategy: WatermarkStrategy, batch: list[Row]) -> None:
    summary = summarize(strategy, frame(batch))
    assert json.loads(json.dumps(summary)) == summary


@given(strategies(), st.integers(0, 1000))
def test_a_summary_is_small_however_many_rows_there_are(strategy: WatermarkStrategy, seed: int) -> None:
    chance = random.Random(seed)
    rows = [(chance.randrange(-(10**9), 10**9), chance.choice("ab"), False) for _ in range(3_000)]
    assert len(json.dumps(summarize(strategy, frame(rows)))) < 20_000


@given(strategies(), streams)
def test_no_strategy_ever_goes_back(strategy: WatermarkStrategy, stream: list[tuple[list[Row], int]]) -> None:
    reached = [state.watermark for state in play(strategy, stream)]
    assert reached == sorted(reached)


@given(strategies())
def test_a_strategy_is_a_value_that_can_be_shipped(strategy: WatermarkStrategy) -> None:
    shipped = pickle.loads(pickle.dumps(strategy))
    assert shipped == strategy
    assert hash(shipped) == hash(strategy)


# Watermarks of each strategy


def after(strategy: WatermarkStrategy, batch: list[Row], now: int = 0) -> int:
    return SourceState().advance(strategy, summarize(strategy, frame(batch)), now).watermark


def elements(*times: int) -> list[Row]:
    return [(time, "a", False) for time in times]


@given(st.lists(times, max_size=6), st.integers(0, 20))
def test_the_newest_less_a_bound(given_times: list[int], bound: int) -> None:
    batch = elements(*given_times)
    assert after(MonotonousTimestamps(), batch) == max(given_times, default=MIN_TIME)
    expected = max([MIN_TIME, *(time - bound for time in given_times)])
    assert after(BoundedOutOfOrderness(us(bound)), batch) == expected


def test_a_lag_follows_the_clock_whether_or_not_anything_comes() -> None:
    strategy = ProcessingTimeLag(us(30))
    assert after(strategy, [], 100) == after(strategy, elements(5, 500), 100) == 70
    assert strategy.needs_time
    assert not BoundedOutOfOrderness("5s").needs_time
    assert BoundedOutOfOrderness("5s", idle_after="30s").needs_time


def test_of_ingress_timestamps_the_watermark_is_the_time_that_the_next_elements_get_at_least() -> None:
    strategy = IngressTimestamps()
    assert strategy.assigns_event_time
    assert after(strategy, elements(100), 100) == 100


def test_a_marker_says_how_far_the_stream_is_complete() -> None:
    strategy = Punctuated(pl.col("mark"))
    assert after(strategy, [(5, "a", False), (3, "a", True), (2, "a", True), (9, "a", False)]) == 3
    assert after(strategy, elements(5)) == MIN_TIME
    assert strategy.columns == ("mark",)


ROWS = pl.DataFrame(
    {
        EVENT_TIME: [1, 2, 3, 4],
        "kind": ["mark", "play", None, "mark"],
        "complete": [datetime(1970, 1, 1, 0, 0, 9), datetime(2026, 1, 1), datetime(2026, 1, 1), None],
        "part": ["a", "a", "b", "b"],
    }
)


@attrs.frozen
class Narwhals:
    """An expression of narwhals, as beamlike passes it on."""

    expression: nw.Expr = attrs.field(eq=expression_text)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(columns_read(self.expression))

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        return nw.from_native(frame).select(self.expression.alias("value")).to_native()["value"]


@pytest.mark.parametrize(("library", "convert"), [(pl, lambda value: value), (nw, Narwhals)])
def test_a_marker_is_found_by_expressions_of_any_library(
    library: object, convert: Callable[[object], RowExpression]
) -> None:
    col = library.col  # type: ignore[attr-defined]
    strategy = Punctuated(convert(col("kind") == "mark"), convert(col("complete")), per_split="part")
    assert strategy.columns == ("part", "kind", "complete")
    assert strategy.observe(ROWS) == {"newest": 9_000_000}
    # A marker without a timestamp promises nothing, but its split is active.
    assert summarize(strategy, ROWS) == {"a": {"own": {"newest": 9_000_000}}, "b": {"own": {}}}
    assert strategy == Punctuated(convert(col("kind") == "mark"), convert(col("complete")), per_split="part")
    assert strategy != Punctuated(convert(col("kind") != "mark"), convert(col("complete")), per_split="part")


def test_a_predicate_is_true_or_false_and_a_timestamp_is_a_time() -> None:
    with pytest.raises(TypeError, match="predicate must be true or false, not String"):
        Punctuated(pl.col("kind")).observe(ROWS)
    with pytest.raises(TypeError, match="timestamp must be a Datetime or a Date, not Int64; convert it"):
        Punctuated(pl.col("kind") == "mark", pl.col(EVENT_TIME) + 1).observe(ROWS)
    by_date = Punctuated(pl.lit(True), pl.col("complete").dt.date())
    assert by_date.observe(ROWS) == {"newest": 1_767_225_600_000_000}


# A user's own


class Halves(WatermarkStrategy):
    """A strategy as a plain class with the three functions: half of the newest time."""

    reads = ("mark",)

    def observe(self, frame: pl.DataFrame) -> Summary:
        return {"marks": int(frame["mark"].sum()), "newest": int(frame[EVENT_TIME].max())}  # type: ignore[arg-type]

    def merge(self, one: Summary, other: Summary) -> Summary:
        if not one or not other:
            return one or other
        return {
            "marks": one["marks"] + other["marks"],
            "newest": max(one["newest"], other["newest"]),
        }

    def watermark(self, state: Summary, processing_time: int) -> int:
        return state["newest"] // 2 if state else MIN_TIME


def test_a_users_own_needs_three_functions_and_gets_splits_and_all_else() -> None:
    strategy = Halves(per_split="part", percentiles=(50,))
    assert strategy.columns == ("part", "mark")
    state = SourceState()
    for batch in ([(10, "a", True), (30, "b", False)], [(20, "a", True), (30, "b", True)]):
        state = state.advance(strategy, summarize(strategy, frame(batch)), 0)
    assert state.splits["a"].state == {"marks": 2, "newest": 20}
    assert (state.watermark, state.percentiles) == (10, {50: 20})


def test_what_a_users_own_lacks_is_said() -> None:
    class Empty(WatermarkStrategy):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty must define observe\(self, frame\)"):
        summarize(Empty(), frame(elements(1)))
    with pytest.raises(
        NotImplementedError, match=r"Empty must define watermark\(self, state, processing_time\)"
    ):
        SourceState().advance(Empty(), {}, 0)
    with pytest.raises(NotImplementedError, match=r"Empty must define merge\(self, one, other\)"):
        Empty().merge({}, {})


def test_a_users_own_has_fields_not_an_init() -> None:
    with pytest.raises(TypeError, match=r"Own: declare what it holds as fields of an attrs class"):

        class Own(WatermarkStrategy):
            def __init__(self) -> None:
                pass

    assert Slowest(slack=3, idle_after="5s").slack == 3


def test_one_that_falls_holds_what_it_has_reached() -> None:
    reached = [state.watermark for state in play(Slowest(0), [(elements(9), 1), (elements(4), 1), ([], 1)])]
    assert reached == [MIN_TIME, 9, 9, 9]


# Declarations


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: BoundedOutOfOrderness("-1s"), ValueError, "bound must not be negative, not -1s"),
        (lambda: BoundedOutOfOrderness("five"), ValueError, "not a duration"),
        (lambda: MonotonousTimestamps(idle_after="five"), ValueError, "idle_after: not a duration: 'five'"),
        (lambda: MonotonousTimestamps(idle_after=0), ValueError, "idle_after must be longer than 0s, not 0s"),
        (
            lambda: MonotonousTimestamps(max_drift=True),
            TypeError,
            "max_drift: expected a duration .*, not True",
        ),
        (
            lambda: MonotonousTimestamps(per_split=3),
            TypeError,
            "per_split must be the name of a column, not 3",
        ),
        (
            lambda: MonotonousTimestamps(per_split=""),
            ValueError,
            "per_split must be the name of a column .*, not ''",
        ),
        (lambda: MonotonousTimestamps(per_split="__a"), ValueError, "a column of the source's, not '__a'"),
        (
            lambda: MonotonousTimestamps(percentiles=33),
            TypeError,
            "percentiles must be whole numbers .*, not 33",
        ),
        (
            lambda: MonotonousTimestamps(percentiles=(0.3,)),
            TypeError,
            r"percentiles must be .*, not \(0.3,\)",
        ),
        (lambda: MonotonousTimestamps(percentiles=(100,)), ValueError, "not 100; the 100th is the watermark"),
        (lambda: MonotonousTimestamps(percentiles=(5, 5)), ValueError, "each once; 5 is given twice"),
        (lambda: TimeOrderedLogs(None), TypeError, "split must be the name of a column, not None"),
        (lambda: TimeOrderedLogs("p", "eu"), TypeError, "expected must be the names .*, not 'eu'"),
        (lambda: TimeOrderedLogs("p", True), TypeError, "expected must be the names .*, not True"),
        (lambda: TimeOrderedLogs("p", []), ValueError, r"at least one, not \(\); leave it out if"),
        (lambda: TimeOrderedLogs("p", 0), ValueError, "at least one, not 0; leave it out if"),
        (lambda: TimeOrderedLogs("p", ["a", "a"]), ValueError, "each once; 'a' is given twice"),
        (lambda: ProcessingTimeLag("-1s"), ValueError, "lag must not be negative"),
        (lambda: ProcessingTimeLag(1, per_split="p"), ValueError, "per_split='p' has no meaning here: proc"),
        (lambda: IngressTimestamps(idle_after="5s"), ValueError, "idle_after='5s' has no meaning here: its"),
        (lambda: PercentileLateness(99), ValueError, "more than 0 and at most 1, such as 0.99, not 99"),
        (lambda: PercentileLateness("1"), TypeError, "more than 0 and at most 1, such as 0.99, not '1'"),
        (lambda: PercentileLateness(1, half_life=0), ValueError, "half_life must be longer than 0s"),
        (lambda: Punctuated("kind"), TypeError, "predicate must be an expression such as .*, not 'kind'"),
        (lambda: Punctuated(pl.col("a"), 3), TypeError, "timestamp must be an expression such as .*, not 3"),
    ],
)
def test_a_strategy_is_checked_when_it_is_declared(
    make: Callable[[], WatermarkStrategy], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


def test_what_a_declaration_gives() -> None:
    strategy = BoundedOutOfOrderness("1m30s", per_split="part", idle_after="30s", percentiles=[66, 33])
    assert (strategy.bound, strategy.idle_after, strategy.percentiles) == (90_000_000, 30_000_000, (33, 66))
    assert strategy.columns == ("part",)
    assert TimeOrderedLogs(split="part", expected=range(2)).expected == ("0", "1")
    assert TimeOrderedLogs("part").columns == ("part",)
