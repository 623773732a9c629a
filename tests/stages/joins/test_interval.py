"""Interval joins: the same pairs as from all rows at once, in any bundles; unmatched rows are emitted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.base import LEFT, RIGHT
from stages.joins.interval import How, IntervalJoin, TimeOf
from stages.joins.side import JoinSide
from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.patched import SIZES, moved, patched, require_exact
from windowing.clocks import Times
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

SECOND = 1_000_000
ROW = pl.Struct({"key": pl.String(), "number": pl.Int64()})
SCHEMA = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})

Row = tuple[str | None, int]
"""Key and time (s)."""
Bundle = tuple[Sequence[Row], Sequence[Row], int]
"""Left rows, right rows, and where the watermark moves (s)."""
Found = tuple[int | None, int | None, int]
"""The numbers of both, and the time (us)."""


def stage(
    low: int,
    high: int,
    how: How = "inner",
    time_of: TimeOf = "latest",
    lateness: int = 0,
    *,
    late: bool = False,
) -> Stage:
    times = {"low": low * SECOND, "high": high * SECOND, "allowed_lateness": lateness * SECOND}
    return Stage("joined", IntervalJoin(("key",), SCHEMA, how=how, time_of=time_of, late=late, **times))


@attrs.define
class Run:
    """A stage and its state; rows of both sides are numbered as they arrive."""

    stage: Stage
    store: DictStore = attrs.field(factory=DictStore)
    number: int = 0

    def step(self, bundle: Bundle) -> StageResult:
        rows = []
        left, right, watermark = bundle
        for side, own in ((False, left), (True, right)):
            for key, at in own:
                row = {"key": key, "number": self.number}
                rows.append((key, None if side else row, row if side else None, at * SECOND))
                self.number += 1
        arrivals = pl.DataFrame(rows, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
        return self.stage.step(
            self.store, {MAIN: arrivals}, Times.of(watermark if watermark == MAX_TIME else watermark * SECOND)
        )


def found(step: StageResult) -> Counter[Found]:
    rows = step.panes.select(LEFT, RIGHT, EVENT_TIME).rows()
    return Counter((left and left["number"], right and right["number"], at) for left, right, at in rows)


def by_hand(bundles: Sequence[Bundle], low: int, high: int, how: How, time_of: TimeOf) -> Counter[Found]:
    """Joins all rows that were not late, each with each."""
    sides: tuple[list[tuple[str | None, int, int]], ...] = ([], [])
    number, watermark = 0, -10_000
    for left, right, then in bundles:
        for side, rows in zip(sides, (left, right), strict=True):
            for key, at in rows:
                if at >= watermark:
                    side.append((key, at, number))
                number += 1
        watermark = max(watermark, then)
    pairs: Counter[Found] = Counter()
    for key, at, one in sides[0]:
        for other_key, other_at, other in sides[1]:
            if key is not None and key == other_key and at + low <= other_at <= at + high:
                time = {"latest": max(at, other_at), "left": at, "right": other_at}[time_of]
                pairs[one, other, time * SECOND] += 1
    outer = {"left": (0,), "right": (1,), "full": (0, 1)}.get(how, ())
    for place in outer:
        matched = {pair[place] for pair in pairs}
        for _, at, one in sides[place]:
            certain = max(at, at + (-low if place else high))
            time = (certain if time_of == "latest" else at) * SECOND
            alone: Found = (None, one, 0) if place else (one, None, 0)
            if one not in matched:
                pairs[(*alone[:2], time)] += 1
    return pairs


rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 30)), max_size=6)
bundles = st.lists(st.tuples(rows, rows, st.integers(0, 30)), min_size=1, max_size=5)
bounds = st.tuples(st.integers(-6, 6), st.integers(-6, 6)).map(sorted)


@given(
    bundles,
    bounds,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from(["latest", "left", "right"]),
    SIZES,
)
def test_pairs_and_rows_alone_are_those_of_all_rows_together(
    given_: list[Bundle], bounds: list[int], how: How, time_of: TimeOf, sizes: dict[str, Any]
) -> None:
    low, high = bounds
    run, got, output = Run(stage(low, high, how, time_of)), Counter[Found](), None
    for number, bundle in enumerate([*given_, ((), (), MAX_TIME)]):
        with patched(**sizes):
            if number == 2:
                run.store = moved(run.stage, run.store)
            step = run.step(bundle)
            require_exact(run.stage, run.store)
        # All that is given was held for: it is not late.
        assert output is None or all(at >= output for _, _, at in found(step))
        output = step.watermarks.output
        got += found(step)
    assert got == by_hand(given_, low, high, how, time_of)
    assert (step.live, step.pending) == (0, 0)


class EarlierSide(JoinSide):
    """A side as in earlier versions, which set MATCHED in stored rows of all outer joins."""

    marks_apart = False


class EarlierJoin(IntervalJoin):
    """An interval join whose state is as that of earlier versions."""

    def _side(self, name: str, reach: int | None) -> JoinSide:
        side = super()._side(name, reach)
        return EarlierSide(**{field.name: getattr(side, field.name) for field in attrs.fields(JoinSide)})


@given(
    bundles,
    st.integers(0, 5),
    bounds,
    st.sampled_from(["left", "right", "full"]),
    st.sampled_from(["latest", "left", "right"]),
    SIZES,
)
def test_an_outer_join_goes_on_with_state_of_earlier_versions(
    given_: list[Bundle], cut: int, bounds: list[int], how: How, time_of: TimeOf, sizes: dict[str, Any]
) -> None:
    low, high = bounds
    now = stage(low, high, how, time_of)
    fields = {name: getattr(now.operator, name) for name in attrs.fields_dict(IntervalJoin)}
    run, got = Run(Stage("joined", EarlierJoin(**fields))), Counter[Found]()
    for number, bundle in enumerate([*given_, ((), (), MAX_TIME)]):
        if number == cut:
            assert {table.split("/")[0] for _, table in run.store.values} <= {
                "index",
                "rows",
                "keys",
                "right",
            }
            run.stage = now
        with patched(**sizes):
            got += found(run.step(bundle))
    assert got == by_hand(given_, low, high, how, time_of)


def test_rows_go_when_no_partner_can_come_any_more() -> None:
    run = Run(stage(-1, 0))
    run.step(([("k", at) for at in range(1, 6)], [("k", at) for at in range(1, 6)], 0))
    assert [kept(run, LEFT), kept(run, RIGHT)] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]
    run.step(([], [], 2))
    assert [kept(run, LEFT), kept(run, RIGHT)] == [[2, 3, 4, 5], [1, 2, 3, 4, 5]]
    run.step(([], [], 5))
    assert [kept(run, LEFT), kept(run, RIGHT)] == [[5], [4, 5]]
    run.step(([], [], 7))
    assert [kept(run, LEFT), kept(run, RIGHT)] == [[], []]


def kept(run: Run, side: str) -> list[int]:
    snapshot = save(run.stage, run.store).rows["" if side == LEFT else side]
    return sorted(at // SECOND for at in snapshot[EVENT_TIME])


def test_rows_of_two_shards_with_the_same_number_are_marked_each_for_itself() -> None:
    shards = [Run(stage(0, 5, "left")) for _ in "ab"]
    for key, run in zip("ab", shards, strict=True):
        run.step(([(key, 10)], [], 10))
    first, other = (save(run.stage, run.store) for run in shards)
    both = {name: pl.concat([rows, other.rows[name]]) for name, rows in first.rows.items()}
    one = Run(stage(0, 5, "left"), number=1)
    restore(one.stage, one.store, attrs.evolve(first, rows=both))
    one.step(([], [("a", 12), ("b", 30)], 10))
    assert found(one.step(((), (), MAX_TIME))) == Counter({(0, None, 15 * SECOND): 1})


def test_late_rows_are_dropped_and_shown_with_their_side() -> None:
    run = Run(stage(-5, 5, "full", lateness=2, late=True))
    run.step(([("k", 10)], [], 10))
    step = run.step(([("k", 8), ("k", 7)], [("k", 7)], 10))
    assert step.dropped == {"late": 2}
    assert step.late.select(pl.col(RIGHT).is_not_null(), "reason").rows() == [(False, "late"), (True, "late")]
    assert found(step) == Counter()
    end = run.step(((), (), MAX_TIME))
    assert found(end) == Counter({(0, None, 17 * SECOND): 1, (1, None, 15 * SECOND): 1})


def test_what_a_row_of_an_outer_join_waits_for_holds_the_watermark_only_with_its_own_time() -> None:
    for time_of, output in (("latest", 12), ("left", 10)):
        run = Run(stage(0, 5, "left", time_of))
        run.step(([("k", 10)], [], 10))
        assert run.step(((), (), 12)).watermarks.output == output * SECOND


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize(("time_of", "first"), [("left", LEFT), ("right", RIGHT)])
def test_a_row_whose_time_pairs_have_holds_it_until_no_partner_can_come(
    how: How, time_of: TimeOf, first: str
) -> None:
    run = Run(stage(-5, 5, how, time_of))
    row = [("k", 10)]
    run.step((row, [], 10) if first == LEFT else ([], row, 10))
    partner = [("k", 14)]
    # A row that has a partner holds for further ones.
    run.step(([], partner, 14) if first == LEFT else (partner, [], 14))
    assert run.step(((), (), 15)).watermarks.output == 10 * SECOND
    assert run.step(((), (), 16)).watermarks.output == 16 * SECOND
