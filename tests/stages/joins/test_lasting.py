"""Lasting joins: each pair of rows with equal keys is emitted once, in any bundles and however late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.joins.base import LEFT, RIGHT
from stages.joins.lasting import LastingJoin
from stages.operator import MAIN
from stages.snapshot import restore, save
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME

Bundle = tuple[Sequence[tuple[Any, int]], Sequence[tuple[Any, int]], int]
"""Left rows and right rows, each key and time (us), and where the watermark moves."""

KEYS: dict[str, tuple[pl.DataType, Sequence[Any]]] = {
    "numbers": (pl.Int64(), [-5, 0, 7]),
    "texts": (pl.String(), ["", "a", "null"]),
    "wide numbers": (pl.UInt64(), [0, 1, 2**64 - 1]),
    "booleans": (pl.Boolean(), [False, True]),
}


def stage(dtype: pl.DataType) -> Stage:
    row = pl.Struct({"key": dtype, "number": pl.Int64()})
    return Stage("joined", LastingJoin(("key",), pl.Schema({"key": dtype, LEFT: row, RIGHT: row})))


def arrivals(bundle: Bundle, first: int, dtype: pl.DataType) -> pl.DataFrame:
    rows, (left, right, _) = [], bundle
    for on_the_right, own in ((False, left), (True, right)):
        for key, at in own:
            row = {"key": key, "number": first + len(rows)}
            rows.append((key, None if on_the_right else row, row if on_the_right else None, at))
    struct = pl.Struct({"key": dtype, "number": pl.Int64()})
    return pl.DataFrame(
        rows, {"key": dtype, LEFT: struct, RIGHT: struct, EVENT_TIME: pl.Int64()}, orient="row"
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[pl.DataType, list[Bundle]]:
    dtype, keys = KEYS[draw(st.sampled_from(list(KEYS)))]
    rows = st.lists(st.tuples(st.none() | st.sampled_from(keys), st.integers(0, 20)), max_size=5)
    return dtype, draw(st.lists(st.tuples(rows, rows, st.integers(0, 20)), min_size=1, max_size=12))


@given(cases())
def test_pairs_are_those_of_all_rows_together(case: tuple[pl.DataType, list[Bundle]]) -> None:
    dtype, bundles = case
    joined, store = stage(dtype), DictStore()
    sides: tuple[list[tuple[Any, int, int]], ...] = ([], [])
    found, number = Counter[tuple[int, int, int]](), 0
    for index, bundle in enumerate(bundles):
        if index == len(bundles) // 2:
            again = DictStore()
            restore(joined, again, save(joined, store))
            store = again
        step = joined.step(store, {MAIN: arrivals(bundle, number, dtype)}, Times.of(bundle[2]))
        rows = step.panes.select(LEFT, RIGHT, EVENT_TIME).rows()
        found += Counter((left["number"], right["number"], at) for left, right, at in rows)
        for side, own in zip(sides, bundle[:2], strict=True):
            for key, at in own:
                side.append((key, at, number))
                number += 1
        assert step.dropped == {}
        assert step.watermarks.output == step.watermarks.input
    assert found == Counter(
        (one, other, max(at, other_at))
        for key, at, one in sides[0]
        for other_key, other_at, other in sides[1]
        if key is not None and key == other_key
    )


@pytest.mark.parametrize("dtype", [pl.Int64(), pl.String()])
def test_a_batch_costs_what_comes_and_not_all_that_is_kept(dtype: pl.DataType) -> None:
    """Ids that grow with time are stored next to each other: old ones are not read again."""
    joined, store = stage(dtype), Counted()
    keys = [str(key) if dtype == pl.String() else key for key in range(10_000, 10_000 + 40 * 200)]
    read = []
    for step in range(40):
        own = [(key, 0) for key in keys[200 * step : 200 * step + 200]]
        store.gets = 0
        joined.step(store, {MAIN: arrivals((own, own, 0), 0, dtype)}, Times.of(0))
        read.append(store.gets)
    # The index of each side, and once in a while eight runs that become one.
    assert sorted(read)[len(read) // 2] == 2
    assert max(read) <= 2 + 2 * 3 * 8


class Counted(DictStore):
    """A store that counts reads."""

    gets: int = 0

    def get(self, stage: str, key: str) -> bytes | None:
        self.gets += 1
        return super().get(stage, key)
