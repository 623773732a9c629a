"""The difference between two panes of a join: the rows of the later one without those of the earlier one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from beamlike.steps.join_changes import MatchedChanges
from beamlike.steps.joins import How, Matched
from stages.joins.base import LEFT, RIGHT
from windowing.columns import EVENT_TIME, PANE_RETRACTED, WINDOW_END, WINDOW_START

ROW = pl.Schema({"k": pl.String(), "v": pl.Int64()})
KEPT = (EVENT_TIME, WINDOW_START, WINDOW_END, PANE_RETRACTED)
SCHEMA = {
    "k": pl.String(),
    **{side: pl.List(pl.Struct(ROW)) for side in (LEFT, RIGHT)},
    **dict.fromkeys(KEPT[:3], pl.Int64()),
    PANE_RETRACTED: pl.Boolean(),
}
values = st.lists(st.integers(0, 3), max_size=4)
panes = st.none() | st.tuples(values, values, st.integers(8, 9))
"""The values of both sides, and the event time; or no pane."""
windows = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 1)), st.lists(panes, max_size=3)
)
hows: st.SearchStrategy[How] = st.sampled_from(["inner", "left", "right", "full", "semi", "anti"])


def step(kind: type[Matched], how: How) -> Matched:
    right = {} if how in ("semi", "anti") else {"w": "v"}
    return kind("joined", ("k",), ("k", "v"), right, KEPT, how, {LEFT: ROW, RIGHT: ROW})


def net(rows: pl.DataFrame) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for *content, back in rows.drop(PANE_RETRACTED).with_columns(rows[PANE_RETRACTED]).rows():
        found[tuple(content)] += -1 if back else 1
    return Counter({row: count for row, count in found.items() if count})


@given(windows, hows)
def test_the_difference_has_the_net_of_all_panes(given_: dict[Any, list[Any]], how: How) -> None:
    rows = []
    for (key, start), history in given_.items():
        before = None
        for number, pane in enumerate(history):
            lists = None if pane is None else [[{"k": key, "v": v} for v in side] for side in pane[:2]]
            found = None if pane is None else (key, *lists, pane[2], start, start + 1)  # type: ignore[misc]
            # The first pane was emitted in an earlier batch: here it is only retracted.
            rows += [(*before, True)] if before and number else []
            rows += [(*found, False)] if found and number else []
            before = found
    frame = pl.DataFrame(rows, SCHEMA, orient="row").lazy()
    difference = step(MatchedChanges, how).apply(frame).collect()
    assert net(difference) == net(step(Matched, how).apply(frame).collect())
    assert difference[PANE_RETRACTED].is_sorted(descending=True)
    # Between panes of rows that differ, no row is both retracted and emitted.
    lists = [side for history in given_.values() for pane in history if pane for side in pane[:2]]
    if all(len({*side}) == len(side) for side in lists):
        assert sum(map(abs, net(difference).values())) == len(difference)
