"""Destinations of dead letters: the sink that claims them, or the folder; before and after groupings."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import narwhals as nw
import pytest

import beamlike as bl
from beamlike.errors import StepError
from beamlike.rows.dead_letters import UNCLAIMED, DeadLetterCounts
from tests.support.pipelines import plays
from tests.support.shards import Query

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(p: bl.Pipeline, **options: Any) -> Any:
    return p.run(bl.LocalRunner(clock=lambda: 100 * SECOND, **options))


def read(p: bl.Pipeline, texts: list[Any], size: int | None = None, name: str = "rows") -> bl.Collection:
    """Returns a row a second, with a number `n` and a text."""
    rows = [{"n": n, "text": text, "at": n} for n, text in enumerate(texts)]
    source = bl.Rows(rows, {"n": int, "text": str, "at": int}, rows_per_batch=size)
    strategy = bl.MonotonousTimestamps()
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=strategy)


def parse(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], "value": int(row["text"])}


PARSED = {"n": int, "value": int}


def kept(run: Any) -> list[dict[str, Any]]:
    """Returns the dead letters that no sink claimed."""
    files = sorted(Path(run.dead_letters).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def named(sink: bl.Memory) -> list[tuple[str, Any]]:
    """Returns step and number of each dead letter in a sink."""
    return [(row["step"], json.loads(row["row"]).get("n")) for row in sink.rows()]


def test_a_collection_takes_those_of_its_step_and_the_folder_the_others() -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    parsed = read(p, ["1", "x", "2", "y"], 3).map(parse, PARSED, name="parse")
    parsed.map(lambda row: {"share": 1 / (row["value"] - 2)}, {"share": float}, name="divide").write(
        "out", out
    )
    parsed.dead_letters().select("step", "row").write("lost", lost)
    done = run(p)
    assert out.frame()["share"].to_list() == [-1.0]
    assert named(lost) == [("parse", 1), ("parse", 3)]
    assert [(letter["step"], letter["error"]) for letter in kept(done)] == [
        ("divide", "ZeroDivisionError: division by zero")
    ]
    assert [dict(batch.dead_letters) for batch in done.batches] == [
        {"parse": 1, "divide": 1},
        {"parse": 1},
        {},
    ]
    assert done.batches[1].errors == {"parse": "ValueError: invalid literal for int() with base 10: 'y'"}
    assert sum(batch.sources["rows"].elements for batch in done.batches) == 4


def test_of_a_step_that_nobody_reads_on_from_there_are_letters_too() -> None:
    p, lost, wrong = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    rows = read(p, ["1", "x", None, "2"])
    rows.map(parse, PARSED, name="parse").dead_letters().write("lost", lost)
    rows.with_columns(number=bl.col("text").cast(nw.Int64)).named("cast").dead_letters().write("wrong", wrong)
    done = run(p)
    assert named(lost) == [("parse", 1), ("parse", 2)]
    assert named(wrong) == [("cast", 1)]
    assert kept(done) == []


def test_the_row_is_there_whole_also_where_only_some_columns_are_needed() -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    cast = read(p, ["7", "x"]).select(number=bl.col("text").cast(nw.Int64))
    cast.write("out", out)
    cast.dead_letters().write("lost", lost)
    run(p)
    assert out.frame()["number"].to_list() == [7]
    assert [json.loads(row["row"]) for row in lost.rows()] == [{"n": 1, "text": "x", "at": 1}]


def test_on_every_way_to_a_step_its_letters_are_those_of_that_way() -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    one, two = read(p, ["1", "x"], name="one"), read(p, ["y", "z", "3"], name="two")
    both = bl.flatten(one, two.filter(bl.col("n") > 0), two.filter(bl.col("n") != 1))
    parsed = both.map(parse, PARSED, name="parse")
    parsed.write("out", out)
    parsed.dead_letters().write("lost", lost)
    done = run(p)
    assert sorted(out.frame()["value"]) == [1, 3, 3]
    assert sorted(named(lost)) == [("parse", 0), ("parse", 1), ("parse", 1)]
    assert done.batches[0].dead_letters == {"parse": 3}


def late_and_grouped() -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares steps that fail after a grouping and on its late rows, with and without a dead letter sink."""
    stream = bl.TestStream({"text": str, "at": int})
    given = [{"text": text, "at": at} for at, text in enumerate("x1y")]
    stream = stream.add_elements(given).advance_watermark_to(60)
    stream = stream.add_elements([{"text": "z", "at": 3}, {"text": "2", "at": 4}])
    p = bl.Pipeline("p", max_dead_letters=6)
    sinks = {name: bl.Memory() for name in ("out", "late", "lost", "kept")}
    rows = p.read("rows", stream, timestamp="at", timestamp_unit="s")
    counts = rows.window_into(bl.FixedWindows("1m")).group_by("text").aggregate(n=bl.count())
    parsed = counts.map(parse, PARSED, name="parse")
    parsed.window_into(bl.FixedWindows("2m")).aggregate(total=bl.sum("value")).write("out", sinks["out"])
    parsed.dead_letters().write("lost", sinks["lost"])
    late = counts.late().map(lambda row: {"value": int(row["text"])}, {"value": int}, name="parse late")
    late.write("late", sinks["late"])
    counts.map(lambda row: {"n": 1 // (row["n"] - 1)}, {"n": int}, name="unclaimed").write(
        "kept", sinks["kept"]
    )
    return p, sinks


def test_after_a_grouping_and_of_late_elements_there_are_letters_too() -> None:
    p, sinks = late_and_grouped()
    done = p.run()
    assert sinks["out"].frame()["total"].to_list() == [1]
    assert sinks["late"].frame()["value"].to_list() == [2]
    assert [json.loads(row["row"]) for row in sinks["lost"].rows()] == [
        {"text": "x", "n": 1},
        {"text": "y", "n": 1},
    ]
    assert [letter["step"] for letter in kept(done)] == ["unclaimed"] * 3 + ["parse late"]
    assert [dict(batch.dead_letters) for batch in done.batches if batch.dead_letters] == [
        {"parse": 2, "unclaimed": 3},
        {"parse late": 1},
    ]


@pytest.mark.parametrize("shards", [1, 3])
def test_between_operators_dead_letters_go_where_they_go_in_process(shards: int) -> None:
    batches = list(Query(late_and_grouped()[0].plan(), shards).batches())
    found = {
        target: Counter(
            letter for batch in batches for frame in batch.frames(target) for letter in frame["step"]
        )
        for target in ("lost", UNCLAIMED)
    }
    assert found == {"lost": {"parse": 2}, UNCLAIMED: {"unclaimed": 3, "parse late": 1}}
    notes = [told for batch in batches for _, told in batch.notes()]
    told = DeadLetterCounts.of_all(told.dead_letters for told in notes)
    assert told.counts == {"parse": 2, "unclaimed": 3, "parse late": 1}
    assert told.errors["unclaimed"] == "ZeroDivisionError: integer division or modulo by zero"


def test_what_a_step_cannot_use_of_dead_letters_goes_to_the_folder() -> None:
    p = bl.Pipeline("p")
    letters = read(p, ["x", "1", "y"]).map(parse, PARSED, name="parse").dead_letters()
    numbered = letters.map(lambda row: {"n": 1 // json.loads(row["row"])["n"]}, {"n": int}, name="number")
    out = bl.Memory()
    numbered.write("out", out)
    done = run(p)
    assert out.frame()["n"].to_list() == [0]
    assert [letter["step"] for letter in kept(done)] == ["number"]


def test_letters_of_several_steps_are_one_collection() -> None:
    p, lost = bl.Pipeline("p"), bl.Memory()
    rows = read(p, ["x", "0", None])
    parsed = rows.filter(~bl.col("text").is_null()).map(parse, PARSED, name="parse")
    halved = parsed.map(lambda row: {"n": 1 // row["value"]}, {"n": int}, name="divide")
    bl.flatten(rows.dead_letters(), parsed.dead_letters(), halved.dead_letters()).write("lost", lost)
    run(p)
    assert sorted(row["step"] for row in lost.rows()) == ["divide", "parse"]


def test_what_fails_before_the_watermark_are_letters_of_the_source() -> None:
    p, out, lost = bl.Pipeline("p"), bl.Memory(), bl.Memory()
    raw = p.read("raw", bl.Rows([{"line": line} for line in ("1", "x", "2", None)]))
    timed = (
        raw.filter(bl.col("line") != "2")
        .map(lambda row: {"at": int(row["line"])}, {"at": int}, name="parse")
        .with_watermark(bl.MonotonousTimestamps(), "at", "s", name="timed")
    )
    timed.write("out", out)
    timed.dead_letters().write("lost", lost)
    source = run(p).batches[0].sources["timed"]
    assert out.frame()["at"].to_list() == [1]
    assert [row["step"] for row in lost.rows()] == ["parse"]
    assert (source.read, source.elements, source.dead_letters, source.filtered) == (4, 1, 1, 2)


def test_explain_says_whose_dead_letters_a_way_carries() -> None:
    p = bl.Pipeline("p")
    rows = plays(p)
    mapped = rows.map(dict, name="parse")
    mapped.dead_letters().select("row").write("lost", bl.Memory())
    rows.dead_letters().write("unread", bl.Memory())
    text = p.explain()
    assert "dead letters of parse -> lost  ships row" in text
    assert "dead letters -> unread" in text


# The other choice: to fail


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (lambda rows: rows.map(parse, PARSED), ValueError, "invalid literal for int"),
        (
            lambda rows: rows.with_columns(x=bl.col("text").cast(nw.Int64)),
            StepError,
            r"step 'rows.with_columns': InvalidOperationError: conversion .*; the row is {\"n\":1,\"text\":\"x\",",
        ),
        (
            lambda rows: rows.with_timestamps("n", timestamp_unit="ns"),
            StepError,
            "step 'rows.with_timestamps': column 'n' is 1, which moves an element back",
        ),
        (
            lambda rows: rows.select("text").with_watermark(bl.MonotonousTimestamps(), "text", name="again"),
            StepError,
            r"step 'again': event time column 'text' is not a time: '1'; the row is {\"text\":\"1\"}",
        ),
    ],
)
def test_a_run_that_is_to_fail_fails_and_names_the_step(step: Any, kind: Any, message: str) -> None:
    p = bl.Pipeline("p", on_error="fail")
    step(read(p, ["1", "x", "2"])).write("out", bl.Memory())
    with pytest.raises(kind, match=message):
        run(p)


def test_a_watermark_strategy_that_fails_names_its_source() -> None:
    p = bl.Pipeline("p")
    marks = bl.Punctuated(bl.col("text").cast(nw.Int64) > 0, bl.lit(0).cast(nw.Datetime("us")))
    rows = read(p, ["1", "x"]).with_watermark(marks, name="marked")
    rows.write("out", bl.Memory())
    with pytest.raises(StepError, match=r"step 'marked': its watermark, Punctuated, fails: InvalidOperation"):
        run(p)


# Good input pays nothing


def test_a_run_without_dead_letters_says_so_in_its_records() -> None:
    p = bl.Pipeline("p")
    read(p, ["1", "2"]).map(parse, PARSED).write("out", bl.Memory())
    done = run(p)
    assert all(not batch.dead_letters and not batch.errors for batch in done.batches)
    assert not Path(done.dead_letters).exists()
