"""A side that is read repeatedly: every row gets the reading that was the latest when the row arrived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import beamlike as bl

MINUTE = 60_000_000
RATES = {"currency": str, "rate": float}


class Clock:
    """A clock that advances a minute with every batch, after which the rates change."""

    def __init__(self, folder: Path, rates: list[str]) -> None:
        self.now, self.file, self.rates = 1_800_000_000_000_000, folder / "rates" / "now.csv", rates
        self.file.parent.mkdir(exist_ok=True)
        self.write()

    def __call__(self) -> int:
        return self.now

    def write(self) -> None:
        if self.rates:
            self.file.write_text(f"currency,rate\n{self.rates.pop(0)}")

    def tick(self, record: Any) -> None:
        self.now += MINUTE
        self.write()


def declared(folder: Path, orders: int) -> tuple[bl.Pipeline, bl.Memory]:
    p = bl.Pipeline("orders")
    rows = bl.Rows([{"currency": "EUR", "at": at} for at in range(orders)], rows_per_batch=1)
    sold = p.read("orders", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    rates = p.read("rates", bl.Refreshed(bl.CSV(folder / "rates", RATES), every="2m"))
    rate = bl.lookup(rates.filter(bl.col("rate") > 0), on="currency")["rate"]
    sold.with_columns(rate=rate).write("out", out := bl.Memory())
    return p, out


@pytest.mark.parametrize("kept", [False, True])
def test_a_reading_takes_the_place_of_the_one_before_also_if_it_is_empty(kept: bool, tmp_path: Path) -> None:
    clock = Clock(tmp_path, ["EUR,1\n", "EUR,2\n", "EUR,3\n", "EUR,4\n", "EUR,-1\n", "EUR,6\n", "EUR,7\n"])
    p, out = declared(tmp_path, 7)
    checkpoint = {"checkpoint": str(tmp_path / "checkpoint")} if kept else {}
    p.run(bl.LocalRunner(clock=clock, on_batch=clock.tick, **checkpoint))
    rates = out.frame().sort("at")["rate"].to_list()
    assert rates == [1, 1, 3, 3, None, None, 7]


def test_a_run_that_goes_on_goes_on_with_what_was_read(tmp_path: Path) -> None:
    clock = Clock(tmp_path, ["EUR,1\n", "EUR,2\n", "EUR,3\n"])
    p, out = declared(tmp_path, 3)
    run: Any = None

    def once(record: Any) -> None:
        clock.tick(record)
        run.stop()

    for _ in range(3):
        run = bl.LocalRunner(clock=clock, on_batch=once, checkpoint=str(tmp_path / "checkpoint")).start(
            p.plan()
        )
        run.wait()
    assert out.frame()["rate"].to_list() == [1, 1, 3]


def test_a_source_that_is_gone_leaves_what_was_read_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(tmp_path, ["EUR,1\n"])
    p, out = declared(tmp_path, 4)

    def gone(record: Any) -> None:
        clock.tick(record)
        if record.batch == 0:
            clock.file.unlink()
            clock.file.parent.rmdir()

    p.run(bl.LocalRunner(clock=clock, on_batch=gone))
    assert out.frame()["rate"].to_list() == [1, 1, 1, 1]
    assert "cannot be read again, so the previous reading stays" in caplog.text


def test_what_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a source with an end"):
        bl.Refreshed("prices", every="5m")
    with pytest.raises(ValueError, match="every must be longer than nothing"):
        bl.Refreshed(bl.Rows([{"a": 1}]), every="0s")
    again = bl.Refreshed(bl.Rows([{"a": 1}]), every="5m")
    with pytest.raises(bl.PlanError, match=r"the event time of a bl\.Refreshed.* is when it was read"):
        bl.Pipeline("p").read("again", again, timestamp="a", watermark=bl.MonotonousTimestamps())


@pytest.mark.spark
def test_on_spark_readings_are_kept_in_the_checkpoint(spark: Any, tmp_path: Path) -> None:
    Clock(tmp_path, ["EUR,1\n"])
    p, out = declared(tmp_path, 2)
    p.run(bl.SparkRunner(session=spark, checkpoint=str(tmp_path / "checkpoint"), shards=2))
    assert out.frame()["rate"].to_list() == [1, 1]
    assert len(list((tmp_path / "checkpoint/beamlike/readings/rates").glob("*.parquet"))) == 1
