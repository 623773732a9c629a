"""An operator that is no grouping, in a pipeline: on both runners, with savepoint, on other shards, and under `why`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.cli.main import main
from beamlike.io import Source
from beamlike.plan.compiler import Plan
from beamlike.plan.differences import differences
from beamlike.plan.explain import explain
from beamlike.plan.manifest import describe
from beamlike.records.model import BatchRecord
from tests.support.examples import share
from tests.support.hold_back import HoldBack, with_stage
from tests.support.shards import Query, reshard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
COLUMNS = {"user": str, "at": int, "until": int, "by": int}


def row(user: str, at: int, until: int, by: int | None = None) -> dict[str, Any]:
    """Returns a row of this second with its release times: by the watermark, or by processing time."""
    return {"user": user, "at": at, "until": until * SECOND, "by": None if by is None else by * SECOND}


def held(source: Source, sink: bl.Memory, keys: Sequence[str] = ("user",)) -> Plan:
    """Plans rows that are held back on their way from the source to the sink."""
    p = bl.Pipeline("held back")
    watermark = None if isinstance(source, bl.TestStream) else bl.BoundedOutOfOrderness("3s")
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    rows.write("out", sink)
    return with_stage(p.plan(), HoldBack(tuple(keys), pl.Schema(rows.schema)))


def given_on(sink: bl.Memory) -> list[tuple[Any, ...]]:
    """Returns the rows of the sink, sorted."""
    return sorted(sink.frame().select("user", "at", "until").rows())


STREAM = (
    bl.TestStream(COLUMNS)
    .add_elements([row("a", 1, 10), row("b", 2, 20, by=5), row("c", 3, 40), row("d", 4, 40, by=60)])
    .advance_watermark_to(9)
    .advance_processing_time("5s")
    .advance_watermark_to(10)
    .add_elements([row("e", 5, 8)])
    .advance_watermark_to(39)
    .advance_processing_time("1m")
)
EMITTED = [0, 0, 1, 1, 1, 0, 1, 1]
"""The number of released rows per batch: b by processing time, a, then e, which is late, d, and at the end c."""


@pytest.mark.parametrize(
    "name", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_both_runners_give_each_row_in_the_batch_of_its_deadline(
    name: str, request: pytest.FixtureRequest
) -> None:
    sink = bl.Memory()
    local = name == "local"
    runner = bl.LocalRunner() if local else bl.SparkRunner(shards=2, session=request.getfixturevalue("spark"))
    records = {batch.batch: batch.stages["held"] for batch in runner.run(held(STREAM, sink)).batches}
    assert [records[number].emitted for number in range(len(EMITTED))] == EMITTED
    assert [records[number].output // SECOND for number in range(1, 7)] == [1, 1, 3, 3, 3, 3]
    assert len(sink.rows()) == 5


def why_after(batch: int, stream: bl.TestStream, folder: Path) -> list[str]:
    """Returns the command's output for the stage after this batch."""
    told: list[str] = []

    def ask(record: BatchRecord) -> None:
        if record.batch == batch:
            result = CliRunner().invoke(main, ["why", str(folder / "records.jsonl"), "--stage", "held"])
            assert result.exit_code == 0, result.output
            told.extend(result.output.splitlines())

    bl.LocalRunner(records=folder / "records.jsonl", on_batch=ask).run(held(stream, bl.Memory()))
    return told


def test_why_says_what_a_row_that_is_held_waits_for(tmp_path: Path) -> None:
    told = why_after(1, STREAM, tmp_path)
    assert (
        "stage `held` holds its output watermark at 1970-01-01T00:00:01Z: the row of key a in "
        "[1970-01-01T00:00:01Z, 1970-01-01T00:00:10Z) waits for its deadline"
    ) in told
    waits = (
        "that row waits for the input watermark of stage `held` to reach 1970-01-01T00:00:10Z, which is at "
    )
    assert f"{waits}1970-01-01T00:00:09Z, 1s to go" in told


def test_why_says_for_which_processing_time_a_row_waits(tmp_path: Path) -> None:
    stream = bl.TestStream(COLUMNS).add_elements([row("d", 4, 40, by=60)]).advance_watermark_to(9)
    assert (
        "that row waits for the input watermark of stage `held` to reach 1970-01-01T00:00:40Z, which is at "
        "1970-01-01T00:00:09Z, 31s to go, or for processing time to reach 1970-01-01T00:01:00Z"
    ) in why_after(1, stream, tmp_path)


def test_the_plan_says_what_the_operator_is_and_state_of_another_one_is_refused() -> None:
    plan = held(STREAM, bl.Memory())
    assert "operator    HoldBack" in explain(plan)
    other = held(STREAM, bl.Memory(), keys=("user", "at"))
    (_, found) = sorted(map(str, differences(describe(plan, 2), describe(other, 2))))
    assert found.startswith("stage 'held': keys was user: String, now user: String, at: Int64")
    assert differences(describe(plan, 2), describe(plan, 2)) == []


rows = st.builds(row, st.sampled_from("abcdef"), st.integers(0, 40), st.integers(0, 50))


@share(2)
@given(
    batches=st.lists(st.lists(rows, min_size=1, max_size=8), min_size=1, max_size=5),
    cut=st.integers(0, 5),
    shards=st.tuples(*[st.sampled_from([1, 2, 3, 7])] * 2),
)
def test_other_shards_give_the_same_rows_in_the_same_batches(
    batches: list[list[dict[str, Any]]], cut: int, shards: tuple[int, int]
) -> None:
    schema = {"user": pl.String, "at": pl.Int64, "until": pl.Int64, "by": pl.Int64}
    chunks = [pl.LazyFrame(batch, schema=schema) for batch in batches]
    plan = held(bl.Rows([one for batch in batches for one in batch], schema=COLUMNS), bl.Memory())
    query, undisturbed = Query(plan, shards[0]), Query(plan, shards[0])
    for number, chunk in enumerate([*chunks, None]):
        if number == cut:
            query = reshard(query, plan, shards[1])
        arrived = None if chunk is None else {"rows": chunk}
        got, expected = (
            sorted(one for frame in run.batch(arrived).frames("out") for one in frame.rows())
            for run in (query, undisturbed)
        )
        assert got == expected


FILES, HALF = 6, 3


def write(folder: Path, first: int, last: int) -> None:
    """Writes rows of twenty users, ten seconds a file, which are released after up to half a minute."""
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        file = folder / f"{number}.jsonl"
        at = [10 * number + user % 10 for user in range(20)]
        each = [
            row(f"u{user}", time, time + 7 * user % 30, by=user % 2 or None) for user, time in enumerate(at)
        ]
        pl.DataFrame(
            each, schema={"user": pl.String, **dict.fromkeys(("at", "until", "by"), pl.Int64)}
        ).write_ndjson(file)
        os.utime(file, (1_000_000_000 + number,) * 2)


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_held_goes_on_from_a_savepoint_on_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    from beamlike.spark.savepoint import savepoint as savepoints

    files = bl.JSONLines(tmp_path / "rows", schema=COLUMNS, max_files_per_trigger=1)
    before, after, undisturbed = bl.Memory(), bl.Memory(), bl.Memory()
    write(tmp_path / "rows", 0, HALF)
    runner = bl.SparkRunner(str(tmp_path / "two"), session=spark, shards=2)
    assert runner.run(held(files, before)).batches[-1].stages["held"].live > 0
    savepoints.save(str(tmp_path / "two"), str(tmp_path / "saved"), session=spark)
    write(tmp_path / "rows", HALF, FILES)
    plan = held(files, after)
    assert (
        savepoints.restore(str(tmp_path / "saved"), str(tmp_path / "three"), plan, shards=3, session=spark)
        == []
    )
    bl.SparkRunner(str(tmp_path / "three"), session=spark, drain=True).run(plan)
    bl.LocalRunner().run(held(files, undisturbed))
    assert given_on(before)
    assert len(given_on(undisturbed)) == 20 * FILES
    assert sorted([*given_on(before), *given_on(after)]) == given_on(undisturbed)
