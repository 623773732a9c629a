"""A log that has ended no longer holds the minimum, and a new one joins it; files are such logs, in any bundles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import PlanError
from stages.facts import from_json, to_json
from stages.progress.logs import TimeOrderedLogs
from stages.progress.splits import SourceState, known, merge, read_to_end, summarize
from stages.strategies.validators import SourceFile
from tests.support.watermark_strategies import Row, frame, play
from windowing.time import MAX_TIME, MIN_TIME

ENDS = TimeOrderedLogs("part", ends=pl.col("mark"))
BY_FILE = TimeOrderedLogs(SourceFile())


def watermarks(strategy: TimeOrderedLogs, *batches: list[Row]) -> list[int]:
    return [state.watermark for state in play(strategy, [(batch, 1) for batch in batches])[1:]]


# Logs that say so


def test_a_log_that_says_that_it_is_over_leaves_the_minimum() -> None:
    a, b = (20, "a", True), (50, "b", False)
    assert watermarks(ENDS, [(10, "a", False), (15, "b", False)], [b], [a]) == [10, 10, 50]


def test_when_all_are_over_the_watermark_is_where_the_newest_left_it_and_others_may_join() -> None:
    ended: list[Row] = [(20, "a", True), (50, "b", True)]
    assert watermarks(ENDS, ended, [], [(60, "c", False)]) == [50, 50, 60]
    states = play(ENDS, [(ended, 1), ([], 3_600)])
    assert states[-1].blocked_on(ENDS, 3_600) is None
    assert not states[-1].idle


def test_a_log_that_goes_on_after_its_end_counts_again() -> None:
    begun: list[Row] = [(20, "a", True), (30, "b", False)]
    assert watermarks(ENDS, begun, [(40, "b", False)], [(25, "a", False)], [(70, "b", False)]) == [
        *(30, 40, 40, 40)
    ]
    assert watermarks(ENDS, [(20, "a", True), (30, "a", False), (90, "b", False)]) == [30]


def test_a_log_that_is_expected_and_over_has_spoken() -> None:
    expected = TimeOrderedLogs("part", 2, ends=pl.col("mark"))
    assert watermarks(expected, [(20, "a", True)], [], [(5, "b", False)], [(9, "b", False)]) == [
        *(MIN_TIME, MIN_TIME, 5, 9)
    ]


# Files


def advance(state: SourceState, *summaries: Any, strategy: TimeOrderedLogs = BY_FILE) -> SourceState:
    summary: Any = {}
    for part in summaries:
        summary = merge(strategy, summary, part)
    return from_json(SourceState, to_json(state.advance(strategy, summary, 0)))


def of(file: str, *times: int) -> Any:
    return summarize(BY_FILE, frame([(time, None, False) for time in times]), file)


def test_a_file_that_waits_holds_the_watermark_and_one_that_was_read_does_not() -> None:
    begun = advance(SourceState(), known(["a", "b"]), of("a", 10, 90), read_to_end("a"))
    assert begun.watermark == MIN_TIME
    half = advance(begun, of("b", 5, 20))
    assert half.watermark == 20
    done = advance(half, of("b", 40), read_to_end("b"))
    assert (done.watermark, done.splits) == (90, {})
    assert advance(advance(done, of("c", 95)), of("c", 120), read_to_end("c")).watermark == 120


def test_a_file_without_rows_does_not_hold_anything() -> None:
    state = advance(SourceState(), known(["a", "b"]), read_to_end("a"), of("b", 7))
    assert state.watermark == 7
    assert advance(SourceState(), known(["a"]), read_to_end("a")).watermark == MIN_TIME


def test_files_that_were_read_take_no_room_but_count_where_some_are_expected() -> None:
    strategy = TimeOrderedLogs(SourceFile(), expected=3)
    state = SourceState()
    for number in range(2):
        state = advance(state, of(f"{number}", 10), read_to_end(f"{number}"), strategy=strategy)
        assert state.watermark == MIN_TIME
    state = advance(state, of("2", 30), read_to_end("2"), strategy=strategy)
    assert (state.watermark, state.splits) == (30, {})
    assert advance(state, of("3", 35), strategy=strategy).watermark == 35


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=6).map(sorted), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_files_in_any_bundles_and_order_make_nothing_late(logs: list[list[int]], seed: int) -> None:
    """The naive model is the least of the newest times of the files that go on, and none while a file waits."""
    chance, state = random.Random(seed), SourceState()
    left, seen = (
        {str(name): list(log) for name, log in enumerate(logs)},
        dict.fromkeys(map(str, range(5)), -1),
    )
    told, model = known(left), MIN_TIME
    while left:
        summaries = []
        for name in chance.sample(sorted(left), chance.randint(1, len(left))):
            count = chance.randint(0, len(left[name]))
            rows, left[name] = left[name][:count], left[name][count:]
            # No arrival is behind the watermark.
            assert all(time >= state.watermark for time in rows)
            seen[name] = max([seen[name], *rows])
            summaries.append(of(name, *rows))
            if not left[name]:
                summaries.append(read_to_end(name))
                del left[name]
        chance.shuffle(summaries)
        state = advance(state, told, *summaries)
        told = {}
        going = [seen[name] if seen[name] >= 0 else MIN_TIME for name in left]
        newest = max((time for time in seen.values() if time >= 0), default=MIN_TIME)
        model = max(model, min(going, default=newest))
        assert state.watermark == model < MAX_TIME


# On both runners


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "local":
        return bl.LocalRunner()
    session = request.getfixturevalue("spark")
    return bl.SparkRunner(str(tmp_path / "checkpoint"), session=session, shards=2, drain=True)


@pytest.mark.parametrize(
    "runner", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])], indirect=True
)
def test_files_side_by_side_are_logs_and_their_paths_a_column(runner: Any, tmp_path: Path) -> None:
    logs = {"a": range(0, 300, 10), "b": range(5, 300, 15), "c": range(0, 60, 20)}
    for name, times in logs.items():
        (tmp_path / f"{name}.csv").write_text("at\n" + "".join(f"{time}\n" for time in times))
    p, out = bl.Pipeline("logs"), bl.Memory()
    source = bl.CSV(
        tmp_path / "*.csv", schema={"at": int}, max_files_per_trigger=1, include_file_paths="file"
    )
    strategy = bl.TimeOrderedLogs(bl.source_file())
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=strategy)
    rows.group_by("file").aggregate(n=bl.count(), last=bl.max("at")).named("counts").write("out", out)
    run = p.run(runner)
    assert sorted(out.frame().select("file", "n").rows()) == [
        (str(tmp_path / f"{name}.csv"), len(times)) for name, times in logs.items()
    ]
    moved = [batch.sources["rows"].watermark for batch in run.batches]
    assert moved[:3] == [MIN_TIME, MIN_TIME, 290_000_000]


def test_only_files_can_be_split_by_file() -> None:
    p = bl.Pipeline("rows")
    strategy = bl.BoundedOutOfOrderness("1s", per_split=bl.source_file())
    with pytest.raises(PlanError, match=r"per_split=source_file\(\)\): Rows has no files; name the column"):
        p.read("rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=strategy)
    with pytest.raises(ValueError, match="include_file_paths='at': the files have a column of that name"):
        bl.CSV("x", schema={"at": int}, include_file_paths="at").schema()


class Feed:
    """A user-defined source that reports in each batch how far it is complete."""

    bounded = True
    watermark = bl.Punctuated(~bl.col("complete_to").is_null(), "complete_to")

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Datetime("us"), "complete_to": pl.Datetime("us")})

    def for_event_time(self, column: str) -> Feed:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        for times in ([(50, 40), (60, 40)], [(45, 58)]):
            seconds = pl.DataFrame(times, schema=["at", "complete_to"], orient="row")
            yield seconds.select(pl.from_epoch(pl.all(), time_unit="s").cast(pl.Datetime("us"))).lazy()


def test_a_source_of_a_users_announces_its_own_watermark() -> None:
    p = bl.Pipeline("feed")
    p.read("feed", Feed(), timestamp="at").write("out", bl.Memory())
    moved = [batch.sources["feed"].watermark for batch in p.run().batches]
    assert moved == [40_000_000, 58_000_000, MAX_TIME]

    source = Feed()
    source.watermark = "5s"  # type: ignore[assignment]
    why = r"step 'late': the attribute watermark of Feed must be a strategy such as bl.*\('5s'\), not '5s'"
    with pytest.raises(PlanError, match=why):
        p.read("late", source, timestamp="at")
