"""The oracle of the flagship example, compared with a reference that processes one play at a time."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import generate, oracle

MINUTE = 60_000_000


def frame(plays: list[tuple[int, int]]) -> pl.LazyFrame:
    """Returns (user, microseconds) pairs as a source."""
    schema = {"user": pl.Int64, "event_time": pl.Int64}
    times = pl.col("event_time").cast(pl.Datetime("us", "UTC"))
    return pl.LazyFrame(plays, schema=schema, orient="row").with_columns(times)


def slow_sessions(plays: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Returns (user, first, last) of each session, in microseconds."""
    found: list[tuple[int, int, int]] = []
    for user, time in sorted(plays):
        if found and found[-1][0] == user and time < found[-1][2] + MINUTE:
            found[-1] = (user, found[-1][1], time)
        else:
            found.append((user, time, time))
    return found


def slow_averages(sources: list[list[tuple[int, int]]], combiner: str) -> list[tuple[int, float, int]]:
    """Returns (window start, mean length in seconds, sessions) of each window of two minutes."""
    windows: dict[int, list[float]] = defaultdict(list)
    for plays in sources:
        for _, first, last in slow_sessions(plays):
            stamp = first if combiner == "earliest" else last + MINUTE - 1
            windows[stamp // (2 * MINUTE) * 2 * MINUTE].append((last + MINUTE - first) / 1e6)
    return [(start, sum(each) / len(each), len(each)) for start, each in sorted(windows.items())]


def compare(sources: list[list[tuple[int, int]]], combiner: str) -> None:
    result = oracle.averages({str(i): frame(plays) for i, plays in enumerate(sources)}, combiner)
    expected = slow_averages(sources, combiner)
    assert result["window_start"].dt.timestamp("us").to_list() == [start for start, _, _ in expected]
    assert result.filter(pl.col("window_end") - pl.col("window_start") != pl.duration(minutes=2)).is_empty()
    assert result["mean"].to_list() == pytest.approx([mean for _, mean, _ in expected], rel=1e-12)
    assert result["sessions"].to_list() == [count for _, _, count in expected]


# Multiples of ten seconds meet the gap exactly quite often, also at negative times.
times = st.one_of(st.integers(-30, 60).map(lambda x: x * 10_000_000), st.integers(-200_000_000, 600_000_000))
source = st.lists(st.tuples(st.integers(1, 3), times), max_size=30)


@given(st.lists(source, min_size=1, max_size=2), st.sampled_from(["end_of_window", "earliest"]))
def test_it_agrees_with_the_reference_on_any_plays(sources, combiner):
    compare(sources, combiner)


@pytest.mark.parametrize("combiner", ["end_of_window", "earliest"])
def test_it_agrees_with_the_reference_on_generated_plays(combiner):
    plays = generate.frames(generate.Plays(4_000, seed=2, ties=True))
    pairs = [list(zip(f["user"], f["event_time"].dt.timestamp("us"), strict=True)) for f in plays.values()]
    compare(pairs, combiner)


def test_plays_exactly_one_gap_apart_are_two_sessions():
    found = oracle.sessions(frame([(1, 0), (1, MINUTE), (1, 2 * MINUTE - 1)])).sort("first").collect()
    #   [0 ------ 60 s)
    #                  [60 s --------- 180 s - 1 us)
    assert found.select("first", "last").rows() == [(0, 0), (MINUTE, 2 * MINUTE - 1)]
    assert found["length"].to_list() == pytest.approx([60.0, 119.999999])


def test_sources_do_not_share_sessions():
    result = oracle.averages({"mobile": frame([(1, 0)]), "console": frame([(1, 1)])}, "earliest")
    assert result["sessions"].to_list() == [2]


def test_the_combiner_says_in_which_window_a_session_counts():
    plays = {"mobile": frame([(1, 0), (1, 50_000_000), (1, 100_000_000)])}  # window [0, 160 s)
    assert oracle.averages(plays, "earliest")["window_start"].to_list() == [datetime(1970, 1, 1, tzinfo=UTC)]
    assert oracle.averages(plays, "end_of_window")["window_start"].to_list() == [
        datetime(1970, 1, 1, 0, 2, tzinfo=UTC)
    ]


def test_a_session_that_ends_where_a_window_does_counts_in_that_window():
    result = oracle.averages({"mobile": frame([(1, MINUTE)])}, "end_of_window")  # window [60, 120 s)
    assert result["window_start"].dt.timestamp("us").to_list() == [0]


def test_an_unknown_combiner_is_refused():
    with pytest.raises(ValueError, match="'latest', expected one of earliest, end_of_window"):
        oracle.averages({"mobile": frame([])}, "latest")


def test_it_reads_what_the_generator_writes(tmp_path):
    plays = generate.Plays(2_000, files=3)
    read = oracle.averages(oracle.read(generate.write(tmp_path, plays)), "earliest")
    made = oracle.averages({name: each.lazy() for name, each in generate.frames(plays).items()}, "earliest")
    assert oracle.differences(read, made) == []


ANSWER = oracle.averages({"mobile": frame([(1, 0), (2, 200_000_000)])}, "earliest")


def test_windows_written_in_other_units_and_without_a_zone_read_the_same(tmp_path):
    naive = pl.col("window_start").dt.replace_time_zone(None).dt.cast_time_unit("ns")
    ANSWER.head(1).with_columns(naive).write_parquet(tmp_path / "0.parquet")
    (tmp_path / "more").mkdir()
    ANSWER.tail(1).write_parquet(tmp_path / "more" / "1.parquet")
    assert oracle.differences(oracle.written(tmp_path), ANSWER) == []


def test_nothing_written_is_no_windows(tmp_path):
    assert len(oracle.differences(oracle.written(tmp_path), ANSWER)) == 2


def test_a_sum_in_another_order_is_no_difference():
    assert oracle.differences(ANSWER.with_columns(pl.col("mean") * (1 + 1e-12)).reverse(), ANSWER) == []


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (ANSWER.head(1), "window 00:02: expected 1 sessions with mean 60.000000 s, found nothing"),
        (ANSWER.with_columns(pl.col("mean") * 1.001), "found 1 sessions with mean 60.060000 s"),
        (ANSWER.with_columns(pl.col("sessions") + 1), "found 2 sessions"),
        (ANSWER.with_columns(pl.col("window_start").dt.offset_by("1h")), "expected nothing, found 1"),
        (ANSWER.with_columns(mean=pl.lit(None, pl.Float64)), "found 1 sessions with mean null"),
        (
            pl.concat([ANSWER, ANSWER.head(1)]),
            "window 00:00: expected 1 sessions with mean 60.000000 s, found 2",
        ),
    ],
)
def test_a_window_that_is_missing_changed_or_too_many_is_a_difference(result, line):
    assert any(line in each for each in oracle.differences(result, ANSWER))
