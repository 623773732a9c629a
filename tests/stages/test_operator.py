"""A stage of an operator that is no grouping: its rows have their own deadlines and holds, and no windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.stage import Stage, StageResult
from stages.state.due_soon import BUFFER
from stages.state.store import DictStore
from tests.support.counting_store import CountingStore
from tests.support.hold_back import HoldBack
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SCHEMA = pl.Schema({"user": pl.String(), "number": pl.Int64(), "until": pl.Int64(), "by": pl.Int64()})
STAGE = Stage("held", HoldBack(("user",), SCHEMA))

Row = tuple[str, int, int, int | None]
"""User, event time, the watermark at which it goes on, and the processing time."""
Bundle = tuple[Sequence[Row], int, int]
"""Rows, and where watermark and processing time move."""


def arrivals(rows: Sequence[Row], first: int) -> pl.DataFrame:
    """Returns the rows, numbered from `first`."""
    numbered = [(user, first + n, until, by, at) for n, (user, at, until, by) in enumerate(rows)]
    return pl.DataFrame(numbered, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")


def played(
    bundles: Sequence[Bundle], store: DictStore, stage: Stage = STAGE, first: int = 0
) -> Iterator[StageResult]:
    """Runs step after step; rows are numbered from `first`."""
    for rows, watermark, processing_time in bundles:
        yield stage.step(store, {MAIN: arrivals(rows, first)}, Times.of(watermark, processing_time))
        first += len(rows)


def numbers(step: StageResult) -> list[int]:
    """Returns the numbers of the rows that a step emitted."""
    return sorted(step.panes["number"])


def test_a_row_goes_on_when_the_watermark_or_processing_time_reaches_its_deadline() -> None:
    rows = [("a", 1, 10, None), ("b", 2, 20, 5), ("c", 3, 20, None), ("a", 4, 4, None)]
    bundles = [(rows, 4, 0), ([], 9, 4), ([], 9, 5), ([], 10, 6), ([], MAX_TIME, 6)]
    steps = list(played(bundles, DictStore()))
    assert [numbers(step) for step in steps] == [[3], [], [1], [0], [2]]
    assert [step.live for step in steps] == [3, 3, 2, 1, 0]
    assert [(step.emitted, step.pending) for step in steps] == [(1, 3), (0, 3), (1, 2), (1, 1), (1, 0)]


def test_a_row_that_is_held_holds_the_output_watermark_at_its_time_unless_it_was_late() -> None:
    rows, late = [("a", 1, 10, None), ("b", 2, 20, 7)], [("c", 3, 12, None)]
    steps = list(played([(rows, 5, 0), (late, 10, 0), ([], 11, 6), ([], 11, 7)], DictStore()))
    assert [step.watermarks.output for step in steps] == [1, 2, 2, 11]
    assert [step.holder and attrs.astuple(step.holder)[:4] for step in steps] == [
        (1, "a", 1, 10),
        (2, "b", 2, 20),
        (2, "b", 2, 20),
        None,
    ]


@pytest.fixture(params=["as they are", "small"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes buckets divide soon, moves some rows close to being due, and makes nearly all arrivals wait."""
    if request.param == "small":
        monkeypatch.setattr("stages.state.working_set.SMALL_BYTES", -1)
        monkeypatch.setattr("stages.state.working_set._may_grow", lambda size: True)
        monkeypatch.setattr("stages.state.working_set.FROM_BYTES", 0)
        monkeypatch.setattr("stages.state.due_soon.SHARE", 2)
        monkeypatch.setattr("stages.state.buckets.SPLIT_BYTES", 300)


times = st.integers(0, 40)
rows = st.tuples(st.sampled_from("abcdefg"), times, times, st.none() | times)
streams = st.lists(st.tuples(st.lists(rows, max_size=8), times, times), max_size=8).map(
    lambda bundles: [
        (elements, max(mark for _, mark, _ in bundles[: n + 1]), max(now for *_, now in bundles[: n + 1]))
        for n, (elements, _, _) in enumerate(bundles)
    ]
)


def expected(bundles: Sequence[Bundle]) -> list[list[int]]:
    """Computes the result row by row."""
    given, held = [], list[tuple[int, Row]]()
    number = 0
    for elements, watermark, now in bundles:
        held += enumerate(elements, number)
        number += len(elements)
        due = [n for n, (*_, until, by) in held if until <= watermark or (by is not None and by <= now)]
        held = [one for one in held if one[0] not in due]
        given.append(due)
    return given


@given(stream=streams)
@pytest.mark.usefixtures("sizes")
def test_where_rows_lie_does_not_show(stream: list[Bundle]) -> None:
    assert [numbers(step) for step in played(stream, DictStore())] == expected(stream)


@given(stream=streams, cut=st.integers(0, 8))
@pytest.mark.usefixtures("sizes")
def test_what_is_saved_goes_on_in_another_store(stream: list[Bundle], cut: int) -> None:
    before, after = DictStore(), DictStore()
    given_before = [numbers(step) for step in played(stream[:cut], before)]
    restore(STAGE, after, save(STAGE, before))
    came = sum(len(elements) for elements, *_ in stream[:cut])
    assert given_before + [numbers(step) for step in played(stream[cut:], after, first=came)] == expected(
        stream
    )


def test_arrivals_wait_unread_and_only_what_is_due_is_read() -> None:
    store = CountingStore()
    first: list[Row] = [(f"user {n}", n, 1_000_000 + n, None) for n in range(50_000)]
    list(played([(first, 0, 0)], store))
    store.read.clear()
    more: list[Row] = [("user 1", 5, 2_000_000, None)]
    *_, step = played([(more, 1, 1), (more, 2, 2)], store)
    assert step.live == 50_002
    *_, step = played([([], 1_000_000, 3)], store)
    assert numbers(step) == [0]
    assert set(store.read) == {"index", f"rows/{BUFFER}/0"}


def test_an_operator_may_have_no_keys() -> None:
    stage = Stage("held", HoldBack((), SCHEMA))
    steps = list(played([([("a", 1, 10, None)], 5, 0), ([], 10, 0)], DictStore(), stage))
    assert [numbers(step) for step in steps] == [[], [0]]
