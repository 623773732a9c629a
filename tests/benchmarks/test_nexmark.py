"""Nexmark: events are a pure function of number and seed, and each query has the same results as another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from benchmarks.nexmark import __main__ as command
from benchmarks.nexmark.answers import SQL, answer
from benchmarks.nexmark.check import difference, written
from benchmarks.nexmark.events import FIRST_TIME, KINDS, Nexmark
from benchmarks.nexmark.generate import Arrivals, write
from benchmarks.nexmark.pipeline import measured, pipeline
from benchmarks.nexmark.queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 6_000
BEFORE_MIDNIGHT = FIRST_TIME + 40_000_000
QUERY = pytest.mark.parametrize("query", QUERIES)


@pytest.fixture(scope="module")
def disorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of events, a tenth of them up to two seconds late, bids before their auctions, and two days."""
    nexmark = Nexmark(seed=3, rate=100, start=BEFORE_MIDNIGHT, lead=10)
    return write(
        tmp_path_factory.mktemp("disorder"), Arrivals(nexmark, EVENTS, 5, share=0.1, bound=2_000_000)
    )


@pytest.fixture(scope="module")
def ties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few prices and few times, so that many are equal; the files have unusual names."""
    folder, nexmark = tmp_path_factory.mktemp("ties"), Nexmark(seed=4, rate=300, start=BEFORE_MIDNIGHT)
    numbers = np.arange(EVENTS, dtype=np.int64)
    for kind in KINDS:
        frame = getattr(nexmark, kind)(numbers).with_columns(pl.col("at", "^expires$").dt.truncate("250ms"))
        if kind == "bids":
            frame = frame.with_columns(price=10 ** (pl.col("price").log10().cast(pl.Int64) + 1))
        (folder / kind).mkdir()
        for part in range(3):
            rows = frame[len(frame) * part // 3 : len(frame) * (part + 1) // 3]
            rows.write_parquet(folder / kind / f"{part}.pq.parquet")
    write(folder / "other", Arrivals(events=50, files=1))
    (folder / "other" / "side.parquet").rename(folder / "side.parquet")
    return folder


# Events


def test_an_event_depends_on_its_number_and_the_seed_alone() -> None:
    numbers, nexmark = np.arange(1_000, dtype=np.int64), Nexmark(seed=9, lead=10)
    for kind in KINDS:
        whole = getattr(nexmark, kind)(numbers)
        parts = [getattr(nexmark, kind)(part) for part in np.array_split(numbers, 7)]
        assert pl.concat(parts).equals(whole)
        assert not getattr(Nexmark(seed=8), kind)(numbers).equals(whole)


def test_events_are_as_they_are_described() -> None:
    nexmark, numbers = Nexmark(), np.arange(200_000, dtype=np.int64)
    persons, auctions, bids = (getattr(nexmark, kind)(numbers) for kind in KINDS)
    assert [len(frame) for frame in (persons, auctions, bids)] == [4_000, 12_000, 184_000]
    assert persons["id"].to_list() == list(range(1_000, 5_000))
    assert auctions["id"].to_list() == list(range(1_000, 13_000))
    assert bids["at"].cast(pl.Int64)[:2].to_list() == [FIRST_TIME + 400, FIRST_TIME + 500]
    lives = (auctions["expires"] - auctions["at"]).dt.total_milliseconds()
    assert (lives.min(), lives.max()) == (1, 333)
    assert (auctions["reserve"] - auctions["initial_bid"]).min() >= 100
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}
    assert bids["price"].is_between(100, 100_000_000).all()
    assert 0.74 < (bids["bidder"] % 100 == 1).mean() < 0.77
    assert 0.49 < bids["channel"].is_in(["Google", "Facebook", "Baidu", "Apple"]).mean() < 0.51
    others = bids.filter(pl.col("channel").str.starts_with("channel-"))
    told = others["url"].str.extract("channel_id=(.*)$")
    assert 0.88 < told.is_not_null().mean() < 0.92
    assert ("channel-" + told.drop_nulls() == others.filter(told.is_not_null())["channel"]).all()
    assert bids["url"].str.contains(r"^https://www\.nexmark\.com/\w+/\w+/\w+/item\.htm\?query=1").all()


def test_late_events_come_in_the_order_of_arrival_and_all_of_them() -> None:
    arrivals = Arrivals(Nexmark(rate=1_000), 5_000, 4, share=0.5, bound=300_000)
    files = [arrivals.numbers(file) for file in range(4)]
    together = np.concatenate(files)
    assert sorted(together) == list(range(5_000))
    behind = np.maximum.accumulate(together) - together
    assert 250 < behind.max() <= 300
    in_order = Arrivals(events=5_000, files=4)
    assert [number for file in range(4) for number in in_order.numbers(file)] == list(range(5_000))


def test_bids_may_come_before_their_auctions() -> None:
    numbers = np.arange(20_000, dtype=np.int64)
    opened = Nexmark().auctions(numbers).select(auction="id", opened="at")
    for lead, early in ((0, False), (10, True)):
        both = Nexmark(lead=lead).bids(numbers).join(opened, on="auction")
        assert (both["opened"] > both["at"]).any() is early


# Answers


@QUERY
def test_a_query_gives_what_another_program_finds(query: int, disorder: Path, tmp_path: Path) -> None:
    pipeline(query, disorder, tmp_path / "out").run(bl.LocalRunner(chunk_rows=700))
    assert difference(query, written(tmp_path / "out"), answer(query, disorder)) is None


@QUERY
def test_so_it_does_where_many_are_equal(query: int, ties: Path, tmp_path: Path) -> None:
    pipeline(query, ties, tmp_path / "out", files_per_batch=1).run()
    assert difference(query, written(tmp_path / "out"), answer(query, ties)) is None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("query", [6, 5])
def test_so_it_does_on_spark(query: int, disorder: Path, tmp_path: Path, spark: SparkSession) -> None:
    on_spark(query, disorder, tmp_path, spark, shards=2)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [one if one in (3, 4, 7, 8, 9, 11) else pytest.param(one, marks=pytest.mark.long) for one in QUERIES],
)
def test_all_do_so_on_spark(query: int, ties: Path, tmp_path: Path, spark: SparkSession) -> None:
    on_spark(query, ties, tmp_path, spark, shards=3)


@pytest.mark.slow
@QUERY
@pytest.mark.parametrize(
    ("seed", "rows"),
    [(1, 150), *(pytest.param(*one, marks=pytest.mark.long) for one in [(2, 1_999), (5, 100_000)])],
)
def test_it_depends_neither_on_batches_nor_on_the_seed(
    query: int, seed: int, rows: int, tmp_path: Path
) -> None:
    nexmark = Nexmark(seed, 1_000, BEFORE_MIDNIGHT + 18_000_000, lead=10)
    data = write(tmp_path / "data", Arrivals(nexmark, 4_000, 3, share=0.3, bound=500_000))
    pipeline(query, data, tmp_path / "out").run(bl.LocalRunner(chunk_rows=rows))
    assert difference(query, written(tmp_path / "out"), answer(query, data)) is None


def on_spark(query: int, data: Path, folder: Path, spark: SparkSession, shards: int) -> None:
    job = pipeline(query, data, folder / "out", files_per_batch=1)
    job.run(bl.SparkRunner(str(folder / "checkpoint"), session=spark, shards=shards, drain=True))
    assert difference(query, written(folder / "out"), answer(query, data)) is None


def test_what_is_wrong_is_told(disorder: Path) -> None:
    right = answer(5, disorder)
    assert set(SQL) == set(QUERIES)
    assert difference(5, right, right) is None
    assert difference(5, right[1:], right) == f"{len(right) - 1} rows, not {len(right)}"
    assert difference(5, right.drop("bids"), right) == "no column bids"
    other = difference(5, right.with_columns(pl.col("bids") + 1), right)
    assert other is not None
    assert other.startswith("bids: ")
    near = answer(1, disorder)
    assert difference(1, near.with_columns(pl.col("price") * (1 + 1e-12)), near) is None
    assert difference(1, near.with_columns(pl.col("price") * (1 + 1e-6)), near) is not None


def test_the_index_of_the_windows_is_written_once(disorder: Path, tmp_path: Path) -> None:
    pipeline(10, disorder, tmp_path).run(bl.LocalRunner(chunk_rows=500))
    lines = [line for path in (tmp_path / "_index").glob("*.jsonl") for line in path.read_text().splitlines()]
    index = [json.loads(line) for line in lines]
    folders = {folder.name.removeprefix("folder="): folder for folder in tmp_path.glob("folder=*")}
    assert sorted(window["folder"].replace(":", "%3A") for window in index) == sorted(folders)
    assert sum(window["bid"] for window in index) == EVENTS * 46 // 50


def test_the_command_takes_a_folder_and_writes_parquet(disorder: Path, tmp_path: Path) -> None:
    options = [
        "--query",
        "2",
        "--data",
        str(disorder),
        "--out",
        str(tmp_path / "out"),
        "--out-of-orderness",
        "2s",
    ]
    result = CliRunner().invoke(command.main, options)
    assert result.exit_code == 0, result.output
    assert difference(2, written(tmp_path / "out"), answer(2, disorder)) is None


def test_without_a_folder_rows_are_counted_and_dropped(disorder: Path) -> None:
    run = pipeline(2, disorder, None).run()
    assert sum(batch.sinks.get("answer", 0) for batch in run.batches) == len(answer(2, disorder))
    with pytest.raises(ValueError, match="about files"):
        pipeline(10, disorder, None)


@pytest.mark.slow
@pytest.mark.parametrize("query", [2, 7])
def test_so_they_are_on_spark(query: int, disorder: Path, tmp_path: Path, spark: SparkSession) -> None:
    runner = bl.SparkRunner(checkpoint=tmp_path / "checkpoint", session=spark, drain=True, shards=2)
    run = pipeline(query, disorder, None).run(runner)
    assert sum(batch.sinks.get("answer", 0) for batch in run.batches) == len(answer(query, disorder))


def test_no_event_is_late_by_what_was_measured(disorder: Path, tmp_path: Path) -> None:
    assert 1_500_000 < int(measured(disorder / "bids").removesuffix("us")) <= 2_000_000
    run = pipeline(9, disorder, tmp_path / "out").run(bl.LocalRunner(chunk_rows=400))
    assert not any(stage.dropped for batch in run.batches for stage in batch.stages.values())
