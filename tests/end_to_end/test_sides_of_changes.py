"""Lookups and functions with sides, where rows or the rows of a side may be retracted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Part, output_frame
from beamlike.testing.player import Recorder
from tests.support.examples import share
from tests.support.shards import Query

ENTRY: dict[str, Any] = {"side": bool, "back": bool, "key": str, "value": int, "at": int}
EACH: dict[str, Any] = {"trigger": bl.Repeatedly(bl.AfterCount(1)), "accumulation": "retracting"}

Entry = tuple[bool, bool, str, int]
"""(is a row of the side, is a retraction, key, value)"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test in a folder where dead letters without a sink are written."""
    monkeypatch.chdir(tmp_path)


def read(p: bl.Pipeline, bundles: list[list[Entry]]) -> tuple[bl.Collection, bl.Collection]:
    """Returns the rows that may be retracted, and the rows of the side."""
    stream = bl.TestStream(ENTRY)
    for rows in bundles:
        stream = stream.add_elements([dict(zip(ENTRY, (*row, 0), strict=True)) for row in rows])
    log = p.read("log", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    rows, of_side = (
        bl.changes(log.filter(bl.col("side") == side).drop("side"), op="back", before=None, after=None)
        for side in (False, True)
    )
    return rows.select("key", "value"), of_side.select("key", "value")


@st.composite
def logs(draw: st.DrawFn) -> list[list[Entry]]:
    """Draws bundles of new rows and of retractions of existing rows."""
    there: list[Entry] = []
    bundles = []
    entry = st.tuples(st.booleans(), st.just(False), st.sampled_from("ab"), st.integers(0, 2))
    for rows in draw(st.lists(st.lists(entry, max_size=3), min_size=1, max_size=6)):
        there += rows
        bundle = [*rows]
        for _ in range(draw(st.integers(0, 2)) if there else 0):
            if there:
                side, _, key, value = there.pop(draw(st.integers(0, len(there) - 1)))
                bundle.append((side, True, key, value))
        bundles.append(bundle)
    return bundles


def expected(bundles: list[list[Entry]]) -> list[Counter[Any]]:
    """Returns the net content of a lookup of sums by key, after each bundle: rows keep the value that they got."""
    side, seen_any = Counter[str](), False
    given: dict[Any, list[Any]] = {}
    waiting = Counter[Any]()
    found = []
    for rows in bundles:
        net, changed = Counter[Any](), Counter[Any]()
        for of_side, back, key, value in rows:
            if of_side:
                side[key] += -value if back else value
                side["of " + key] += -1 if back else 1
                changed[key, value] += -1 if back else 1
            else:
                net[key, value] += -1 if back else 1
        waiting.update(net)
        # Rows that arrive and are retracted in one bundle cancel, so the side emits no pane.
        seen_any |= any(changed.values())
        if seen_any:
            for (key, value), count in waiting.items():
                told = side[key] if side["of " + key] else None
                for _ in range(count):
                    given.setdefault((key, value), []).append((key, value, told))
                for _ in range(-count):
                    given[key, value].pop(0)
            waiting.clear()
        found.append(Counter(row for each in given.values() for row in each))
    return found


@pytest.mark.parametrize("shards", [0, 3])
@share(5)
@given(logs())
def test_a_retraction_takes_back_what_its_row_saw(shards: int, bundles: list[list[Entry]]) -> None:
    p, recorder = bl.Pipeline("p"), Recorder()
    rows, of_side = read(p, bundles)
    sums = of_side.window_into(**EACH).group_by("key").aggregate(sum=bl.sum("value"))
    rows.with_columns(seen=bl.lookup(sums, on="key")["sum"]).write("out", recorder)
    if not shards:
        p.run(bl.LocalRunner())
    else:
        for number, batch in enumerate(Query(p.plan(), shards, seed=1).batches()):
            for task, frame in enumerate(batch.frames("out")):
                recorder.write(output_frame(frame), Part("p", number, task))
    net = Counter[Any]()
    for number, left in enumerate(expected(bundles)):
        for row in recorder.rows(range(number, number + 1)):
            net[row["key"], row["value"], row["seen"]] += -1 if row["pane_retracted"] else 1
        assert +net == left
        assert all(count >= 0 for count in net.values())


def _collected(rows: bl.Collection) -> list[Any]:
    out = bl.Memory()
    rows.write("out", out)
    rows.pipeline.run()
    found = out.frame()
    return [found.drop("event_time")[name].to_list() for name in ("value", "pane_retracted")]


def test_a_function_that_raises_makes_one_dead_letter_of_a_row_and_its_retraction() -> None:
    def halved(row: dict[str, Any], sums: dict[str, Any]) -> dict[str, Any]:
        if row["value"] % 2:
            raise ValueError("odd")
        return {"value": row["value"] // 2 + len(sums)}

    for pane in ({"trigger": bl.DefaultTrigger()}, EACH):
        p, letters = bl.Pipeline("p"), bl.Memory()
        entries: list[list[Entry]] = [
            [(True, False, "a", 1), (False, False, "a", 1), (False, False, "a", 2)],
            [(False, True, "a", 1), (False, True, "a", 2), (False, False, "a", 4)],
        ]
        rows, of_side = read(p, entries)
        sums = of_side.window_into(**pane).group_by("key").aggregate(sum=bl.sum("value"))
        made = rows.map(halved, {"value": int}, side={"sums": bl.as_dict(sums, "key")})
        made.dead_letters().write("letters", letters)
        several = "accumulation" in pane
        expected = [[2, 2, 3], [False, True, False]] if several else [[3], [False]]
        assert _collected(made) == expected
        assert len(letters.frame()) == (1 if several else 0)  # what waits until both are there never was


def test_the_content_of_a_side_of_changes_is_the_rows_that_are_left_even_if_there_are_none() -> None:
    p = bl.Pipeline("p")
    entries: list[list[Entry]] = [
        [(True, False, "a", 1), (False, False, "a", 1)],
        [(True, False, "b", 2), (False, False, "a", 2)],
        [(True, True, "b", 2), (True, True, "a", 1), (False, False, "a", 3)],
    ]
    rows, of_side = read(p, entries)
    live = of_side.window_into(trigger=bl.Repeatedly(bl.AfterCount(1)))
    count = rows.map(
        lambda row, side: {"value": 10 * row["value"] + len(side)},
        {"value": int},
        side={"side": bl.as_list(live)},
    )
    assert _collected(count) == [[11, 22, 30], [False, False, False]]


def test_a_retraction_of_a_row_that_is_not_there_is_dropped_and_shown() -> None:
    p, late = bl.Pipeline("p"), bl.Memory()
    entries: list[list[Entry]] = [[(True, False, "a", 1), (False, False, "a", 2), (False, True, "b", 2)]]
    rows, of_side = read(p, entries)
    sums = of_side.window_into(**EACH).group_by("key").aggregate(sum=bl.sum("value"))
    seen = rows.map(lambda row, sums: row, side={"sums": bl.as_dict(sums, "key")})
    seen.late().select("key", "reason").write("late", late)
    assert _collected(seen) == [[2], [False]]
    assert late.frame()[["key", "reason"]].rows() == [("b", "unmatched")]
