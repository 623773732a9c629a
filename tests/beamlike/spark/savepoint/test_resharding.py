"""A run that changes its number of shards between two batches emits the same as an undisturbed run."""

from __future__ import annotations

from itertools import count
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from tests.support.shards import Batch, Query, reshard

WINDOWS = {
    "fixed": bl.FixedWindows("10s"),
    "sliding": bl.SlidingWindows("10s", "5s"),
    "sessions": bl.Sessions("4s"),
}
TRIGGERS = {
    "default": bl.DefaultTrigger(),
    "counts": bl.AfterWatermark(early=bl.AfterCount(2), late=bl.AfterCount(1)),
}


def pipeline(
    batches: list[list[tuple[str, int]]], windows: str, trigger: str, extra: bool = False
) -> bl.Pipeline:
    """Declares windows per user of rows, each a batch, and windows without a key over their results."""
    p = bl.Pipeline("p")
    rows = pl.concat(chunks(batches)).collect().rows(named=True)
    source = bl.Rows(rows, schema={"user": str, "at": int, "score": int})
    read = p.read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("3s")
    )
    users = (
        read.window_into(
            WINDOWS[windows],
            trigger=TRIGGERS[trigger],
            accumulation="accumulating",
            allow_repeats=True,
            allowed_lateness="20s",
        )
        .group_by("user", name="users")
        .aggregate(
            n=bl.count(),
            values=bl.sum("score"),
            scores=bl.collect("score"),
            **({"most": bl.max("score")} if extra else {}),
        )
    )
    users.write("users out", bl.Memory())
    again = users.window_into(bl.FixedWindows("10s"), trigger=bl.DefaultTrigger(), accumulation="discarding")
    again.aggregate(n=bl.sum("n")).named("all").write("all out", bl.Memory())
    return p


def rows(batches: list[Batch], sink: str) -> list[tuple[Any, ...]]:
    """Returns the rows of a sink in all batches, in an order that does not depend on shards."""
    frames = [frame for batch in batches for frame in batch.frames(sink)]
    return sorted((row for frame in frames for row in frame.rows()), key=str)


def chunks(batches: list[list[tuple[str, int]]]) -> list[pl.LazyFrame]:
    """Returns the rows of each batch; scores are numbers in order of arrival."""
    schema, number = {"user": pl.String, "at": pl.Int64, "score": pl.Int64}, count()
    return [
        pl.LazyFrame([(*row, next(number)) for row in batch], schema=schema, orient="row")
        for batch in batches
    ]


elements = st.tuples(st.sampled_from("abcdefg"), st.integers(0, 60))


@pytest.mark.slow
@given(
    batches=st.lists(st.lists(elements, max_size=12), min_size=2, max_size=6),
    cut=st.integers(0, 6),
    shards=st.tuples(*[st.sampled_from([1, 2, 3, 7])] * 2),
    windows=st.sampled_from(sorted(WINDOWS)),
    trigger=st.sampled_from(sorted(TRIGGERS)),
)
def test_other_shards_give_the_same_panes(
    batches: list[list[tuple[str, int]]], cut: int, shards: tuple[int, int], windows: str, trigger: str
) -> None:
    plan = pipeline(batches, windows, trigger).plan()
    query, undisturbed = Query(plan, shards[0]), Query(plan, shards[0])
    got, expected = [], []
    for number, chunk in enumerate([*chunks(batches), None]):
        if number == cut:
            query = reshard(query, plan, shards[1])
        arrived = None if chunk is None else {"plays": chunk}
        got.append(query.batch(arrived))
        expected.append(undisturbed.batch(arrived))
    for sink in ("users out", "all out"):
        assert rows(got, sink) == rows(expected, sink)
    for frame in (frame for batch in got for frame in batch.frames("users out")):
        assert all(scores == sorted(scores) for scores in frame["scores"].to_list())  # in order of arrival


@pytest.mark.parametrize("shards", [(1, 3), (7, 1), (2, 7)])
def test_what_comes_to_other_shards_is_collected_after_what_was_there(shards: tuple[int, int]) -> None:
    # The shard of one user receives more rows than others, so the counts of arrivals differ.
    batches = [[("a", 12 - n % 3) for n in range(9)] + [(user, 12) for user in "bbbcd"]]
    batches.append([("a", 9), ("b", 9), ("a", 13), ("c", 10)])
    plan = pipeline(batches, "sessions", "default").plan()
    query = Query(plan, shards[0])
    first, second = chunks(batches)
    query.batch({"plays": first})
    query = reshard(query, plan, shards[1])
    ended = [query.batch({"plays": second}), query.batch(None)]
    panes = pl.concat([frame for batch in ended for frame in batch.frames("users out")])
    assert dict(panes.select("user", "scores").rows()) == {
        "a": [*range(9), 14, 16],
        "b": [9, 10, 11, 15],
        "c": [12, 17],
        "d": [13],
    }


@pytest.mark.parametrize("windows", sorted(WINDOWS))
def test_an_aggregate_that_is_new_counts_what_comes_from_then_on(windows: str) -> None:
    #   a  [1----2------------)   before: 1, 2
    #                 3            then, with the new aggregate: 3
    batches = [[("a", 11), ("a", 12), ("b", 12)], [("a", 13), ("c", 14)]]
    before, after = (pipeline(batches, windows, "default", extra=extra).plan() for extra in (False, True))
    query = Query(before, 2)
    first, second = chunks(batches)
    query.batch({"plays": first})
    query = reshard(query, after, 3)
    ended = [query.batch({"plays": second}), query.batch(None)]
    panes = pl.concat([frame for batch in ended for frame in batch.frames("users out")])
    assert set(panes.select("user", "n", "values", "most").rows()) == {
        ("a", 3, 0 + 1 + 3, 3),
        ("b", 1, 2, None),
        ("c", 1, 4, 4),
    }


def test_a_stage_that_is_gone_is_left_out_and_one_that_is_new_begins_with_nothing() -> None:
    batches = [[("a", 11)], [("a", 12)]]
    plan = pipeline(batches, "fixed", "default").plan()
    p = bl.Pipeline("p")
    source = plan.sources["plays"].source
    plays = p.read(
        "plays", source, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("3s")
    )
    new = plays.window_into(bl.FixedWindows("10s")).group_by("user", name="new").aggregate(n=bl.count())
    new.write("new out", bl.Memory())
    query = Query(plan, 2)
    first, second = chunks(batches)
    query.batch({"plays": first})
    query = reshard(query, p.plan(), 3)
    assert not any(store.values for store in query.stores.values())
    ended = [query.batch({"plays": second}), query.batch(None)]
    assert [frame["n"].to_list() for batch in ended for frame in batch.frames("new out")] == [[1]]
