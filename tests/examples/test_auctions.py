"""The auctions example has the results of a computation by hand."""

from __future__ import annotations

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from examples import auctions
from examples.auctions import moment


@pytest.fixture(scope="module")
def found() -> dict[str, pl.DataFrame]:
    p, sinks = auctions.pipeline()
    p.run()
    return {name: sink.frame() for name, sink in sinks.items()}


def test_the_highest_bid_that_came_in_time_wins_and_of_equals_the_first(
    found: dict[str, pl.DataFrame],
) -> None:
    won = found["winners"].sort("expires").select("item", "bidder", "price", "bid_at").rows()
    assert won == [("lamp", "dan", 30, moment(5)), ("vase", "eve", 9, moment(11))]


def test_auctions_with_as_many_bids_are_equally_hot(found: dict[str, pl.DataFrame]) -> None:
    at_14 = found["hot items"].filter(pl.col("window_end") == moment(14))
    assert sorted(at_14.select("item", "bids").rows()) == [("lamp", 2), ("rug", 2), ("vase", 2)]


def test_each_pane_has_the_two_highest_bids_so_far(found: dict[str, pl.DataFrame]) -> None:
    lamp = found["ranking"].filter(pl.col("item") == "lamp").sort("pane_index", "rank")
    assert lamp.select("pane_index", "price").rows()[-2:] == [(lamp["pane_index"].max(), 30)] * 2


def test_it_shows_all_three() -> None:
    result = CliRunner().invoke(auctions.main)
    assert result.exit_code == 0, result.output
    assert [
        line.strip() for line in result.output.splitlines() if line.startswith(("Who", "The highest"))
    ] == ["Who wins", "The highest bids of each"]


@pytest.mark.slow
@pytest.mark.spark
def test_spark_gives_the_same(found: dict[str, pl.DataFrame], spark: object, tmp_path: object) -> None:
    p, sinks = auctions.pipeline()
    p.run(bl.SparkRunner(f"{tmp_path}", session=spark, shards=2, drain=True))  # type: ignore[arg-type]
    for name in ("winners", "hot items"):
        columns = [column for column in found[name].columns if column != "event_time"]
        assert sorted(sinks[name].frame().select(columns).rows(), key=str) == sorted(
            found[name].select(columns).rows(), key=str
        )
