"""`head` and `collect`: the result of a run on a part of the input, without side effects."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import MissingFiles, WrongType

MINUTES = bl.FixedWindows("60s")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(source: Any, **options: Any) -> bl.Collection:
    own = isinstance(source, bl.TestStream)
    watermark = None if own else bl.MonotonousTimestamps()
    return bl.Pipeline("p", **options).read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=watermark
    )


def rows(*times: int) -> list[dict[str, Any]]:
    return [{"user": "ab"[at % 2], "at": at} for at in times]


def counted(plays: bl.Collection) -> bl.Collection:
    return plays.window_into(MINUTES).group_by("user").aggregate(n=bl.count())


@given(st.lists(st.integers(0, 300), max_size=20), st.integers(1, 5))
def test_all_of_the_input_gives_what_a_run_gives(times: list[int], batch: int) -> None:
    out, source = bl.Memory(), bl.Rows(rows(*times), {"user": str, "at": int}, rows_per_batch=batch)
    counts = counted(read(source))
    counts.write("out", out)
    counts.pipeline.run()
    assert counts.collect().equals(out.frame())
    assert counts.head(2).equals(out.frame().head(2))


def test_test_streams_are_played_whole_also_what_they_drop() -> None:
    stream = bl.TestStream({"user": str, "at": int}).add_elements(rows(1, 2)).advance_watermark_to(60)
    counts = counted(read(stream.add_elements(rows(3, 64)).advance_watermark_to_infinity()))
    assert counts.collect(input_rows=1).select("user", "n").rows() == [("a", 1), ("b", 1), ("a", 1)]
    assert counts.late().head()["at"].to_list() == [3]


def test_the_log_says_what_was_not_seen_where_that_matters(caplog: pytest.LogCaptureFixture) -> None:
    plays = read(bl.Rows(rows(*range(100))))
    assert len(plays.head(3, input_rows=50)) == 3
    counts = counted(plays)
    assert counts.collect()["n"].sum() == 100
    assert not caplog.records
    assert counts.collect(input_rows=70)["n"].sum() == 70
    assert len(plays.head(60, input_rows=50)) == 50
    assert [record.getMessage() for record in caplog.records] == [
        f"{what} has seen only the first {count} rows of 'plays', as if there were no more; input_rows= says how many "
        "it sees"
        for what, count in (("collect of 'plays.aggregate'", 70), ("head of 'plays'", 50))
    ]


@attrs.define
class Endless:
    """A source without end; `given` counts its rows."""

    given: int = 0
    bounded: bool = False

    def schema(self) -> pl.Schema:
        return pl.Schema({"at": pl.Int64()})

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        while True:
            self.given += 100
            yield pl.LazyFrame({"at": range(self.given - 100, self.given)})


def test_no_more_of_a_source_is_read_than_needed() -> None:
    source = Endless()
    assert read(source).head(3)["at"].to_list() == [0, 1, 2]
    assert source.given <= 200
    assert len(read(Endless()).collect(input_rows=250)) == 250


def test_only_the_files_that_are_needed_are_opened() -> None:
    Path("in").mkdir()
    for number in range(4):
        Path(f"in/{number}.jsonl").write_text('{"at": 1}\n' * 10)
    opened: list[int] = []
    plays = read(bl.JSONLines("in", {"at": int}, max_files_per_trigger=1))
    seen = plays.map(lambda row: opened.append(1) or row, name="seen")
    assert len(seen.head(15)) == 15
    assert len(opened) == 20
    with pytest.raises(MissingFiles):
        read(bl.JSONLines("nowhere", {"at": int})).head()


def test_a_damaged_file_is_a_dead_letter_there_too() -> None:
    Path("in").mkdir()
    Path("in/0.parquet").write_bytes(b"PAR1 no parquet PAR1")
    pl.DataFrame({"at": [1]}).write_parquet("in/1.parquet")
    plays = read(bl.Parquet("in", {"at": int}))
    assert plays.collect()["at"].to_list() == [1]
    assert len(plays.dead_letters().head()) == 1


def test_the_pipeline_stays_as_it_is_and_nothing_is_written() -> None:
    Path("p-dead-letters").mkdir()
    Path("p-dead-letters/part-p-000000-000.jsonl").write_text("of an earlier run")
    plays = read(bl.Rows(rows(1, 2, 3)))
    bad = plays.map(lambda row: {"n": 1 // (row["at"] - 2)}, {"n": int}, name="bad")
    bad.write("out", bl.JSONLines("out"))
    lost = bad.dead_letters()
    pipeline = plays.pipeline
    before = pipeline.explain(), list(pipeline.writes), copy.copy(pipeline._names)
    assert bad.collect()["n"].to_list() == [-1, 1]
    assert lost.head()["step"].to_list() == ["bad"]
    assert (pipeline.explain(), pipeline.writes, pipeline._names) == before
    assert [path.name for path in Path().rglob("*") if path.is_file()] == ["part-p-000000-000.jsonl"]
    assert Path("p-dead-letters/part-p-000000-000.jsonl").read_text() == "of an earlier run"


def test_what_fails_a_run_fails_there_but_who_looks_at_dead_letters_sees_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = read(bl.Rows(rows(1, 2))).map(lambda row: {"n": row["m"]}, {"n": int}, name="bad")
    with (
        caplog.at_level(logging.WARNING, "beamlike"),
        pytest.raises(bl.TooManyDeadLetters, match="KeyError: 'm'"),
    ):
        bad.head()
    assert bad.dead_letters().collect()["error"].to_list() == ["KeyError: 'm'"] * 2
    strict = read(bl.Rows(rows(1, 2)), on_error="fail").map(
        lambda row: {"n": row["m"]}, {"n": int}, name="bad"
    )
    with pytest.raises(KeyError):
        strict.head()


def test_an_empty_result_has_its_columns() -> None:
    empty = counted(read(bl.Rows([], {"user": str, "at": int}))).collect()
    assert empty.columns == [
        "window_start",
        "window_end",
        "user",
        "n",
        "event_time",
        "pane_timing",
        "pane_index",
    ]
    assert read(bl.Rows(rows(1))).head(0).is_empty()


def test_counts_are_checked_and_what_only_spark_reads_is_refused() -> None:
    plays = read(bl.Rows(rows(1)))
    for wrong in (-1, 1.5, True):
        with pytest.raises(WrongType, match="head: n must be a whole number of at least 0"):
            plays.head(wrong)
    with pytest.raises(WrongType, match="collect: input_rows must be a whole number of at least 1, not 0"):
        plays.collect(input_rows=0)
    with pytest.raises(bl.PlanError, match="step 'plays': only Spark can read this source"):
        read(bl.SparkSource(lambda spark: spark.readStream, {"at": int})).head()
