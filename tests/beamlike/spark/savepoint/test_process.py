"""Keyed state and timers resume on another number of shards, with a new field, and in the same checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.spark.savepoint import savepoint as savepoints
from tests.beamlike.spark.savepoint.test_savepoint import FILES, HALF, read, write
from tests.support.examples import share
from tests.support.shards import Batch, Query, reshard


class Silence(bl.Process):
    """Emits a user that is silent for ten seconds, with all its state, and at the end all users."""

    n = bl.Value(int, default=0)
    scores = bl.List(int)
    by_score = bl.Map(int, int)
    total = bl.Combining(bl.sum("score"))
    recent = bl.Value(int, ttl="15s")
    quiet = bl.EventTimer()
    again = bl.EventTimers()
    seen = bl.ProcessingTimer(hold=True)

    def element(self, row: dict[str, Any]) -> None:
        self.n += 1
        self.scores.append(row["score"])
        self.by_score[row["score"]] = self.by_score.get(row["score"], 0) + 1
        self.total.add(row)
        self.recent = row["score"]
        self.quiet.after("10s", output=self.time)
        self.again.after("25s", tag=str(row["score"] % 2))
        self.seen.after("1d")

    def on_quiet(self) -> Iterator[dict[str, Any]]:
        yield self.told("quiet")

    def on_again(self, tag: str) -> Iterator[dict[str, Any]]:
        yield self.told(tag)

    def on_seen(self) -> Iterator[dict[str, Any]]:
        yield self.told("seen")

    def told(self, what: str) -> dict[str, Any]:
        kept = f"{self.n} {self.scores} {self.by_score} {self.total.read()} {self.recent}"
        return {"user": self.key.user, "what": what, "kept": kept}


class WithMore(Silence):
    """The process `Silence` with a new field and a new timer."""

    more = bl.Value(int, default=7)
    later = bl.EventTimer()

    def on_later(self) -> None:
        """Does nothing; the timer is never set."""

    def told(self, what: str) -> dict[str, Any]:
        assert self.more == 7
        return super().told(what)


class OtherType(Silence):
    n = bl.Value(float, default=0.0)


class WithoutField(Silence):
    recent = None  # type: ignore[assignment]


SCHEMA = {"user": str, "what": str, "kept": str}


def on_rows(batches: list[list[tuple[str, int]]], process: bl.Process) -> bl.Pipeline:
    p = bl.Pipeline("p")
    source = bl.Rows(pl.concat(chunks(batches)).collect().rows(named=True), schema=COLUMNS)
    bound = bl.BoundedOutOfOrderness("3s")
    plays = p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bound)
    plays.group_by("user", name="silences").process(process, SCHEMA).write("out", bl.Memory())
    plays.group_by("user", name="so far").running(n=bl.count(), before=bl.previous("score")).write(
        "running", bl.Memory()
    )
    return p


COLUMNS = {"user": str, "at": int, "score": int}


def chunks(batches: list[list[tuple[str, int]]]) -> list[pl.LazyFrame]:
    number = iter(range(1000))
    return [
        pl.LazyFrame([(user, at, next(number) % 5) for user, at in batch], schema=COLUMNS, orient="row")
        for batch in batches
    ]


def rows(batches: list[Batch], sink: str) -> list[tuple[Any, ...]]:
    return sorted((row for batch in batches for frame in batch.frames(sink) for row in frame.rows()), key=str)


elements = st.tuples(st.sampled_from("abcdefg"), st.integers(0, 60))


@pytest.mark.slow
@share(2)
@given(
    batches=st.lists(st.lists(elements, max_size=8), min_size=2, max_size=5),
    cut=st.integers(0, 5),
    shards=st.tuples(*[st.sampled_from([1, 2, 3, 7])] * 2),
)
def test_other_shards_and_a_field_that_is_new_change_nothing(
    batches: list[list[tuple[str, int]]], cut: int, shards: tuple[int, int]
) -> None:
    plan, changed = (on_rows(batches, process).plan() for process in (Silence(), WithMore()))
    query, undisturbed = Query(plan, shards[0]), Query(plan, 1)
    got, expected = [], []
    for number, chunk in enumerate([*chunks(batches), None]):
        if number == cut:
            query = reshard(query, changed, shards[1])
        arrived = None if chunk is None else {"plays": chunk}
        got.append(query.batch(arrived))
        expected.append(undisturbed.batch(arrived))
    for sink in ("out", "running"):
        assert rows(got, sink) == rows(expected, sink)


def silences(folder: Path, out: bl.Memory, process: bl.Process) -> bl.Pipeline:
    p = bl.Pipeline("silences")
    plays = read(p, "plays", folder / "plays")
    plays.group_by("user", name="silences").process(process, SCHEMA).write("out", out)
    return p


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_a_run_goes_on_from_its_checkpoint_and_from_a_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, before = tmp_path, bl.Memory()
    write(folder / "plays", 0, HALF)
    options: dict[str, Any] = {"session": spark}
    silences(folder, before, Silence()).run(bl.SparkRunner(str(folder / "two"), shards=2, **options))
    savepoints.save(str(folder / "two"), str(folder / "saved"), session=spark)
    write(folder / "plays", HALF, FILES)
    whole = bl.Memory()
    silences(folder, whole, Silence()).run()
    expected = sorted(whole.frame().rows())
    plan = silences(folder, after := bl.Memory(), WithMore())
    assert (
        savepoints.restore(str(folder / "saved"), str(folder / "five"), plan.plan(), shards=5, session=spark)
        == []
    )
    plan.run(bl.SparkRunner(str(folder / "five"), drain=True, **options))
    assert sorted([*before.frame().rows(), *after.frame().rows()]) == expected
    for process, why in (
        (OtherType(), r"state field or timer n was Value\(Int64\), now Value\(Float64\)"),
        (WithoutField(), r"state field or timer recent was Value\(Int64\), now gone"),
    ):
        with pytest.raises(bl.CheckpointError, match=why):
            silences(folder, bl.Memory(), process).run(bl.SparkRunner(str(folder / "two"), **options))
    plan = silences(folder, again := bl.Memory(), WithMore())
    plan.run(bl.SparkRunner(str(folder / "two"), drain=True, **options))
    assert sorted([*before.frame().rows(), *again.frame().rows()]) == expected
