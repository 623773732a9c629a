"""Internal consistency: the balances of accounts add up to zero in every output, and each output has all transfers."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import output_frame
from benchmarks.consistency import inputs, transfers
from benchmarks.consistency_job import balances, pipeline, totals
from tests.support.examples import share
from tests.support.shards import Query


def read(p: bl.Pipeline, given: pl.DataFrame, batch: int) -> bl.Collection:
    rows = bl.Rows(given.to_dicts(), rows_per_batch=batch)
    return p.read("transfers", rows, timestamp="at", timestamp_unit="ms", watermark=bl.MonotonousTimestamps())


@share(4)
@given(st.integers(1, 12), st.integers(2, 9), st.integers(2, 4), st.integers(1, 3))
def test_every_output_adds_up_to_zero_and_has_all_transfers_so_far(
    count: int, batch: int, accounts: int, shards: int
) -> None:
    p = bl.Pipeline("consistency")
    totals(balances(read(p, transfers(count, accounts), batch))).write("out", bl.Memory())
    found = [
        output_frame(frame).select("total", "transferred").rows()
        for each in Query(p.plan(), shards, seed=1).batches(batch)
        for frame in each.frames("out")
        if len(frame)
    ]
    told = [[(0, min(count, end))] for end in range(batch, count + batch, batch)]
    assert found[: len(told)] == told
    assert all(rows == told[-1] for rows in found[len(told) :])


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_same_on_spark(tmp_path: Path) -> None:
    out = bl.Memory()
    data = inputs(1_000, 10, 200, tmp_path)
    pipeline(data / "batches", out).run(
        bl.SparkRunner(checkpoint=str(tmp_path / "c"), trigger="available_now")
    )
    rows = out.frame().select("total", "transferred").rows()
    assert rows == [(0, number) for number in range(200, 1_001, 200)]
