"""Changes in sessions: rows are in the windows that the remaining rows make."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.operator import MAIN
from stages.process.sessions_of_changes import SessionsOfChanges
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from tests.support.examples import share
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_END, WINDOW_START
from windowing.time import MAX_TIME
from windowing.windowing import Windowing
from windowing.windows import Sessions

Row = tuple[str, int, int]
"""(key, value, second)"""

SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64()})
SECOND = 1_000_000
GAP = 4


class Run:
    """A stage that assigns rows to sessions, its state, and the rows in windows that are not retracted."""

    def __init__(self, lateness: int = 0, combiner: str = "end_of_window") -> None:
        windowing = Windowing(
            Sessions(f"{GAP}s"), allowed_lateness=f"{lateness}s", timestamp_combiner=combiner
        )
        self.windows = windowing.windows
        self.stage = Stage("sessions", SessionsOfChanges(("key",), SCHEMA, windowing))
        self.store, self.net = DictStore(), Counter[Any]()

    def step(self, rows: list[Row], gone: list[Row], watermark: int = -1) -> StageResult:
        columns = {**SCHEMA, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()}
        changes = [(*row, back) for some, back in ((rows, False), (gone, True)) for row in some]
        given = pl.DataFrame(
            [(key, value, at * SECOND, back) for key, value, at, back in changes], columns, orient="row"
        )
        arrivals = self.windows.assign(given).select(list(self.stage.operator.inputs[MAIN].schema))
        to = MAX_TIME if watermark == MAX_TIME else watermark * SECOND
        result = self.stage.step(self.store, {MAIN: arrivals}, Times.of(to))
        found = result.panes.select(*SCHEMA, EVENT_TIME, WINDOW_START, WINDOW_END, PANE_RETRACTED)
        for key, value, *times, back in found.iter_rows():
            self.net[(key, value, *(time // SECOND for time in times))] += -1 if back else 1
        assert all(count >= 0 for count in self.net.values())
        return result


def expected(rows: list[Row]) -> Counter[Any]:
    """Returns each row with the bounds of its session."""
    found = Counter[Any]()
    for key in {row[0] for row in rows}:
        session: list[Row] = []
        for row in [*sorted((row for row in rows if row[0] == key), key=lambda row: row[2]), None]:
            if session and (row is None or row[2] >= session[-1][2] + GAP):
                found.update((*one, session[0][2], session[-1][2] + GAP) for one in session)
                session = []
            session += [] if row is None else [row]
    return found


@share(1)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 30)), max_size=4),
        max_size=6,
    ),
    st.lists(st.integers(0, 20), max_size=8),
    st.integers(0, 4),
    st.integers(0, 9),
    st.sampled_from(["end_of_window", "earliest"]),
)
def test_rows_are_in_the_sessions_of_the_rows_that_are_left(
    bundles: list[list[Row]], gone: list[int], lateness: int, bound: int, combiner: str
) -> None:
    run, left, watermark = Run(lateness, combiner), list[Row](), -1
    for rows in [*bundles, *([] for _ in gone)]:
        in_time = [row for row in rows if row[2] >= watermark - lateness]
        left += in_time
        there = [row for row in left if row[2] >= watermark - lateness]
        back = [there[gone.pop() % len(there)]] if gone and there else []
        for row in back:
            left.remove(row)
        watermark = max([watermark, *(row[2] - bound for row in in_time)])
        result = run.step(in_time, back, watermark)
        assert +run.net == expected(left)
        held = [at for *_, at, _, end in run.net.elements() if end > watermark]
        if combiner == "earliest" and lateness == 0 and held:
            assert result.watermarks.output <= min(watermark, *held) * SECOND
    assert run.step([], [], MAX_TIME).live == 0


def test_a_row_that_joined_two_sessions_goes_and_they_part() -> None:
    run = Run()
    assert run.step([("a", 1, 1), ("a", 1, 4), ("a", 1, 7)], []).live == 3
    result = run.step([], [("a", 1, 4)])
    changes = result.panes.select(EVENT_TIME, WINDOW_START, WINDOW_END, PANE_RETRACTED).rows()
    seconds = [(at // SECOND, start // SECOND, end // SECOND, back) for at, start, end, back in changes]
    gone = [(at, 1, 11, True) for at in (1, 4, 7)]
    assert seconds == [*gone, (1, 1, 5, False), (7, 7, 11, False)]
    assert run.step([("b", 1, 4)], []).panes["key"].to_list() == ["b"]  # the sessions of others stay


def test_rows_whose_session_is_collected_are_passed_on_and_retractions_of_others_are_dropped() -> None:
    run = Run()
    run.step([("a", 1, 1)], [], 20)
    result = run.step([("a", 1, 2)], [("b", 1, 25)], 20)
    assert result.panes.select("key", WINDOW_END).rows() == [("a", 6 * SECOND)]
    assert (result.dropped, result.live) == ({"unmatched": 1}, 0)


@pytest.mark.parametrize("combiner", ["earliest", "latest"])
def test_rows_hold_the_watermark_if_panes_have_their_times(combiner: str) -> None:
    run = Run(lateness=3, combiner=combiner)
    assert run.step([("a", 1, 2), ("a", 1, 5)], [], 4).watermarks.output == 2 * SECOND
    assert run.step([], [], 9).watermarks.output == 5 * SECOND  # the session is over, and may be corrected
    assert run.step([], [], 12).watermarks.output == 12 * SECOND
    assert Run().step([("a", 1, 2)], [], 4).watermarks.output == 4 * SECOND
