"""Of rows that are taken back nothing is left in aggregates that say that they can subtract them."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.aggregates.base import Aggregate
from stages.aggregates.builtin import Mean, Sum
from stages.aggregates.counted import CollectSet, CountDistinct, Median, Mode, Quantile
from stages.aggregates.finite import where_taken_back
from stages.aggregates.flags import All
from stages.aggregates.flags import Any as Some
from stages.grouping.grouping import Grouping
from stages.operator import MAIN
from stages.progress.watermarks import Clock
from stages.stage import Stage
from stages.state.store import DictStore
from tests.stages.aggregates.test_chosen import ORDERLESS, Row, cases
from tests.support.aggregated import law
from tests.support.model import MAX_TIME
from tests.support.strategies import us
from windowing import FixedWindows, Windowing
from windowing.columns import EVENT_TIME, PANE_RETRACTED

SUBTRACTED: dict[str, Aggregate] = {
    "distinct": CountDistinct("v"),
    "set": CollectSet("v"),
    "mode": Mode("v"),
    "any": Some("flag"),
    "all": All("flag"),
}
NUMERIC: dict[str, Aggregate] = {"median": Median("v"), "quantile": Quantile("v", 0.9)}


def test_only_these_can_be_subtracted() -> None:
    can = {name for name, aggregate in ORDERLESS.items() if aggregate.subtractable}
    assert can == SUBTRACTED.keys()


def result(
    aggregates: dict[str, Aggregate], columns: pl.Schema, bundles: list[list[Row]]
) -> list[dict[str, Any]]:
    stage = Stage("stage", Grouping((), Windowing(FixedWindows(us(100))), aggregates, columns))
    store = DictStore()
    schema = {**columns, EVENT_TIME: pl.Int64(), PANE_RETRACTED: pl.Boolean()}
    for bundle in bundles:
        stage.step(store, {MAIN: pl.DataFrame(bundle, schema)}, Clock(0))
    done = stage.step(store, {MAIN: pl.DataFrame(schema=schema)}, Clock(MAX_TIME))
    return done.panes.select(list(aggregates)).rows(named=True)


FLOATS = st.lists(st.sampled_from([None, 0.5, -2.0, math.inf, -math.inf, math.nan]), min_size=1, max_size=5)


@law
@given(FLOATS, FLOATS, st.randoms())
def test_of_an_infinity_that_is_taken_back_nothing_is_left(
    kept: list[float | None], gone: list[float | None], chance: Random
) -> None:
    columns = pl.Schema({"v": pl.Float64()})
    plain: dict[str, Aggregate] = {"sum": Sum("v"), "mean": Mean("v")}
    taken_back = {name: where_taken_back(aggregate) for name, aggregate in plain.items()}
    assert [one.kind for one in taken_back.values()] == ["sum", "mean"]
    stays = [{"v": value, EVENT_TIME: 0, PANE_RETRACTED: False} for value in kept]
    goes = [
        {"v": value, EVENT_TIME: 0, PANE_RETRACTED: retracted}
        for value in gone
        for retracted in (False, True)
    ]
    played = chance.sample([*stays, *goes], len(stays) + len(goes))
    cut = chance.randrange(len(played) + 1)
    found = result(taken_back, columns, [played[:cut], played[cut:]])
    assert repr(found) == repr(result(plain, columns, [stays]))


@law
@given(cases(), st.data())
def test_what_is_taken_back_is_subtracted(
    case: tuple[pl.Schema, list[list[Row]]], data: st.DataObject
) -> None:
    columns, bundles = case
    rows = [row for bundle in bundles for row in bundle]
    aggregates = SUBTRACTED | (NUMERIC if columns["v"].is_numeric() else {})
    gone = data.draw(st.lists(st.sampled_from(rows), max_size=4))
    marked = [{**row, PANE_RETRACTED: False} for row in [*rows, *gone]]
    marked += [{**row, PANE_RETRACTED: True} for row in gone]
    played = data.draw(st.permutations(marked))
    cut = data.draw(st.integers(0, len(played)))
    found = result(aggregates, columns, [played[:cut], played[cut:]])
    wanted = result(aggregates, columns, [[{**row, PANE_RETRACTED: False} for row in rows]])
    assert repr(found) == repr(wanted)
