"""Joins of changes: after each bundle, the net result is the join of the remaining rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.base import LEFT, RIGHT, TimeJoin
from stages.joins.interval import How, TimeOf
from stages.joins.interval_of_changes import IntervalJoinOfChanges
from stages.joins.lasting_of_changes import LastingJoinOfChanges
from stages.operator import MAIN
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.patched import SIZES, moved, patched, require_exact
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME

SECOND = 1_000_000
ROW = pl.Struct({"key": pl.String(), "value": pl.Int64()})
SCHEMA = pl.Schema({"key": pl.String(), LEFT: ROW, RIGHT: ROW})
SIDES = (LEFT, RIGHT)

Content = tuple[str | None, int, int]
"""Key, time (s) and value."""
Change = tuple[str, Content, bool]
"""The side, the row, and whether it is retracted."""
Bundle = tuple[Sequence[Change], int]
"""Changes, and where the watermark moves (s)."""
Net = Counter[tuple[Any, ...]]
"""The count of each pair of values with its time (us)."""


def interval(
    low: int, high: int, how: How, time_of: TimeOf, lateness: int, corrected: tuple[str, ...]
) -> IntervalJoinOfChanges:
    times = {"low": low * SECOND, "high": high * SECOND, "allowed_lateness": lateness * SECOND}
    choices: dict[str, Any] = {"how": how, "time_of": time_of, "corrected": corrected, "late": True}
    return IntervalJoinOfChanges(("key",), SCHEMA, **times, **choices, changes=True)


@attrs.define
class Run:
    """A join, and the remaining rows of each side by the same rules."""

    join: TimeJoin
    lateness: int | None
    store: DictStore = attrs.field(factory=DictStore)
    sides: dict[str, Counter[Content]] = attrs.field(factory=lambda: {side: Counter() for side in SIDES})
    watermark: int = -10_000
    net: Net = attrs.field(factory=Counter)

    @property
    def stage(self) -> Stage:
        return Stage("joined", self.join)

    def step(self, changes: Sequence[Change], to: int = MAX_TIME) -> StageResult:
        rows = [self._arrival(*change) for change in changes]
        schema = {**SCHEMA, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()}
        arrivals = pl.DataFrame(rows, schema, orient="row")
        step = self.stage.step(self.store, {MAIN: arrivals}, Times.of(to if to == MAX_TIME else to * SECOND))
        assert step.dropped == self._dropped(changes)
        assert len(step.late) == sum(step.dropped.values())
        self.watermark = max(self.watermark, to)
        for left, right, at, back in step.panes.select(LEFT, RIGHT, EVENT_TIME, PANE_RETRACTED).rows():
            self.net[left and left["value"], right and right["value"], at] += -1 if back else 1
        assert all(count >= 0 for count in self.net.values())
        self.net = +self.net
        return step

    def _arrival(self, side: str, row: Content, back: bool) -> tuple[Any, ...]:
        key, at, value = row
        struct = {"key": key, "value": value}
        return key, *(struct if each == side else None for each in SIDES), at * SECOND, back

    def _dropped(self, changes: Sequence[Change]) -> dict[str, int]:
        dropped, sums = Counter[str](), {side: Counter[Content]() for side in SIDES}
        for side, row, back in changes:
            if self.lateness is not None and row[1] + self.lateness < self.watermark:
                dropped["late"] += 1
            else:
                sums[side][row] += -1 if back else 1
        for side, rows in sums.items():
            for row, count in rows.items():
                if self.lateness is None and row[0] is None:  # matches nothing, and is not stored
                    continue
                left = self.sides[side][row] + count
                dropped["unmatched"] += max(-left, 0)
                self.sides[side][row] = max(left, 0)
        return {reason: count for reason, count in dropped.items() if count}

    def pairs(self, low: int, high: int, time_of: TimeOf = "latest") -> Net:
        """Returns the pairs of all remaining rows."""
        net: Net = Counter()
        for (key, at, value), count in self.sides[LEFT].items():
            for (other_key, other_at, other), others in self.sides[RIGHT].items():
                if key is not None and key == other_key and at + low <= other_at <= at + high:
                    time = {"latest": max(at, other_at), "left": at, "right": other_at}[time_of]
                    net[value, other, time * SECOND] += count * others
        return +net

    def alone(self, low: int, high: int, how: How, time_of: TimeOf, lateness: int) -> Net:
        """Returns the rows without a partner at the end."""
        net: Net = Counter()
        for side in {"left": [LEFT], "right": [RIGHT], "full": SIDES}.get(how, []):
            reach, (first, last) = (high, (low, high)) if side == LEFT else (-low, (-high, -low))
            reach = max(reach, 0) if side in self.join.corrected else reach  # type: ignore[attr-defined]
            others = +self.sides[RIGHT if side == LEFT else LEFT]
            for (key, at, value), count in self.sides[side].items():
                if not any(key == k and at + first <= t <= at + last for k, t, _ in others) or key is None:
                    time = (at if time_of != "latest" else max(at, at + reach + lateness)) * SECOND
                    net[(value, None, time) if side == LEFT else (None, value, time)] += count
        return +net


@st.composite
def histories(draw: st.DrawFn, corrected: tuple[str, ...]) -> list[Bundle]:
    """Draws bundles of rows with few distinct contents, and retractions, some of them of missing rows."""
    row = st.tuples(st.sampled_from(["a", "a", None]), st.integers(0, 12), st.integers(0, 2))
    made, there = [], {side: Counter[Content]() for side in SIDES}
    for _ in range(draw(st.integers(1, 5))):
        changes = []
        for side in draw(st.lists(st.sampled_from(SIDES), max_size=6)):
            back = side in corrected and draw(st.booleans())
            known = [*(+there[side])]
            content = draw(st.sampled_from(known) if back and known and draw(st.integers(0, 9)) else row)
            there[side][content] += -1 if back else 1
            changes.append((side, content, back))
        made.append((changes, draw(st.integers(0, 14))))
    return made


bounds = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(sorted)
corrections = st.sampled_from([(LEFT,), (RIGHT,), SIDES])


@given(
    st.data(),
    bounds,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from(["latest", "left", "right"]),
    st.integers(0, 3),
    SIZES,
)
def test_pairs_within_bounds_are_those_of_the_rows_that_are_left(
    data: st.DataObject, bounds: list[int], how: How, time_of: TimeOf, lateness: int, sizes: dict[str, Any]
) -> None:
    corrected, (low, high) = data.draw(corrections), bounds
    run = Run(interval(low, high, how, time_of, lateness, corrected), lateness)
    output = -MAX_TIME
    for number, (changes, to) in enumerate([*data.draw(histories(corrected)), ([], MAX_TIME)]):
        with patched(**sizes):
            if number == 2:
                run.store = moved(run.stage, run.store)
            step = run.step(changes, to)
            require_exact(run.stage, run.store)
        # The next stage accepts all rows: it has at least the same allowed lateness.
        assert all(at + lateness * SECOND >= output for at in step.panes[EVENT_TIME])
        output = step.watermarks.output
        both = Counter({pair: count for pair, count in run.net.items() if None not in pair})
        assert both == run.pairs(low, high, time_of)
    assert run.net == run.pairs(low, high, time_of) + run.alone(low, high, how, time_of, lateness)
    assert (step.live, step.pending) == (0, 0)


@given(st.data())
def test_pairs_for_ever_are_those_of_the_rows_that_are_left(data: st.DataObject) -> None:
    run = Run(LastingJoinOfChanges(("key",), SCHEMA, changes=True, late=True), None)
    for number, (changes, to) in enumerate(data.draw(histories(SIDES)) + data.draw(histories(SIDES))):
        if number == 2:
            run.store = moved(run.stage, run.store)
        run.step(changes, to)
        assert run.net == run.pairs(-100, 100)


def test_rows_that_are_retracted_leave_the_table_when_its_runs_become_one() -> None:
    run = Run(LastingJoinOfChanges(("key",), SCHEMA, changes=True, late=True), None)
    for number in range(8):
        run.step([(LEFT, ("a", 1, number // 2), number % 2 == 1)], 0)
    assert run.step([], 0).live == 0


@pytest.mark.parametrize("back", [False, True])
def test_what_comes_and_goes_in_a_bundle_is_in_no_pair(back: bool) -> None:
    run = Run(interval(-1, 1, "full", "latest", 0, SIDES), 0)
    run.step([(RIGHT, ("a", 1, 5), False)], 0)
    row: Content = ("a", 1, 7)
    step = run.step([(LEFT, row, back), (LEFT, row, not back)], 0)
    assert (len(step.panes), step.dropped) == (0, {})
