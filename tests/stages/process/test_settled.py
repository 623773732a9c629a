"""Changes that wait until they are final."""

from __future__ import annotations

import polars as pl

from stages.operator import MAIN
from stages.process.settled import Settled
from stages.stage import Stage, StageResult
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MAX_TIME

SECOND = 1_000_000
SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64()})


class Run:
    """A stage with an allowed lateness of 5 s, and its state."""

    def __init__(self) -> None:
        self.stage, self.store = (
            Stage("settled", Settled(("key",), SCHEMA, (), 5 * SECOND, late=True)),
            DictStore(),
        )

    def step(self, changes: list[tuple[str, int, int, bool]], watermark: int) -> StageResult:
        rows = pl.DataFrame(
            [(key, value, at * SECOND, back) for key, value, at, back in changes],
            {**SCHEMA, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()},
            orient="row",
        ).select(list(self.stage.operator.inputs[MAIN].schema))
        to = MAX_TIME if watermark == MAX_TIME else watermark * SECOND
        return self.stage.step(self.store, {MAIN: rows}, Times.of(to))


def test_rows_are_emitted_in_order_of_time_and_values_when_nothing_can_retract_them() -> None:
    run = Run()
    waiting = run.step([("a", 2, 3, False), ("a", 1, 3, False), ("a", 9, 1, False)], 6)
    assert (waiting.panes.height, waiting.live, waiting.watermarks.output) == (0, 3, 1 * SECOND)
    assert run.step([("a", 9, 1, True), ("a", 8, 2, False)], 8).panes["value"].to_list() == [8]
    final = run.step([], 9)
    assert final.panes.rows() == [("a", 1, 3 * SECOND), ("a", 2, 3 * SECOND)]
    assert (final.live, final.watermarks.output) == (0, 9 * SECOND)


def test_changes_that_are_too_late_or_unmatched_are_dropped_and_shown() -> None:
    run = Run()
    run.step([], 20)
    result = run.step([("a", 1, 14, False), ("a", 2, 15, False), ("b", 1, 15, True)], 20)
    assert result.dropped == {"late": 1}
    result = run.step([("a", 3, 99, False)], MAX_TIME)
    assert result.panes["value"].to_list() == [2, 3]
    assert result.dropped == {"unmatched": 1}
    assert result.late.select("key", "reason").rows() == [("b", "unmatched")]
