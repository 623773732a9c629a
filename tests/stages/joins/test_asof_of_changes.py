"""Joins as of a time, of changes with lateness: after each bundle, the net is the join of the remaining rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.asof import How
from stages.joins.asof_of_changes import AsOfJoinOfChanges
from stages.joins.base import LEFT, RIGHT
from tests.stages.joins.test_of_changes import SCHEMA, SECOND, SIDES, Change, Content, Net, Run, histories
from tests.support.patched import SIZES, moved, patched, require_exact
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME


def asof(how: How = "left", lateness: int = 5, tolerance: int | None = None) -> AsOfJoinOfChanges:
    old = None if tolerance is None else tolerance * SECOND
    choices: dict[str, Any] = {"allowed_lateness": lateness * SECOND, "late": True, "changes": True}
    return AsOfJoinOfChanges(("key",), SCHEMA, how, old, **choices)


@attrs.define
class AsOf(Run):
    """A join and the remaining rows. A retraction waits for the watermark, as rows do."""

    waiting: list[Change] = attrs.field(factory=list)

    def moves_to(self, to: int) -> None:
        """Sets the watermark after the next step, which determines the rows that will be dropped."""
        self.to = max(to, self.watermark)

    to: int = 0

    def _dropped(self, changes: Sequence[Change]) -> dict[str, int]:
        assert self.lateness is not None
        late = [change for change in changes if change[1][1] + self.lateness < self.watermark]
        self.waiting += [change for change in changes if change not in late]
        turn = [change for change in self.waiting if change[1][1] < self.to]
        self.waiting = [change for change in self.waiting if change not in turn]
        sums: Counter[tuple[str, Content]] = Counter()
        for side, row, back in turn:
            sums[side, row] += -1 if back else 1
        dropped = Counter({"late": len(late)})
        for (side, row), count in sums.items():
            left = self.sides[side][row] + count
            dropped["unmatched"] += max(-left, 0)
            self.sides[side][row] = max(left, 0)
        return {reason: count for reason, count in dropped.items() if count}

    def expected(self, how: How, tolerance: int | None) -> Net:
        """Returns the left rows, each with the newest version; of versions of one time, with the greatest value."""
        net: Net = Counter()
        for (key, at, value), count in self.sides[LEFT].items():
            versions = [
                (then, other)
                for (other_key, then, other), there in self.sides[RIGHT].items()
                if there and key is not None and key == other_key and then <= at
                if tolerance is None or at - then <= tolerance
            ]
            newest = max(versions, default=(None, None))[1]
            if newest is not None or how == "left":
                net[value, newest, at * SECOND] += count
        return +net


@given(
    histories(SIDES),
    st.sampled_from(["left", "inner"]),
    st.integers(1, 6),
    st.sampled_from([None, 0, 3]),
    SIZES,
)
def test_left_rows_have_the_newest_version_that_is_left(
    history: Any, how: How, lateness: int, tolerance: int | None, sizes: dict[str, Any]
) -> None:
    run, output = AsOf(asof(how, lateness, tolerance), lateness), -MAX_TIME
    for number, (changes, to) in enumerate([*history, ([], 40), ([], MAX_TIME)]):
        run.moves_to(to)
        with patched(**sizes):
            if number == 2:
                run.store = moved(run.stage, run.store)
            step = run.step(changes, to)
            require_exact(run.stage, run.store)
        # The next stage accepts all rows: it has at least the same allowed lateness.
        assert all(at + lateness * SECOND >= output for at in step.panes[EVENT_TIME])
        output = step.watermarks.output
        assert run.net == run.expected(how, tolerance)
    assert step.pending == 0


def test_versions_and_joined_rows_are_stored_as_long_as_they_may_be_corrected() -> None:
    run = AsOf(asof(lateness=5), 5)
    rows: list[Change] = [
        (RIGHT, ("a", 1, 1), False),
        (RIGHT, ("a", 4, 2), False),
        (LEFT, ("a", 6, 0), False),
    ]
    for to, versions, joined in [(7, 2, 1), (9, 2, 1), (10, 1, 1), (11, 1, 1), (12, 1, 0)]:
        run.moves_to(to)
        step, rows = run.step(rows, to), []
        assert (step.live, run.stage.tables(run.store).indices["joined"].rows) == (versions, joined)


@pytest.mark.parametrize("side", SIDES)
def test_a_retraction_that_is_too_late_is_dropped(side: str) -> None:
    run = AsOf(asof(lateness=5), 5)
    rows: list[Change] = [(RIGHT, ("a", 1, 1), False), (LEFT, ("a", 1, 7), False)]
    run.moves_to(8)
    run.step(rows, 8)
    assert run.step([(side, rows[SIDES[::-1].index(side)][1], True)], 8).dropped == {"late": 1}
