"""A stage with aggregates, fed by hand: helpers for tests of single aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from tests.support.examples import share
from tests.support.model import MAX_TIME, MIN_TIME
from tests.support.strategies import us
from windowing import FixedWindows, Sessions, Windowing
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_DRAINED

law = share(10)

Elements = list[tuple[Any, int]]
"""(value, event time) of one key and window, in order of arrival."""

windowings = st.sampled_from([Windowing(FixedWindows(us(100))), Windowing(Sessions(us(100)))])


def run(
    aggregates: dict[str, Aggregate], dtype: pl.DataType, bundles: Sequence[Elements], windowing: Windowing
) -> list[dict[str, Any]]:
    """Returns the panes of a stage that receives these bundles of one key, with values in `v`.

    The input ends after the last bundle.
    """
    rows = [[{"v": value, EVENT_TIME: time} for value, time in bundle] for bundle in bundles]
    return run_rows(aggregates, pl.Schema({"v": dtype}), rows, windowing)


def run_rows(
    aggregates: dict[str, Aggregate],
    columns: pl.Schema,
    bundles: Sequence[Sequence[Mapping[str, Any]]],
    windowing: Windowing,
) -> list[dict[str, Any]]:
    """Like `run`, for rows with these columns and `EVENT_TIME`."""
    schema = pl.Schema({"k": pl.String(), **columns})
    stage = Stage("stage", Grouping(("k",), windowing, aggregates, schema))
    store, panes = DictStore(), []
    for bundle in [*bundles, None]:
        rows = [{"k": "a", **row} for row in bundle or ()]
        arrivals = pl.DataFrame(rows, schema={**schema, EVENT_TIME: pl.Int64()})
        step = stage.step(store, {MAIN: arrivals}, Times.of(MAX_TIME if bundle is None else MIN_TIME))
        assert step.panes.drop(PANE_DRAINED).schema == stage.operator.layout.panes
        panes += step.panes.select(list(aggregates)).rows(named=True)
    return panes
