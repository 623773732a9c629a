"""Interval joins in which each left row has its own interval, such as the life of an auction."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.errors import WrongType

START = datetime(2026, 1, 1, tzinfo=UTC)
Opened = tuple[str, int, int | None]
"""Item, time, and when it ends (s)."""
How = Literal["inner", "left", "full"]


def moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def sides(
    left: list[Opened], right: list[tuple[str, int]], per_batch: int
) -> tuple[bl.Collection, bl.Collection]:
    p = bl.Pipeline("p")
    opened = [
        {"item": i, "at": moment(at), "ends": moment(end), "n": n} for n, (i, at, end) in enumerate(left)
    ]
    offers = [{"item": item, "at": moment(at), "m": m} for m, (item, at) in enumerate(right)]
    times = {"item": str, "at": datetime}
    own, theirs = {**times, "ends": datetime, "n": int}, {**times, "m": int}
    read: dict[str, Any] = {"timestamp": "at", "watermark": bl.BoundedOutOfOrderness("30s")}
    return (
        p.read("opened", bl.Rows(opened, own, rows_per_batch=per_batch), **read),
        p.read("offers", bl.Rows(offers, theirs, rows_per_batch=per_batch), **read),
    )


def by_hand(
    left: list[Opened], right: list[tuple[str, int]], how: How
) -> list[tuple[int | None, int | None]]:
    pairs: list[tuple[int | None, int | None]] = [
        (n, m)
        for n, (item, at, end) in enumerate(left)
        for m, (other, then) in enumerate(right)
        if item == other and end is not None and at - 1 <= then <= end
    ]
    if how != "inner":
        pairs += [(n, None) for n in range(len(left)) if n not in {one for one, _ in pairs}]
    if how == "full":
        pairs += [(None, m) for m in range(len(right)) if m not in {other for _, other in pairs}]
    return sorted(pairs, key=str)


items, times = st.sampled_from(["a", "b"]), st.integers(0, 20)


@given(
    st.lists(st.tuples(items, times, st.none() | st.integers(0, 30)), max_size=8),
    st.lists(st.tuples(items, times), max_size=8),
    st.sampled_from(["inner", "left", "full"]),
    st.integers(1, 4),
    st.sampled_from(["left", "right"]),
)
def test_rows_match_within_the_interval_of_each_left_row(
    left: list[Opened], right: list[tuple[str, int]], how: How, per_batch: int, side: Literal["left", "right"]
) -> None:
    opened, offers = sides(left, right, per_batch)
    joined = opened.join(
        offers, on="item", how=how, within=("-1s", bl.col("ends") - bl.col("at")), event_time=side
    )
    found = joined.with_columns(time=bl.event_time()).collect()
    assert sorted(found.select("n", "m").rows(), key=str) == by_hand(left, right, how)
    for n, m, time in found.select("n", "m", "time").rows():
        of_left = n is not None and (side == "left" or m is None)
        assert time == moment(left[n][1] if of_left else right[m][1])


def test_pairs_with_the_time_of_a_side_are_not_late_in_the_windows_of_that_time() -> None:
    left: list[Opened] = [("a", 0, 20), ("b", 9, 29), ("c", 70, 80)]
    right = [("a", 1), ("b", 25), ("c", 71)]
    counts = {}
    for how in ("latest", "left"):
        opened, offers = sides(left, right, 1)
        joined = opened.join(
            offers,
            on="item",
            within=("0s", bl.col("ends") - bl.col("at")),
            event_time=how,  # type: ignore[arg-type]
        )
        tens = joined.window_into(bl.FixedWindows("10s")).aggregate(n=bl.count())
        rows = tens.with_columns(start=bl.window_start()).collect().select("start", "n").sort("start").rows()
        counts[how] = [(int((start - START).total_seconds()), n) for start, n in rows]
    assert counts == {"latest": [(0, 1), (20, 1), (70, 1)], "left": [(0, 2), (70, 1)]}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"event_time": "letf", "within": ("0s", "1s")},
            r"must be one of 'latest', .*'letf'; did you mean 'left'",
        ),
        ({"event_time": "left"}, r"event_time='left' is for joins within="),
        ({"event_time": "left", "keep_forever": True}, r"event_time='left' is for joins within="),
    ],
)
def test_the_time_of_a_join_is_one_of_three(choices: dict[str, Any], message: str) -> None:
    opened, offers = sides([("a", 0, 5)], [("a", 3)], 1)
    with pytest.raises(bl.PlanError, match=message):
        opened.join(offers, on="item", **choices)


def test_nothing_is_kept_of_what_can_match_no_more() -> None:
    opened, offers = sides([("a", 0, 5), ("b", 0, 500)], [("a", 3), ("a", 100)], 2)
    opened.join(offers, on="item", within=("0s", bl.col("ends") - bl.col("at")), name="j").write(
        "o", bl.Memory()
    )
    run = opened.pipeline.run()
    assert [batch.stages["j.pairs"].live for batch in run.batches][-2:] == [2, 0]


def test_an_interval_is_a_duration_of_columns_that_are_there() -> None:
    opened, offers = sides([("a", 0, 5)], [("a", 3)], 1)
    with pytest.raises(WrongType, match=r"the upper bound n of within= is Int64, and must be a duration"):
        opened.join(offers, on="item", within=("0s", bl.col("n")))
    with pytest.raises(bl.PlanError, match=r"there is no column 'end'.*did you mean 'ends'"):
        opened.join(offers, on="item", within=("0s", bl.col("end") - bl.col("at")))


def test_what_is_kept_for_ever_is_joined_as_inner_and_without_bounds() -> None:
    opened, offers = sides([("a", 0, 5)], [("a", 3), ("b", 3), ("a", 3_000)], 1)
    everything = opened.join(offers, on="item", keep_forever=True, suffix="_offer")
    assert everything.collect().select("n", "m").sort("m").rows() == [(0, 0), (0, 2)]
    with pytest.raises(bl.PlanError, match="how must be 'inner' with keep_forever=True, not 'left'"):
        opened.join(offers, on="item", how="left", keep_forever=True)
    with pytest.raises(bl.PlanError, match="not both"):
        opened.join(offers, on="item", within=("0s", "1s"), keep_forever=True)
