"""Bad input from the reader to the limit of a run: faulty pieces, times in the future, too many dead letters."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import attrs
import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import StepError, TooManyDeadLetters
from beamlike.io.base import Faulty
from beamlike.records.model import BatchRecord, SourceRecord
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.ingested import Chunk
from tests.support.histories import goes_on

SECOND = 1_000_000
HOUR = 3600 * SECOND
NOW = 1_767_268_800_000_000  # 2026-01-01T12:00:00Z


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@attrs.frozen(eq=False)
class Given:
    """A source with these chunks."""

    given: tuple[Chunk, ...]
    columns: dict[str, Any] = attrs.field(factory=lambda: {"n": pl.Int64(), "text": pl.String()})
    bounded: bool = True

    def schema(self) -> pl.Schema:
        return pl.Schema(self.columns)

    def for_event_time(self, column: str) -> Self:
        return self

    def chunks(self, rows: int) -> Iterator[Chunk]:
        return iter(self.given)


def rows(*numbers: int, text: str = "1") -> pl.LazyFrame:
    return pl.LazyFrame(
        {"n": numbers, "text": [text] * len(numbers)}, schema={"n": pl.Int64, "text": pl.String}
    )


def faulty(*texts: str) -> Faulty:
    return Faulty(pl.DataFrame({"error": [f"no JSON: {text}" for text in texts], "row": texts}))


def source(p: bl.Pipeline, *chunks: Chunk) -> bl.Collection:
    strategy = bl.MonotonousTimestamps()
    return p.read("rows", Given(chunks), timestamp="n", timestamp_unit="s", watermark=strategy)


def run(p: bl.Pipeline, now: int = 100 * SECOND) -> Any:
    return p.run(bl.LocalRunner(clock=lambda: now))


# Faults that readers find


def test_what_a_reader_cannot_read_are_letters_of_its_source() -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    read = source(p, faulty("{", "}"), rows(1, 2), faulty("["))
    read.write("out", out)
    read.dead_letters().write("lost", lost)
    done = run(p)
    assert out.frame()["n"].to_list() == [1, 2]
    assert [(row["step"], row["error"], row["row"]) for row in lost.rows()] == [
        ("rows", f"no JSON: {text}", text) for text in "{}["
    ]
    counts = [
        (s.read, s.elements, s.dead_letters, s.filtered)
        for s in (batch.sources["rows"] for batch in done.batches)
    ]
    assert counts == [(2, 0, 2, 0), (2, 2, 0, 0), (1, 0, 1, 0), (0, 0, 0, 0)]


def test_that_a_reader_cannot_read_fails_a_run_that_is_to_fail() -> None:
    p = bl.Pipeline("p", on_error="fail")
    source(p, rows(1), faulty("{")).write("out", bl.Memory())
    with pytest.raises(StepError, match=r"step 'rows': no JSON: \{; the row is \{"):
        run(p)


def damaged(folder: Path, *, rows: int = 4000) -> None:
    """Writes three Parquet files, of which the second has damaged pages of one column."""
    folder.mkdir()
    for number in range(3):
        columns = {"n": range(number * rows, (number + 1) * rows), "other": range(rows), "text": ["1"] * rows}
        pl.DataFrame(columns).write_parquet(
            folder / f"{number}.parquet", compression="uncompressed", use_pyarrow=True,
            pyarrow_options={"use_dictionary": False, "data_page_version": "1.0"},
        )  # fmt: skip
    data = bytearray((folder / "1.parquet").read_bytes())
    pages = int(rows * 0.9) * 8
    data[4:pages] = b"\xff" * (pages - 4)
    (folder / "1.parquet").write_bytes(data)


def test_of_a_file_with_damaged_pages_the_others_are_read_and_one_letter_says_what_is_lost(
    tmp_path: Path,
) -> None:
    damaged(tmp_path / "rows")
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    read = p.read(
        "rows", bl.Parquet("rows"), timestamp="n", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    read.map(lambda row: {"n": row["n"]}, {"n": int}).write("out", out)
    read.dead_letters().write("lost", lost)
    done = run(p, 10**6 * SECOND)
    assert sorted(out.frame()["n"]) == [*range(4000), *range(8000, 12000)]
    (letter,) = lost.rows()
    assert re.search(r"1.parquet': the rows 0 to 3999 are lost, as they cannot be read: ", letter["error"])
    assert sum(batch.sources["rows"].dead_letters for batch in done.batches) == 1


def test_a_fault_of_a_reader_is_told_from_a_fault_of_an_expression() -> None:
    def broken(columns: Any, predicate: Any, count: Any, size: Any) -> Iterator[pl.DataFrame]:
        raise pl.exceptions.ComputeError("bad page")
        yield

    lazy = pl.io.plugins.register_io_source(broken, schema=rows().collect_schema())
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    read = source(p, lazy, rows(5, text="x"), rows(6))
    cast = read.select(value=bl.col("text").cast(nw.Int64), n="n").named("cast")
    cast.write("out", out)
    bl.flatten(read.dead_letters(), cast.dead_letters()).write("lost", lost)
    run(p)
    assert out.frame()["n"].to_list() == [6]
    unread, uncast = lost.rows()
    assert unread["step"] == "rows"
    assert unread["error"] == "a piece of the input cannot be read and is lost: ComputeError: bad page"
    assert (uncast["step"], uncast["row"]) == ("cast", '{"n":5,"text":"x"}')


def test_storage_that_fails_is_no_dead_letter() -> None:
    def gone(columns: Any, predicate: Any, count: Any, size: Any) -> Iterator[pl.DataFrame]:
        raise PermissionError("not yours")
        yield

    lazy = pl.io.plugins.register_io_source(gone, schema=rows().collect_schema())
    p = bl.Pipeline("p")
    source(p, lazy).write("out", bl.Memory())
    with pytest.raises(PermissionError, match="not yours"):
        run(p)


texts = st.lists(st.sampled_from(["1", "x", "2"]), max_size=8)


@given(st.lists(st.one_of(texts, st.lists(st.just("{"), min_size=1, max_size=3).map(tuple)), max_size=5))
def test_every_row_that_was_read_is_an_element_a_letter_or_left_out(given: list[Any]) -> None:
    chunks = [
        faulty(*chunk)
        if isinstance(chunk, tuple)
        else pl.LazyFrame({"n": range(len(chunk)), "text": chunk}, schema={"n": pl.Int64, "text": pl.String})
        for chunk in given
    ]
    p = bl.Pipeline("p")
    read = p.read("raw", Given(tuple(chunks))).filter(bl.col("text") != "2")
    parsed = read.map(lambda row: {"at": int(row["text"])}, {"at": int}, name="parse")
    timed = parsed.with_watermark(bl.MonotonousTimestamps(), "at", "s", name="timed")
    timed.write("out", bl.Memory())
    plan = p.plan().sources["timed"]
    for chunk, texts in zip(chunks, given, strict=True):
        got = ingest(plan, chunk, 0)
        lost = len(texts) if isinstance(texts, tuple) else texts.count("x")
        assert (got.read, got.lost.total, got.elements) == (len(texts), lost, texts.count("1"))


# Times in the future


def timed(p: bl.Pipeline, times: Any, **options: Any) -> bl.Collection:
    strategy = bl.MonotonousTimestamps()
    return p.read(
        "rows", bl.Rows([{"at": time} for time in times]), timestamp="at", watermark=strategy, **options
    )


FUTURE = [
    ("2026-01-01T12:30:00Z", None),
    ("2026-01-01T13:00:00Z", None),
    ("2026-01-01T13:00:00.000001Z", "2026-01-01T13:00:00.000001Z"),
    ("2999-12-31", "2999-12-31T00:00:00.000000Z"),
]


@pytest.mark.parametrize("type_of", [str, datetime.fromisoformat], ids=["text", "datetimes"])
def test_a_time_too_far_in_the_future_is_a_letter_that_says_both_times(type_of: Any) -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    given = [type_of(time) for time, _ in FUTURE]
    if type_of is not str:
        given = [time.replace(tzinfo=UTC) for time in given]
    read = timed(p, given, max_future="1h")
    read.write("out", out)
    read.dead_letters().write("lost", lost)
    run(p, NOW)
    assert len(out.frame()) == 2
    assert [row["error"] for row in lost.rows()] == [
        f"event time column 'at' is in the future: {shown} is more than max_future=1h after processing time, "
        "2026-01-01T12:00:00Z"
        for _, shown in FUTURE
        if shown
    ]


@given(st.lists(st.integers(-3 * HOUR, 30 * HOUR), max_size=10), st.integers(0, 26))
def test_the_bound_is_after_processing_time_of_the_batch(after: list[int], hours: int) -> None:
    p = bl.Pipeline("p")
    times = pl.DataFrame({"at": [NOW + time for time in after]}, schema={"at": pl.Int64})
    read = p.read(
        "rows", bl.Rows(times), timestamp="at", timestamp_unit="us",
        watermark=bl.MonotonousTimestamps(), max_future=f"{hours}h",
    )  # fmt: skip
    read.write("out", bl.Memory())
    got = ingest(p.plan().sources["rows"], times.lazy(), NOW)
    assert got.elements == sum(time <= hours * HOUR for time in after)
    assert got.elements + got.lost.total == got.read == len(after)


@pytest.mark.parametrize(
    ("options", "elements"), [({}, 1), ({"max_future": None}, 2), ({"max_future": "2d"}, 2)]
)
def test_it_is_a_day_unless_another_one_is_given(options: dict[str, Any], elements: int) -> None:
    p = bl.Pipeline("p")
    timed(p, ["2026-01-02T12:00:00Z", "2026-01-02T12:00:01Z"], **options).write("out", bl.Memory())
    assert run(p, NOW).batches[0].sources["rows"].elements == elements


def test_one_bad_clock_does_not_make_the_others_late() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    times = ["2026-01-01T11:00:00Z", "2070-01-01", "2026-01-01T11:00:30Z", "2026-01-01T11:00:40Z"]
    read = p.read(
        "rows", bl.Rows([{"at": at} for at in times], rows_per_batch=1), timestamp="at",
        watermark=bl.MonotonousTimestamps(),
    )  # fmt: skip
    read.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).write("out", out)
    run(p, NOW)
    assert out.frame()["n"].to_list() == [3]


def test_a_time_that_a_step_has_moved_there_does_not_reach_the_watermark() -> None:
    p, out = bl.Pipeline("p"), bl.Memory()
    given = [{"at": 1, "then": 2}, {"at": 2, "then": 200_000}]
    read = p.read(
        "rows", bl.Rows(given), timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps()
    )
    moved = read.with_timestamps("then", timestamp_unit="s").with_watermark(
        bl.MonotonousTimestamps(), name="moved"
    )
    moved.write("out", out)
    done = run(p, 0)
    assert out.frame()["then"].to_list() == [2]
    assert done.batches[0].sources["moved"].watermark < 3 * SECOND
    assert (
        done.batches[0].errors["moved"].startswith("event time is in the future: 1970-01-03T07:33:20.000000Z")
    )


def test_of_test_streams_and_processing_time_any_time_is_good() -> None:
    stream = bl.TestStream({"at": datetime}).add_elements([{"at": datetime(2999, 1, 1, tzinfo=UTC)}])
    p = bl.Pipeline("p")
    p.read("rows", stream, timestamp="at").write("out", bl.Memory())
    assert p.run().batches[0].sources["rows"].elements == 1
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows([{"n": 1}]), watermark=bl.IngressTimestamps()).write("out", bl.Memory())
    assert run(p, NOW).batches[0].sources["rows"].elements == 1


# How many are too many


def parsed(p: bl.Pipeline, *chunks: list[str]) -> bl.Collection:
    read = source(p, *(pl.LazyFrame({"n": range(len(chunk)), "text": chunk}) for chunk in chunks))
    return read.map(lambda row: {"value": int(row["text"])}, {"value": int}, name="parse")


@pytest.mark.parametrize(
    ("limit", "batches"),
    # A share of so few rows is judged at the end.
    [(None, 4), (3, 4), (2, 3), (1, 2), (0, 1), (0.0, 4), (0.34, 4), (0.3, 4), (0.32, 4), (0.3334, 4)],
)
def test_a_run_fails_when_there_are_more_of_them_than_it_may_have(limit: Any, batches: int) -> None:
    p = bl.Pipeline("p", max_dead_letters=limit)
    parsed(p, ["1", "2", "x"], ["1", "2", "y"], ["1", "2", "z"]).write("out", bl.Memory())
    seen: list[BatchRecord] = []
    enough = limit in (None, 3, 0.34, 0.3334)
    fails = contextlib.nullcontext() if enough else pytest.raises(TooManyDeadLetters, match="'parse'")
    with fails:
        p.run(bl.LocalRunner(on_batch=seen.append, clock=lambda: 100 * SECOND))
    assert len(seen) == batches


@pytest.mark.parametrize(("bad", "batches"), [(110, 2), (115, 1)])
def test_a_share_is_judged_when_a_thousand_rows_have_been_read(bad: int, batches: int) -> None:
    p = bl.Pipeline("p", max_dead_letters=0.1)
    parsed(p, ["x"] * bad + ["1"] * (1_120 - bad), ["1"] * 10).write("out", bl.Memory())
    seen: list[BatchRecord] = []
    fails = contextlib.nullcontext() if bad == 110 else pytest.raises(TooManyDeadLetters)
    with fails:
        p.run(bl.LocalRunner(on_batch=seen.append, clock=lambda: 100 * SECOND))
    assert len(seen) == batches + (bad == 110)


def test_the_error_says_step_counts_and_the_last_reason_and_the_letters_are_there() -> None:
    p, lost = bl.Pipeline("p", max_dead_letters=2), bl.Memory()
    read = parsed(p, ["1", "x", "2"], ["y", "z"])
    read.write("out", bl.Memory())
    read.dead_letters().write("lost", lost)
    with pytest.raises(bl.RunError) as caught:
        run(p)
    assert str(caught.value) == (
        "step 'parse': 3 rows of 5 are dead letters, more than max_dead_letters=2 allows ('parse' 3); the last one of "
        "this step: ValueError: invalid literal for int() with base 10: 'z'"
    )
    assert [json.loads(row["row"])["text"] for row in lost.rows()] == ["x", "y", "z"]


def record(number: int, elements: int, dead: int, parse: int) -> BatchRecord:
    errors = {"rows": "why"} if dead else {}
    errors |= {"parse": "why not"} if parse else {}
    sources = {"rows": SourceRecord(0, elements, dead)}
    return BatchRecord(
        number,
        0,
        sources,
        {},
        finished=None,
        sinks={},
        dead_letters={"parse": parse} if parse else {},
        errors=errors,
    )


def test_a_batch_that_is_run_again_counts_once() -> None:
    tally = goes_on(5, [record(0, 10, 1, 1), record(1, 10, 0, 3)])
    tally.take(record(1, 10, 0, 3))
    assert (tally.total.rows, sum(tally.total.letters.values())) == (21, 5)
    with pytest.raises(TooManyDeadLetters, match=r"6 rows of 25 .*\('parse' 5, 'rows' 1\)"):
        tally.take(record(2, 4, 0, 1))


def test_a_batch_without_dead_letters_is_not_at_fault() -> None:
    tally = goes_on(0, [record(0, 10, 1, 1)])
    tally.take(record(1, 10, 0, 0))
    with pytest.raises(TooManyDeadLetters):
        tally.take(record(2, 10, 1, 0))


def test_those_of_a_step_before_the_watermark_are_told_as_the_sources_which_counts_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    p = bl.Pipeline("p")
    read = p.read("raw", bl.Rows([{"text": "1"}, {"text": "x"}]))
    parsed = read.map(lambda row: {"at": int(row["text"])}, {"at": int}, name="parse")
    timed = parsed.with_watermark(bl.MonotonousTimestamps(), "at", "s", name="timed")
    timed.write("out", bl.Memory())
    with caplog.at_level(logging.WARNING, "beamlike"):
        done = run(p)
    (message,) = (entry.getMessage() for entry in caplog.records)
    assert message.startswith(
        "step 'timed' could not use 1 row in batch 0, the last one for this reason: in step 'parse': "
    )
    assert done.batches[0].errors.keys() == {"timed", "parse"}


def test_the_first_dead_letters_of_a_step_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    p = bl.Pipeline("p")
    parsed(p, ["1"], ["x"], ["y"]).write("out", bl.Memory())
    with caplog.at_level(logging.WARNING, "beamlike"):
        run(p)
    (message,) = (entry.getMessage() for entry in caplog.records)
    assert message.startswith(
        "step 'parse' could not use 1 row in batch 1, the last one for this reason: ValueError"
    )
