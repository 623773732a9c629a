"""Dead letters of steps: exactly the rows that a step cannot use, with step, reason and row, on all code paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import StepError
from beamlike.rows.event_time import DEAD_LETTERS
from tests.support.pipelines import frame, plays
from windowing.columns import EVENT_TIME

SECOND = 1_000_000
scores = st.lists(st.integers(0, 40), max_size=30)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tried(collection: bl.Collection, rows: pl.DataFrame) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Returns the rows after the step that made the collection, and its dead letters."""
    attempt = collection.node.origin.attempt(rows.lazy())
    after, letters = attempt.rows, attempt.dead_letters
    if letters is None:
        return after.collect(), []
    assert letters.schema == DEAD_LETTERS
    assert len(letters)
    return after.collect(), letters.to_dicts()


def numbers(letters: list[dict[str, Any]]) -> list[int]:
    """Returns the ticks of the rows of dead letters: their numbers."""
    return [json.loads(letter["row"])["tick"] for letter in letters]


# Functions of the user's, row by row


def risky(score: int) -> Any:
    """Returns a result for a score, as a user's function; many do not fit a column of whole numbers."""
    wrong = {1: None, 2: {}, 3: {"m": 1}, 4: {"n": "1"}, 5: {"n": 1, "m": 2}, 6: {"n": 2**70}, 7: [{"n": 1}]}
    if score == 8:
        raise StopIteration
    if score == 9:
        raise ValueError
    return wrong.get(score, {"n": score})


@given(scores)
@example([8] * 3)
@example([0, 9, 8, 9, 0])
def test_map_sets_aside_exactly_the_rows_that_it_cannot_use_and_calls_once_for_each(given: list[int]) -> None:
    called = []

    def fn(row: dict[str, Any]) -> Any:
        called.append(row["score"])
        return risky(row["score"])

    after, letters = tried(plays().map(fn, {"n": int}), frame(*given))
    bad = [number for number, score in enumerate(given) if 1 <= score <= 9]
    assert numbers(letters) == bad
    assert after["n"].to_list() == [score for score in given if not 1 <= score <= 9]
    kept = [SECOND * number for number in range(len(given)) if number not in bad]
    assert after[EVENT_TIME].to_list() == kept
    assert called == given


@given(scores)
def test_flat_map_sets_a_row_aside_with_all_that_it_gave(given: list[int]) -> None:
    def fn(row: dict[str, Any]) -> Iterator[Any]:
        yield {"n": -1}
        yield risky(row["score"])

    after, letters = tried(plays().flat_map(fn, {"n": int}), frame(*given))
    bad = [number for number, score in enumerate(given) if 1 <= score <= 9]
    assert numbers(letters) == bad
    good = [score for score in given if not 1 <= score <= 9]
    assert after["n"].to_list() == [value for score in good for value in (-1, score)]
    kept = [SECOND * number for number in range(len(given)) if number not in bad for _ in range(2)]
    assert after[EVENT_TIME].to_list() == kept


@pytest.mark.parametrize(
    ("score", "why"),
    [
        (1, "expected a dict with the keys n, got None"),
        (3, "expected a dict with the keys n; the key 'n' is missing; did you mean 'm'"),
        (4, "column 'n' was declared Int64: "),
        (8, "RuntimeError: the function raised StopIteration"),
        (9, "ValueError"),
    ],
)
def test_a_dead_letter_says_step_reason_and_row(score: int, why: str) -> None:
    mapped = plays().map(lambda row: risky(row["score"]), {"n": int}, name="risky")
    _, (letter,) = tried(mapped, frame(0, score, 0))
    assert letter["step"] == "risky"
    assert letter["error"].startswith(why.partition("; did")[0])
    row = json.loads(letter["row"])
    assert (row["score"], row["at"]) == (score, "1970-01-01T00:00:01.000000Z")
    assert set(row) == set(plays().schema)


def test_a_long_reason_is_cut() -> None:
    def fn(row: dict[str, Any]) -> Any:
        raise ValueError("x" * 10_000_000)

    _, (letter,) = tried(plays().map(fn), frame(1))
    assert len(letter["error"]) == 1000


def test_that_memory_is_at_its_end_is_no_fault_of_the_row() -> None:
    def fn(row: dict[str, Any]) -> Any:
        raise MemoryError

    for rows in (plays().map(fn), plays().map_batches(fn, {"n": int})):
        with pytest.raises(MemoryError):
            tried(rows, frame(1))


def test_of_a_batch_that_fails_all_rows_are_set_aside() -> None:
    def fn(table: pl.DataFrame) -> pl.DataFrame:
        if 9 in table["score"].to_list():
            raise ValueError("nine")
        return table.select(["score"])

    mapped = plays().map_batches(fn)
    assert tried(mapped, frame(1, 2))[1] == []
    after, letters = tried(mapped, frame(1, 9, 2))
    assert after.is_empty()
    assert after.schema == tried(mapped, frame(1))[0].schema
    assert numbers(letters) == [0, 1, 2]
    why = "ValueError: nine; the batch of 3 rows in which this row was failed as a whole"
    assert {letter["error"] for letter in letters} == {why}


# Expressions, and times


@given(st.lists(st.sampled_from(["1", "20", "-3", "x", "", "1.5", None]), max_size=40))
def test_an_expression_that_fails_sets_aside_exactly_the_rows_for_which_it_does(texts: list[Any]) -> None:
    parsed = plays().with_columns(n=bl.col("user").cast(nw.Int64))
    after, letters = tried(parsed, frame(*range(len(texts)), user=pl.Series(texts, dtype=pl.String)))
    bad = [number for number, text in enumerate(texts) if text in ("x", "", "1.5")]
    assert numbers(letters) == bad
    assert after["tick"].to_list() == [number for number in range(len(texts)) if number not in bad]
    assert {letter["step"] for letter in letters} <= {"plays.with_columns"}
    assert all("conversion from `str` to `i64` failed" in letter["error"] for letter in letters)


def test_what_fails_without_rows_is_no_fault_of_theirs() -> None:
    step = plays().with_columns(n=bl.col("user")).node.origin
    with pytest.raises(
        StepError, match=r"step 'plays.with_columns': with_columns fails: ColumnNotFoundError"
    ):
        step.attempt(frame(1, 2).drop("user").lazy())


@given(st.lists(st.sampled_from([None, 2**62, -(2**62), 0, 1, 2, 5]), max_size=12))
def test_a_time_that_cannot_be_set_is_set_aside(ticks: list[int | None]) -> None:
    moved = plays().with_timestamps("tick", timestamp_unit="s", allowed_skew="2s")
    column = pl.Series("tick", ticks, dtype=pl.Int64)
    after, letters = tried(moved, frame(*range(len(ticks)), tick=column))
    good = [
        (number, tick)
        for number, tick in enumerate(ticks)
        if tick is not None and abs(tick) < 2**60 and number - tick <= 2
    ]
    assert after.select("score", "tick").rows() == good
    assert after[EVENT_TIME].to_list() == [tick * SECOND for _, tick in good]
    assert len(letters) == len(ticks) - len(good)
