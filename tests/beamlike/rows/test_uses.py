"""A step that can use no row at all fails the run, except if it has a limit of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.records.model import BatchRecord, SourceRecord
from beamlike.rows.dead_letters import DeadLetterCounts
from beamlike.rows.uses import StepUsage, UnusedRows
from tests.support.histories import goes_on
from tests.support.shards import Query

FAILS = pytest.raises(bl.TooManyDeadLetters)
PASSES = contextlib.nullcontext()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def texts(p: bl.Pipeline, given: Sequence[str], rows_per_batch: int | None = None) -> bl.Collection:
    rows = [{"at": at, "text": text} for at, text in enumerate(given)]
    source = bl.Rows(rows, schema={"at": int, "text": str}, rows_per_batch=rows_per_batch)
    return p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())


def parse(row: dict[str, Any]) -> dict[str, Any]:
    return {"value": int(row["text"])}


class Picky(bl.CombineFn):
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: str) -> int:
        return accumulator + int(element)

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


class Own(bl.CustomWindows):
    columns = ("text",)

    def assign_windows(self, time: int, row: dict[str, Any]) -> list[tuple[int, int]]:
        return [(time, time + int(row["text"]))]


class Parsed(bl.Process):
    def element(self, row: dict[str, Any]) -> Any:
        yield parse(row)


def parsed(rows: pl.DataFrame, state: pl.DataFrame, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    return rows.select("at", "event_time", value=pl.col("text").cast(pl.Int64)), state


def with_side(rows: bl.Collection) -> bl.Collection:
    """Returns rows that wait until the window of a side is over."""
    times = bl.MonotonousTimestamps()
    side = rows.pipeline.read(
        "side", bl.Rows([{"n": n} for n in range(4)]), timestamp="n", timestamp_unit="s", watermark=times
    )
    day = bl.FixedWindows("1d")
    known = {"known": bl.as_list(side.window_into(day))}
    return rows.window_into(day).map(lambda row, known: parse(row), {"value": int}, side=known, name="it")


KINDS: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "map": lambda rows: rows.map(parse, {"value": int}, name="it"),
    "flat_map": lambda rows: rows.flat_map(lambda row: [parse(row)] * 0, {"value": int}, name="it"),
    "cast": lambda rows: rows.select(value=bl.col("text").cast(nw.Int64)).named("it"),
    "cast before a filter": lambda rows: (
        rows.with_columns(value=bl.col("text").cast(nw.Int64)).named("it").filter(bl.col("value") > 0)
    ),
    "before the watermark": lambda rows: (
        rows.map(parse, {"value": int}, name="it").with_watermark(bl.MonotonousTimestamps())
    ),
    "grouping": lambda rows: (
        rows.window_into(bl.FixedWindows("1m"))
        .group_by("at", name="it")
        .aggregate(total=bl.combine(Picky(), "text", int))
    ),
    "process": lambda rows: rows.group_by("at", name="it").process(Parsed(), {"value": int}),
    "process by arrival": lambda rows: (
        rows.group_by("at", name="it").process(Parsed(), {"value": int}, order="arrival")
    ),
    "process in windows": lambda rows: (
        rows.window_into(bl.FixedWindows("1m")).group_by("at", name="it").process(Parsed(), {"value": int})
    ),
    "process_batches": lambda rows: (
        rows.group_by("at", name="it").process_batches(parsed, {"at": int, "value": int}, state={"n": int})
    ),
    "with a side": with_side,
    "windows": lambda rows: (
        rows.window_into(Own(), name="it").group_by("at").aggregate(n=bl.count())
    ),
}  # fmt: skip


def run(kind: str, given: Sequence[str], rows_per_batch: int | None = None, **options: Any) -> Any:
    p = bl.Pipeline("p", **options)
    KINDS[kind](texts(p, given, rows_per_batch)).write("out", bl.Memory())
    return p.run()


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_fails_on_every_row_fails_the_run_with_the_first_error(kind: str) -> None:
    with pytest.raises(bl.TooManyDeadLetters) as caught:
        run(kind, ["x", "y", "z"], 2)
    assert caught.value.step == "it"
    assert str(caught.value).startswith("step 'it': it could use none of its 3 rows; the first error: ")
    assert "'x'" in str(caught.value) or "`str` to `i64` failed" in str(caught.value)
    assert str(caught.value).endswith("set a limit for dead letters: bl.Pipeline(..., max_dead_letters=...)")


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_that_it_can_use_is_enough_whatever_the_batch(kind: str) -> None:
    for texts in (["1", "x", "y"], ["x", "y", "1"]):
        for rows_per_batch in (1, 2, 3):
            run(kind, texts, rows_per_batch)


def cast(rows: bl.Collection) -> bl.Collection:
    return rows.with_columns(value=bl.col("text").cast(nw.Int64)).named("it")


def gone(rows: bl.Collection) -> bl.Collection:
    """Filters out all rows of these tests."""
    return rows.filter(bl.col("value") > 1)


FILTERED: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    "at once": lambda rows: gone(cast(rows)),
    "in the filter itself": lambda rows: rows.filter(bl.col("text").cast(nw.Int64) > 1).named("it"),
    "in what follows": lambda rows: gone(cast(rows)).with_columns(more=bl.col("value") + 1),
    "after a function": lambda rows: gone(cast(rows.map(lambda row: {"text": row["text"]}, {"text": str}))),
    "before the watermark": lambda rows: gone(cast(rows)).with_watermark(bl.MonotonousTimestamps()),
    "before the event time": lambda rows: gone(cast(rows)).with_watermark(
        bl.MonotonousTimestamps(), timestamp="at", timestamp_unit="s"
    ),
    "after a grouping": lambda rows: gone(
        cast(rows.window_into(bl.FixedWindows("1s")).group_by("text").aggregate(n=bl.count()))
    ),
}


@pytest.mark.parametrize("kind", FILTERED)
def test_a_filter_that_keeps_nothing_does_not_make_the_steps_before_it_unused(kind: str) -> None:
    for some in (["1", "x", "y"], ["x", "y", "1"]):
        for rows_per_batch in (1, 2, 3):
            p = bl.Pipeline("p")
            FILTERED[kind](texts(p, some, rows_per_batch)).write("out", bl.Memory())
            p.run()
    p = bl.Pipeline("p")
    FILTERED[kind](texts(p, ["x", "y", "z"])).write("out", bl.Memory())
    with pytest.raises(bl.TooManyDeadLetters, match="step 'it': it could use none of its 3 rows"):
        p.run()


def test_so_it_is_where_a_sink_takes_the_dead_letters() -> None:
    p = bl.Pipeline("p")
    it = cast(texts(p, ["1", "x", "y"], 1))
    it.dead_letters().write("lost", bl.Memory())
    gone(it).write("out", bl.Memory())
    p.run()


def test_a_single_bad_row_and_a_limit_that_was_given_do_not_fail_it() -> None:
    run("map", ["x"])
    run("map", ["x", "y", "z"], max_dead_letters=3)
    with pytest.raises(bl.TooManyDeadLetters, match="more than max_dead_letters=2 allows"):
        run("map", ["x", "y", "z"], max_dead_letters=2)


@pytest.mark.parametrize(
    ("first", "batches"), [("x", 3), ("1", 4)], ids=["none of the first thousand", "the first"]
)
def test_it_is_judged_when_a_thousand_rows_have_come(first: str, batches: int) -> None:
    p, seen = bl.Pipeline("p"), list[BatchRecord]()
    given = [first, *["x"] * 1_199, "1"]
    texts(p, given, 400).map(parse, {"value": int}, name="it").write("out", bl.Memory())
    with FAILS if first == "x" else PASSES:
        p.run(bl.LocalRunner(on_batch=seen.append))
    assert len([record for record in seen if record.sources["rows"].read]) == batches


@pytest.mark.parametrize(
    ("line", "error"), [("no JSON", "not a JSON object"), ('{"at": "never"}', "'at' is not a time: 'never'")]
)
def test_a_source_all_of_whose_rows_are_bad_fails_the_run(line: str, error: str) -> None:
    Path("in").mkdir()
    Path("in/a.jsonl").write_text(f"{line}\n" * 3)
    p = bl.Pipeline("p")
    read = p.read(
        "lines", bl.JSONLines("in", {"at": str}), timestamp="at", watermark=bl.MonotonousTimestamps()
    )
    read.write("out", bl.Memory())
    with pytest.raises(
        bl.TooManyDeadLetters, match=f"step 'lines': it could use none of its 3 rows.*{error}"
    ):
        p.run()


@given(st.lists(st.sampled_from("1x"), max_size=6), st.integers(1, 6), st.sampled_from(sorted(KINDS)))
def test_bundles_do_not_matter_at_the_end(given: list[str], rows_per_batch: int, kind: str) -> None:
    with FAILS if len(given) > 1 and "1" not in given else PASSES:
        run(kind, given, rows_per_batch)


@given(
    st.lists(
        st.sampled_from(
            [
                StepUsage(["a"]),
                StepUsage((), {"a": UnusedRows(2, "x")}),
                StepUsage(["b"], {"a": UnusedRows(1, "y")}),
            ]
        )
    ),
    st.integers(0, 9),
)
def test_then_is_associative(uses: list[StepUsage], cut: int) -> None:
    def together(some: Sequence[StepUsage]) -> StepUsage:
        total = StepUsage()
        for one in some:
            total = total.then(one)
        return total

    assert together(uses[:cut]).then(together(uses[cut:])) == together(uses)


def record(number: int, uses: StepUsage) -> BatchRecord:
    errors = {step: unused.error for step, unused in uses.none.items()}
    letters = {step: unused.rows for step, unused in uses.none.items()}
    sources = {"rows": SourceRecord(0, 600)}
    return BatchRecord(number, 0, sources, {}, dead_letters=letters, errors=errors, uses=uses)


NONE = StepUsage((), {"it": UnusedRows(600, "why")})


def test_a_run_that_goes_on_knows_what_was_used_before_and_counts_a_batch_that_is_run_again_once() -> None:
    batches = [record(0, StepUsage()), record(1, NONE)]
    assert [BatchRecord.from_json(batch.to_json()) for batch in batches] == batches
    assert batches[0].then(batches[1]).uses == NONE
    goes_on(None, batches).take(record(1, NONE))
    with pytest.raises(bl.TooManyDeadLetters, match="none of its 1,200 rows; the first error: why"):
        goes_on(None, batches).take(record(2, NONE))
    tally = goes_on(None, [record(0, StepUsage(["it"])), record(1, NONE)])
    for number in range(2, 5):
        tally.take(record(number, NONE))
    tally.end()


def test_each_run_on_a_checkpoint_tells_of_its_first_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    tally = goes_on(3_000, [record(0, NONE)])
    caplog.clear()
    for number in range(1, 4):
        tally.take(record(number, NONE))
    (told,) = caplog.records
    assert told.getMessage().startswith("step 'it' could not use 600 rows in batch 1, ")


def test_shards_do_not_matter_for_which_steps_could_use_a_row() -> None:
    def known(shards: int) -> StepUsage:
        p = bl.Pipeline("p")
        rows = texts(p, ["x", "1", "y"]).window_into(bl.FixedWindows("1m"))
        counted = rows.group_by("text", name="counted").aggregate(n=bl.count())
        counted.map(lambda row: {"value": int(row["text"])}, {"value": int}, name="some").write(
            "a", bl.Memory()
        )
        counted.map(lambda row: {"value": 1 / 0}, {"value": float}, name="none").write("b", bl.Memory())
        batches = Query(p.plan(), shards).batches()
        notes = [told for batch in batches for _, told in batch.notes()]
        return DeadLetterCounts.of_all(told.dead_letters for told in notes).uses

    assert (
        known(1)
        == known(3)
        == StepUsage(["counted", "some"], {"none": UnusedRows(3, "ZeroDivisionError: division by zero")})
    )
