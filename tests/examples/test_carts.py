"""Carts are bought or abandoned as in plain Python, for any batches of clicks, on both runners."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from examples import carts
from examples.carts import BOUND, PATIENCE, START, Shoppers, clicks, expected, run


@pytest.fixture(scope="module")
def came() -> pl.DataFrame:
    return clicks(Shoppers(shoppers=200))


def test_no_click_comes_later_than_promised(came: pl.DataFrame) -> None:
    assert (came["at"].cum_max() - came["at"]).max() <= BOUND


@pytest.mark.parametrize("batches", [1, 12])
def test_the_carts_do_not_depend_on_batches(came: pl.DataFrame, batches: int) -> None:
    assert run(came, batches=batches).equals(expected(came))


def test_whoever_buys_exactly_thirty_minutes_later_is_too_late(came: pl.DataFrame) -> None:
    first = run(came).carts.filter(pl.col("shopper") == 0)
    assert first.rows() == [(0, "abandoned", 1, 500, START + PATIENCE)]


def test_every_item_is_in_one_cart(came: pl.DataFrame) -> None:
    sold = run(came)
    assert set(sold.carts["outcome"]) == {"bought", "abandoned"}
    assert sold.carts["cents"].sum() == came["cents"].sum() == sold.quarters["cents"].sum()
    assert sold.carts["items"].sum() == (came["what"] == "add").sum()


def test_a_wrong_answer_is_told_and_fails(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carts, "expected", lambda came: run(came.head(20)))
    done = CliRunner().invoke(carts.main, ["--shoppers", "50", "--work", str(tmp_path)])
    assert done.exit_code == 1
    assert "WRONG" in done.output


@pytest.mark.slow
@pytest.mark.spark
def test_it_is_the_same_on_spark(spark: Any) -> None:
    few = clicks(Shoppers(shoppers=60))
    assert run(few, bl.SparkRunner(session=spark, shards=2, drain=True), batches=3).equals(expected(few))
