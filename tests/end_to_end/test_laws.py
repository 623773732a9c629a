"""The laws of changes, over random chains of operators."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from stages.changes import WEIGHT
from tests.support.chains import IN_TIME, ONCE, PAIRS, Operator, Panes, chains
from tests.support.examples import share
from tests.support.played_chains import Bundle, bundles, played, total
from windowing.columns import PANE_RETRACTED

some = share(3)


@some
@given(chains(), bundles())
def test_the_net_content_at_the_end_is_that_of_one_pane_a_window(
    operators: list[Operator], given: list[Bundle]
) -> None:
    assert total(played(operators, given)) == total(played(operators, given, "once"))


@some
@given(chains(in_time=False), bundles(), st.data())
def test_the_net_content_after_a_batch_is_that_of_the_rows_so_far(
    operators: list[Operator], given: list[Bundle], data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, len(given)))
    so_far = total(played(operators, given, "each")[:number])
    assert so_far == total(played(operators, given[:number], "once"))


def _ignores_order(operators: list[Operator]) -> bool:
    """False for chains with `latest`, which keeps the last to arrive of rows with equal times."""
    return not any(operator.name.startswith("latest") for operator in operators)


@some
@given(chains().filter(_ignores_order), bundles(), st.randoms(use_true_random=False))
def test_the_net_content_depends_neither_on_bundles_nor_on_order_while_clocks_stand(
    operators: list[Operator], given: list[Bundle], random: Random
) -> None:
    cut: list[Bundle] = []
    for rows, watermark in given:
        one_by_one = sorted(random.sample(rows, len(rows)), key=lambda row: row[-1])  # what retracts is last
        cut += [((row,), None) for row in one_by_one[:-1]]
        cut.append((tuple(one_by_one[-1:]), watermark))
    assert total(played(operators, cut)) == total(played(operators, given))


@pytest.mark.parametrize("shards", [1, 3])
@share(4)
@given(chains(), bundles())
def test_the_net_content_does_not_depend_on_shards(
    shards: int, operators: list[Operator], given: list[Bundle]
) -> None:
    assert played(operators, given, shards=shards) == played(operators, given)


KINDS: dict[str, Callable[[bl.Collection], bl.Collection]] = {
    **IN_TIME,
    **ONCE,
    **PAIRS,
    "sessions": lambda rows: (
        rows.window_into(bl.Sessions("4s")).group_by("key").aggregate(value=bl.max("value"))
    ),
    "batches": lambda rows: (
        rows.group_by("key").group_into_batches(size=2).drop("key").explode("rows").unnest("rows")
    ),
}


def corrected(rows: bl.Collection, panes: Panes) -> bl.Collection:
    """Returns totals of windows, which further rows correct."""
    trigger = bl.Never() if panes == "once" else bl.AfterWatermark(early=bl.AfterCount(1))
    windowed = rows.window_into(bl.FixedWindows("6s"), trigger=trigger, accumulation=bl.RETRACTING)
    return windowed.group_by("key").aggregate(value=bl.sum("value")).window_into(bl.GlobalWindows())


ROWS: list[Bundle] = [
    ((("a", 3, 1, False), ("b", 1, 2, False)), None),
    ((("a", 2, 4, False), ("b", 5, 9, False), ("c", 5, 4, False)), 2),
    ((("a", 1, 3, False), ("b", 1, 8, False)), None),
    ((("c", 4, 5, False), ("a", 4, 14, False)), 6),
    ((("b", 2, 10, False), ("a", 4, 13, False)), 11),
]


QUICK = {"dedup", "distinct", "lookup", "near, full", "ever", "sessions", "batches"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow) for kind in KINDS]
)
def test_operators_of_changes_are_restored_on_other_shards(kind: str) -> None:
    operators = [Operator("totals", corrected), Operator(kind, lambda rows, panes: KINDS[kind](rows))]
    whole = played(operators, ROWS)
    assert any(whole)
    assert played(operators, ROWS, shards=2, moved=(3, 3)) == whole


def unsigned() -> pl.Expr:
    """Returns the weight of a change that is always treated as a new row."""
    return pl.lit(1, pl.Int64).alias(WEIGHT)


BROKEN: dict[str, tuple[str, str, object]] = {
    "what comes and goes in a bundle is summed up first": (
        "running",
        "stages.pending_rows.summed",
        lambda rows, on=None: rows,
    ),
    "a filter lets retractions through as it does rows": (
        "kept",
        "beamlike.steps.base.Filter.apply",
        lambda step, rows: rows.filter(~pl.col(PANE_RETRACTED)),
    ),
    "a pair goes with either of its rows": (
        "near",
        "stages.joins.interval_of_changes.without_retracted",
        lambda stored, back, on: (stored, stored.clear(), back),
    ),
    "a row that is distinct goes with the last of its equals": (
        "distinct",
        "stages.process.dedup_of_changes.weight",
        unsigned,
    ),
    "rows that are kept for ever are forgotten when they go": (
        "ever",
        "stages.joins.lasting_of_changes.without_retracted",
        lambda stored, back, on: (stored, stored.clear(), back),
    ),
}
"""Laws, each with an operator that shows it and a change that breaks it."""


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, place, wrong = BROKEN[rule]
    operator = {**KINDS, "kept": lambda rows: rows.filter(bl.col("value") > 0)}[kind]
    operators = [Operator("totals", corrected), Operator(kind, lambda rows, panes: operator(rows))]
    right = total(played(operators, ROWS, "once"))
    assert total(played(operators, ROWS)) == right
    monkeypatch.setattr(place, wrong)
    assert total(played(operators, ROWS)) != right
