"""Aggregates that cannot be computed are refused where they are declared, with the likely intention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import UnknownColumn, WrongType
from tests.support.pipelines import plays


def windowed() -> bl.Collection:
    return plays().window_into(bl.FixedWindows("1m"))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a name that is nearly one": (
        lambda: windowed().aggregate(users="count_distint"),
        WrongType,
        "users must be an aggregate such as bl.count(), not 'count_distint'; did you mean count_distinct?",
    ),
    "several columns, one unknown": (
        lambda: windowed().aggregate(best=bl.arg_max(["user", "scor"], by="score")),
        UnknownColumn,
        "there is no column 'scor'; the columns are user, score, rate, at, tick, won; did you mean 'score'?",
    ),
    "by an unknown column": (
        lambda: windowed().aggregate(best=bl.top("user", 3, by="scores")),
        UnknownColumn,
        "there is no column 'scores'; the columns are user, score, rate, at, tick, won; did you mean 'score'?",
    ),
    "by a column that has no order": (
        lambda: windowed().with_columns(pair=bl.col("score")).aggregate(q=bl.quantile("user", 0.5)),
        WrongType,
        "q: quantile('user') needs a column of numbers or durations, but the column is String",
    ),
    "where: of an unknown column": (
        lambda: windowed().aggregate(n=bl.count(where=bl.col("scor") > 3)),
        UnknownColumn,
        "there is no column 'scor'; the columns are user, score, rate, at, tick, won; did you mean 'score'?",
    ),
    "where: text": (
        lambda: windowed().aggregate(n=bl.count(where="score")),
        WrongType,
        "where= takes an expression such as bl.col('score') > 3, not 'score'; for a Boolean column write "
        "bl.col('score')",
    ),
    "where: a polars expression": (
        lambda: windowed().aggregate(n=bl.count(where=pl.col("score") > 3)),
        WrongType,
        "this is a polars expression, write it with bl.col",
    ),
    "where: a number": (
        lambda: windowed().aggregate(n=bl.sum("score", where=bl.col("score") + 1)),
        WrongType,
        "n: where= must be one Boolean, but score + 1 is Int64",
    ),
    "where: several columns": (
        lambda: windowed().aggregate(n=bl.count(where=bl.col("score", "rate") == 1)),
        WrongType,
        "n: where= must be one Boolean, but",
    ),
    "where: other rows": (
        lambda: windowed().aggregate(n=bl.count(where=bl.col("score") > bl.col("score").mean())),
        bl.PlanError,
        "reads other rows",
    ),
    "where: the window": (
        lambda: windowed().aggregate(n=bl.count(where=bl.window_start() == bl.event_time())),
        bl.PlanError,
        "reads the window or the pane; a condition has the user's columns and bl.event_time(): compute a column "
        "with with_columns(...) before",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_the_call_at_fault_raises(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)
