"""Results in order of time that are corrected: at any time they are the results of the remaining rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import attrs
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.logical.origins import Apply
from stages.operator import MAIN
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.patched import SIZES, moved, patched, require_exact
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME

SECOND = 1_000_000
QUIET = 4

Content = tuple[str | None, int, int]
"""Key, time (s) and value."""
Change = tuple[Content, bool]
"""A row, and whether it is retracted."""
Net = Counter[tuple[Any, ...]]
"""The count of each row's values with its time (s)."""
Expected = Callable[[Sequence[Content], int], Iterator[tuple[Any, ...]]]
"""The results of one key's rows, in order of time, up to a watermark (s)."""


class Rests(bl.Process):
    """Emits the running sum with each row, and after a while without rows, at the time of the last row."""

    sum = bl.Value(int, default=0)
    last = bl.Value(int, ttl=timedelta(seconds=QUIET))
    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if row["value"] == 4:
            raise ValueError("four")
        self.sum += row["value"]
        self.quiet.after(timedelta(seconds=QUIET), output=self.time)
        yield {"sum": self.sum, "last": self.last}
        self.last = row["value"]

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield {"sum": self.sum, "last": -1}
        if self.sum > 9:
            raise ValueError("many")
        self.sum = 0


def rests(rows: Sequence[Content], watermark: int) -> Iterator[tuple[Any, ...]]:
    total, last, at = 0, None, None
    for _, time, value in [*rows, (None, watermark, 4)]:
        if at is not None and at + QUIET <= time:
            if total <= 9:
                yield total, -1, at
                total = 0
            at = None
        if value == 4:
            continue
        total += value
        yield total, last[1] if last and time < last[0] + QUIET else None, time
        last, at = (time, value), time


def sums(rows: Sequence[Content], watermark: int) -> Iterator[tuple[Any, ...]]:
    total, before = 0, None
    for key, time, value in rows:
        total += value
        yield key, value, total, before, time
        before = value


class Watched(bl.Process):
    """Emits the watermark (s) after a while without rows."""

    quiet = bl.EventTimer()

    def element(self, row: dict[str, Any]) -> None:
        self.quiet.after(timedelta(seconds=QUIET))

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        assert self.watermark is not None
        yield {"seen": int(self.watermark.timestamp())}


DECLARED: dict[str, tuple[Callable[[Any], bl.Collection], Expected]] = {
    "running": (lambda rows: rows.running(sum=bl.sum("value"), before=bl.previous("value")), sums),
    "process": (lambda rows: rows.process(Rests(), {"sum": int, "last": int}), rests),
    "watched": (lambda rows: rows.process(Watched(), {"seen": int}), rests),
}


@cache
def stage(kind: str, lateness: int, size: int | None = None) -> Stage:
    """Returns the stage of an operator on changes with an allowed lateness, in windows of `size` seconds."""
    stream = bl.TestStream({"key": str, "value": int, "back": bool, "at": int})
    log = bl.Pipeline("p").read(
        "log", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s"
    )
    changes = bl.changes(log.select("key", "value", "back"), op="back", before=None, after=None)
    windows = bl.GlobalWindows() if size is None else bl.FixedWindows(timedelta(seconds=size))
    windowed = changes.window_into(
        windows, trigger=bl.Repeatedly(bl.AfterCount(1)), allowed_lateness=timedelta(seconds=lateness)
    )
    origin = DECLARED[kind][0](windowed.group_by("key")).node.origin
    assert isinstance(origin, Apply)
    operator = origin.operator.with_late()
    assert operator is not None
    return Stage(kind, operator)


@attrs.define
class Run:
    """A stage, and the remaining rows by the same rules."""

    kind: str
    lateness: int
    size: int | None = None
    store: DictStore = attrs.field(factory=DictStore)
    left: Counter[Content] = attrs.field(factory=Counter)
    watermark: int = -1_000
    net: Net = attrs.field(factory=Counter)

    @property
    def stage(self) -> Stage:
        return stage(self.kind, self.lateness, self.size)

    def step(self, changes: Sequence[Change], to: int = MAX_TIME) -> StageResult:
        input = self.stage.operator.inputs[MAIN].schema
        rows = [(key, value, back, time * SECOND) for (key, time, value), back in changes]
        names = ["key", "value", PANE_RETRACTED, EVENT_TIME]
        arrivals = pl.DataFrame(rows, [(name, input[name]) for name in names], orient="row")
        step = self.stage.step(self.store, {MAIN: arrivals}, Times.of(to if to == MAX_TIME else to * SECOND))
        assert step.dropped == self._dropped(changes)
        assert len(step.late) == sum(step.dropped.values())
        self.watermark = max(self.watermark, to)
        values = [name for name in step.panes.columns if not name.startswith("__")]
        for *row, at, back in step.panes.select(*values, EVENT_TIME, PANE_RETRACTED).rows():
            self.net[*row, at // SECOND] += -1 if back else 1
        assert all(count >= 0 for count in self.net.values())
        self.net = +self.net
        return step

    def _dropped(self, changes: Sequence[Change]) -> dict[str, int]:
        dropped, sums = Counter[str](), Counter[Content]()
        for row, back in changes:
            over = self.size is not None and self.window(row) + self.size + self.lateness <= self.watermark
            if over or row[1] + self.lateness < self.watermark:
                dropped["late"] += 1
            else:
                sums[row] += -1 if back else 1
        for row, count in sums.items():
            left = self.left[row] + count
            dropped["unmatched"] += max(-left, 0)
            self.left[row] = max(left, 0)
        return {reason: count for reason, count in dropped.items() if count}

    def window(self, row: Content) -> int:
        return 0 if self.size is None else row[1] // self.size * self.size

    def expected(self) -> Net:
        by_key: dict[Any, list[Content]] = {}
        for row in sorted((+self.left).elements(), key=lambda row: (row[1], row[2])):
            if row[1] < self.watermark:
                by_key.setdefault((row[0], self.window(row)), []).append(row)
        until = min(self.watermark, 1_000)
        return Counter(row for rows in by_key.values() for row in DECLARED[self.kind][1](rows, until))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[Change], int]]:
    """Draws bundles of rows with few distinct contents, and retractions of earlier rows."""
    row = st.tuples(st.sampled_from(["a", "a", None]), st.integers(0, 20), st.integers(0, 5))
    made, there, watermark = [], list[Content](), 0
    for _ in range(draw(st.integers(1, 7))):
        changes: list[Change] = []
        for back in draw(st.lists(st.sampled_from([False, False, True]), max_size=5)):
            if back and there:
                changes.append((there.pop(draw(st.integers(0, len(there) - 1))), True))
            elif not back:
                there.append(draw(row))
                changes.append((there[-1], False))
        watermark += draw(st.sampled_from([0, 1, 2, 5]))
        made.append((changes, watermark))
    return made


@pytest.mark.parametrize(("kind", "size"), [("running", None), ("running", 6), ("process", None)])
@given(histories(), st.integers(1, 9), SIZES)
def test_results_are_those_of_the_rows_that_are_left(
    kind: str, size: int | None, history: list[tuple[list[Change], int]], lateness: int, sizes: dict[str, Any]
) -> None:
    run, output = Run(kind, lateness, size), -MAX_TIME
    for number, (changes, to) in enumerate([*history, ([], 60), ([], MAX_TIME)]):
        with patched(**sizes):
            if number == 2:
                run.store = moved(run.stage, run.store)
            step = run.step(changes, to)
            require_exact(run.stage, run.store)
        # The next stage accepts all rows: it has at least the same allowed lateness.
        assert all(at + lateness * SECOND >= output for at in step.panes[EVENT_TIME])
        output = step.watermarks.output
        assert run.net == run.expected()
    assert step.pending == 0


def test_corrections_of_one_step_follow_each_other() -> None:
    run = Run("running", 5)
    run.step([(("a", 1, 1), False)], 0)
    run.step([], 6)  # a step without arrivals, whose snapshot must be replaced, too
    for at, value in [(4, 1), (3, 2), (2, 3), (5, 4)]:
        run.step([(("a", at, value), False)], 6)
        assert run.net == run.expected()


def test_a_snapshot_is_stored_until_no_row_before_its_end_can_be_corrected() -> None:
    run = Run("running", 5)
    run.step([(("a", 5, 1), False)], 6)
    run.step([], 10)
    run.step([(("a", 5, 1), True)], 10)
    assert run.net == {}
    run.step([(("b", 9, 1), False)], 10)
    stored = [run.stage.tables(run.store).indices["snapshots"].rows for to in (14, 15) if run.step([], to)]
    assert stored == [2, 0]  # one of each key


def test_a_row_that_was_emitted_with_an_earlier_time_holds_the_watermark_while_it_may_be_retracted() -> None:
    run = Run("process", 9)
    run.step([(("a", 1, 3), False)], 6)  # the timer of 5 s has emitted a row of 1 s
    assert [run.step([], to).watermarks.output for to in (9, 12, 14, 15)] == [
        to * SECOND for to in (9, 10, 10, 15)
    ]


@pytest.mark.parametrize("other", [None, 3, 9])
def test_what_a_key_sees_does_not_depend_on_rows_of_other_keys(other: int | None) -> None:
    run = Run("watched", 5)
    run.step([(("a", 1, 1), False)], 2)
    run.step([] if other is None else [(("b", other, 1), False)], 12)
    assert run.net[(12, 5)] == 1  # the timer of key a
