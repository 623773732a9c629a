"""The local runner: batches in order of arrival, fair to all sources, drained at the end; nothing is lost silently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.files.files import Files
from beamlike.records.model import BatchRecord
from tests.support.examples import share
from windowing.time import MAX_TIME, MIN_TIME

law = share(10)
SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


STILL = bl.LocalRunner(clock=lambda: 0)
"""A runner whose clock stands still, so that records of two runs are equal."""


def read(
    p: bl.Pipeline, name: str, seconds: list[Any], size: int | None = None, bound: str = "0s"
) -> bl.Collection:
    """Returns rows with a number `n` and these times."""
    rows = [{"n": n, "at": second} for n, second in enumerate(seconds)]
    source = bl.Rows(rows, schema={"n": int, "at": int}, rows_per_batch=size)
    strategy = bl.BoundedOutOfOrderness(bound)
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def run(
    build: Callable[[bl.Pipeline], bl.Collection], runner: bl.LocalRunner | None = None
) -> tuple[Any, bl.Memory]:
    p, sink = bl.Pipeline("p"), bl.Memory()
    build(p).write("out", sink)
    return p.run(runner), sink


# Batches


@law
@given(st.lists(st.integers(0, 100), max_size=12), st.integers(1, 5))
def test_rows_reach_a_sink_in_the_order_in_which_they_came(seconds: list[int], size: int) -> None:
    done, sink = run(lambda p: read(p, "source", seconds, size))
    assert sink.frame()["n"].to_list() == list(range(len(seconds)))
    assert [batch.sources["source"].elements for batch in done.batches] == [
        *(len(seconds[first : first + size]) for first in range(0, len(seconds), size)),
        0,  # that there is no more is known only when one has looked
    ]


def test_a_batch_takes_one_chunk_of_every_source_until_the_longest_ends() -> None:
    def build(p: bl.Pipeline) -> bl.Collection:
        return bl.flatten(read(p, "long", list(range(10)), 2), read(p, "short", list(range(100, 103)), 2))

    done, sink = run(build)
    taken = [(batch.sources["long"].elements, batch.sources["short"].elements) for batch in done.batches]
    assert taken == [(2, 2), (2, 1), (2, 0), (2, 0), (2, 0), (0, 0)]
    assert [batch.batch for batch in done.batches] == list(range(6))
    seen = sink.frame()["event_time"].dt.epoch("s").to_list()
    assert seen == [0, 1, 100, 101, 2, 3, 102, 4, 5, 6, 7, 8, 9]


def test_chunk_rows_is_how_much_a_batch_takes_where_the_source_does_not_say() -> None:
    done, _ = run(lambda p: read(p, "source", list(range(10))), bl.LocalRunner(chunk_rows=4))
    assert [batch.sources["source"].elements for batch in done.batches] == [4, 4, 2, 0]
    for wrong, error in ((0, ValueError), ("4", TypeError)):
        with pytest.raises(error, match="chunk_rows"):
            bl.LocalRunner(chunk_rows=wrong)  # type: ignore[arg-type]


def test_a_short_source_keeps_its_watermark_until_all_are_at_their_end() -> None:
    def build(p: bl.Pipeline) -> bl.Collection:
        both = bl.flatten(read(p, "long", list(range(0, 60, 10)), 1), read(p, "short", [5, 15], 1))
        return both.window_into(bl.FixedWindows("20s")).aggregate(n=bl.count())

    done, sink = run(build)
    short = [batch.sources["short"].watermark for batch in done.batches]
    assert short == [5 * SECOND, *[15 * SECOND] * 5, MAX_TIME]
    stage = [batch.stages["flatten.aggregate"] for batch in done.batches]
    assert [record.input for record in stage] == [0, 10 * SECOND, *[15 * SECOND] * 4, MAX_TIME]
    # No window ends before 15 s, so all are emitted at the end of input.
    assert [sum(record.panes.values()) for record in stage] == [0] * 6 + [3]
    assert sink.frame()["n"].to_list() == [4, 2, 2]


def test_at_the_end_every_window_is_closed_and_every_watermark_at_the_end_of_time() -> None:
    def build(p: bl.Pipeline) -> bl.Collection:
        sessions = read(p, "source", [0, 5, 100], 1).window_into(bl.Sessions("10s")).aggregate(n=bl.count())
        return sessions.window_into(bl.GlobalWindows()).aggregate(sessions=bl.count(), n=bl.sum("n"))

    done, sink = run(build)
    last = done.batches[-1]
    assert last.sources["source"].watermark == MAX_TIME
    for stage in last.stages.values():
        assert (stage.input, stage.output, stage.live) == (MAX_TIME, MAX_TIME, 0)
        assert stage.holder.startswith("nothing")
    assert sink.frame().select("sessions", "n").rows() == [(2, 3)]


def test_a_record_tells_of_every_batch_where_watermarks_stand_and_what_holds_them() -> None:
    seen: list[BatchRecord] = []

    def build(p: bl.Pipeline) -> bl.Collection:
        windowed = read(p, "source", [0, 30, 65, 10], 1, bound="10s").window_into(
            bl.FixedWindows("1m"), timestamp_combiner="earliest"
        )
        return windowed.aggregate(n=bl.count())

    done, _ = run(build, bl.LocalRunner(on_batch=seen.append))
    assert seen == done.batches
    stage = [batch.stages["source.aggregate"] for batch in seen]
    assert [record.input for record in stage] == [-10 * SECOND, 20 * SECOND, *[55 * SECOND] * 2, MAX_TIME]
    assert [record.output for record in stage] == [-10 * SECOND, *[0] * 3, MAX_TIME]
    assert stage[1].lag == 20 * SECOND
    assert stage[2].holder == "window [1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)"
    assert [record.elements for record in stage] == [1, 1, 1, 1, 0]
    assert [record.live for record in stage] == [1, 1, 2, 2, 0]
    assert stage[-1].panes == {"on_time": 2}


def test_late_elements_are_counted() -> None:
    def build(p: bl.Pipeline) -> bl.Collection:
        return read(p, "source", [100, 1, 2], 1).window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())

    done, sink = run(build)
    assert [dict(batch.stages["source.aggregate"].dropped) for batch in done.batches] == [
        {},
        {"late": 1},
        {"late": 1},
        {},
    ]
    assert sink.frame()["n"].to_list() == [1]


def test_a_run_begins_from_nothing() -> None:
    p, sink = bl.Pipeline("p"), bl.Memory()
    read(p, "source", [0, 1], 1).window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", sink)
    first, second = p.run(STILL), p.run(STILL)
    assert sink.frame()["n"].to_list() == [2]
    assert [batch.stages for batch in first.batches] == [batch.stages for batch in second.batches]


def test_a_source_without_rows_gives_columns_and_no_panes() -> None:
    windows = bl.FixedWindows("1m")
    done, sink = run(lambda p: read(p, "source", []).window_into(windows).aggregate(n=bl.count()))
    assert sink.frame().columns == [
        "window_start",
        "window_end",
        "n",
        "event_time",
        "pane_timing",
        "pane_index",
    ]
    assert sink.frame().is_empty()
    (batch,) = done.batches
    assert batch.stages["source.aggregate"].output == MAX_TIME
    assert batch.sources["source"].elements == 0


def test_a_spark_source_says_that_only_spark_reads_it() -> None:
    p = bl.Pipeline("p")
    source = bl.SparkSource(lambda spark: spark, schema={"at": datetime})
    p.read("source", source, timestamp="at", watermark=bl.MonotonousTimestamps()).write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match=r"step .source.: only Spark can read this source"):
        p.run()


# Sinks


def test_a_callback_gets_the_rows_of_each_batch_that_has_some() -> None:
    seen: list[tuple[list[int], int]] = []
    p = bl.Pipeline("p")
    sink = bl.Callback(lambda frame, batch: seen.append((frame["n"].to_list(), batch)))
    read(p, "source", [0, 70, 80, 130], 1).window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write(
        "out", sink
    )
    p.run()
    assert seen == [([1], 1), ([2], 3), ([1], 4)]


def test_an_error_in_a_callback_ends_the_run() -> None:
    p = bl.Pipeline("p")
    read(p, "source", [0]).write("out", bl.Callback(lambda frame, batch: 1 / 0))
    with pytest.raises(bl.SinkError, match=r"sink .out.: batch 0 could not be written .* ZeroDivisionError"):
        p.run()


def test_two_sinks_do_not_share_a_folder() -> None:
    p = bl.Pipeline("p")
    rows = read(p, "source", [0])
    rows.write("one", bl.Parquet("out")).write("two", bl.CSV("csv")).write("three", bl.Memory())
    with pytest.raises(
        bl.PlanError, match="step 'four': writes to 'out/', and so does 'one'; give it a folder"
    ):
        rows.write("four", bl.Parquet("out/"))


FORMATS = [bl.Parquet, bl.CSV, bl.JSONLines]
PLAYS = pl.DataFrame(
    {
        "user": ["ada", "bob", None, "ada", 'ü, "quoted"', "bob"],
        "score": [1, None, 3, 4, 5, -6],
        "at": [
            datetime(2026, 1, 1, 12, minute, second, 5, UTC)
            for minute, second in zip([0, 0, 1, 1, 3, 2], range(6), strict=True)
        ],
    }
)


def totals(p: bl.Pipeline, source: Any) -> bl.Collection:
    plays = p.read("plays", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("2m"))
    windowed = plays.window_into(bl.FixedWindows("2m")).group_by("user")
    return windowed.aggregate(total=bl.sum("score"), mean=bl.mean("score"), n=bl.count("score"))


@pytest.mark.parametrize("files", FORMATS)
def test_every_format_gives_the_same_as_rows_in_memory(files: type[Files], tmp_path: Path) -> None:
    _, expected = run(lambda p: totals(p, bl.Rows(PLAYS, rows_per_batch=2)))
    assert len(expected.frame()) == 5
    p = bl.Pipeline("copy")  # the input is written by the engine, too
    source = p.read(
        "rows", bl.Rows(PLAYS, rows_per_batch=2), timestamp="at", watermark=bl.MonotonousTimestamps()
    )
    source.write("files", files(tmp_path / "in"))
    p.run()
    _, found = run(lambda p: totals(p, files(tmp_path / "in", max_files_per_trigger=1)))
    assert found.rows() == expected.rows()


@pytest.mark.parametrize("files", FORMATS)
def test_what_is_written_to_files_is_what_memory_gets(files: type[Files], tmp_path: Path) -> None:
    p, memory = bl.Pipeline("p"), bl.Memory()
    result = totals(p, bl.Rows(PLAYS, rows_per_batch=2))
    result.write("memory", memory).write("files", files(tmp_path / "out"))
    p.run()
    schema = memory.frame().schema
    written = pl.concat(list(files(tmp_path / "out", schema=dict(schema)).chunks(100))).collect()
    assert written.rows() == memory.frame().rows()
    assert all(path.name.startswith("part-p-") for path in (tmp_path / "out").iterdir())


# Dead letters


def test_dead_letters_that_nobody_takes_are_kept_in_a_folder_and_counted() -> None:
    done, sink = run(lambda p: read(p, "source", [1, None, 2, None], 2))
    assert sink.frame()["n"].to_list() == [0, 2]
    assert [batch.sources["source"].dead_letters for batch in done.batches] == [1, 1, 0]
    assert [batch.sources["source"].elements for batch in done.batches] == [1, 1, 0]
    texts = [file.read_text() for file in sorted(Path(done.dead_letters).iterdir())]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert lines == [
        {
            "step": "source",
            "error": "event time column 'at' is null",
            "row": json.dumps({"n": n, "at": None}, separators=(",", ":")),
        }
        for n in (1, 3)
    ]


def test_without_dead_letters_there_is_no_folder_and_old_ones_are_forgotten() -> None:
    done, _ = run(lambda p: read(p, "source", [1]))
    assert not Path(done.dead_letters).exists()
    run(lambda p: read(p, "source", [None]))
    assert len(list(Path(done.dead_letters).iterdir())) == 1
    run(lambda p: read(p, "source", [1]))
    assert list(Path(done.dead_letters).iterdir()) == []


def test_dead_letters_that_a_collection_takes_are_in_no_folder() -> None:
    p, lost = bl.Pipeline("p"), bl.Memory()
    source = read(p, "source", [1, None])
    source.dead_letters().filter(bl.col("error").str.ends_with("null")).write("lost", lost)
    source.write("out", bl.Memory())
    done = p.run()
    assert lost.frame()["step"].to_list() == ["source"]
    assert not Path(done.dead_letters).exists()
    assert done.batches[0].sources["source"].dead_letters == 1


def test_before_anything_is_known_the_watermark_is_at_the_beginning_of_time() -> None:
    def build(p: bl.Pipeline) -> bl.Collection:
        known, unknown = read(p, "known", [50]), read(p, "unknown", [])
        return bl.flatten(known, unknown).window_into(bl.FixedWindows("1m")).aggregate(n=bl.count())

    done, _ = run(build)
    first = done.batches[0].stages["flatten.aggregate"]
    assert (first.input, first.output, first.holder) == (MIN_TIME, MIN_TIME, "unknown")


def test_a_source_that_cannot_be_read_does_not_cost_what_was_written(tmp_path: Path) -> None:
    def copy(rows: Any) -> None:
        p = bl.Pipeline("p")
        source = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
        source.write("out", bl.Parquet(tmp_path / "out"))
        p.run()

    copy(bl.Rows([{"at": 1}]))
    with pytest.raises(FileNotFoundError):
        copy(bl.Parquet(tmp_path / "nowhere", schema={"at": int}))
    assert len(pl.read_parquet(tmp_path / "out")) == 1


def test_an_element_after_a_global_window_is_in_the_last_window(tmp_path: Path) -> None:
    p, sink = bl.Pipeline("p"), bl.Memory()
    rows = p.read(
        "rows", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    per_week = rows.aggregate(n=bl.count()).window_into(bl.FixedWindows("7d")).aggregate(n=bl.sum("n"))
    per_week.write("out", sink)
    p.run()
    assert [row["n"] for row in sink.rows()] == [1]


def test_records_that_cannot_be_written_are_told_of_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows([{"at": 1}])).write("out", bl.Memory())
    with pytest.raises(bl.RunError, match=r"cannot write the records '.*/file/run\.jsonl': \[Errno \d+\]"):
        p.run(bl.LocalRunner(records=str(tmp_path / "file" / "run.jsonl")))


def test_none_is_no_chunk_and_does_not_end_a_source() -> None:
    class Gap:
        bounded = True

        def schema(self) -> pl.Schema:
            return pl.Schema({"n": pl.Int64()})

        def chunks(self, rows: int) -> Iterator[Any]:
            yield from (pl.LazyFrame({"n": [1]}), None, pl.LazyFrame({"n": [2]}))

    with pytest.raises(TypeError, match=r"Gap must return rows as .* of polars, not as NoneType"):
        bl.Pipeline("p").read("rows", Gap()).collect()
