"""Operators whose state is read by key, on a stage alone: batches of rows with random keys of so many live rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs
import click
import numpy as np
import polars as pl

import beamlike as bl
from benchmarks.process_stage import Silence
from benchmarks.state_stage import Batch, CountingStore
from stages.joins.base import LEFT, RIGHT
from stages.operator import MAIN
from stages.stage import Stage
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import MIN_TIME

_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
_PART: Final = 500_000  # rows of a batch that makes state
_RETRACTED: Final = 0.1  # of the rows of a batch, if rows may be retracted
_WARM_UP: Final = 3


def _early(rows: bl.Collection, count: int, accumulation: bl.Accumulation = bl.DISCARDING) -> bl.Collection:
    trigger = bl.AfterWatermark(early=bl.AfterCount(count))
    return rows.window_into(bl.FixedWindows("1d"), trigger=trigger, accumulation=accumulation)


def _sums(rows: bl.Collection) -> bl.Collection:
    return _early(rows, 10).group_by("user").aggregate(score=bl.sum("score"), rows=bl.count())


def _process(rows: bl.Collection) -> bl.Collection:
    return rows.group_by("user").process(Silence(), {"user": int, "since": datetime, "rows": int})


def _greatest(rows: bl.Collection) -> bl.Collection:
    return _early(rows, 1, bl.RETRACTING).group_by("user").aggregate(score=bl.max("score"))


def _top(rows: bl.Collection) -> bl.Collection:
    return _early(rows, 1, bl.RETRACTING).group_by("user").aggregate(score=bl.top("score", 3))


@attrs.frozen
class Job:
    """An operator, and how its state is made.

    Attributes:
        apply: The operator as a function of its input.
        ends: True if a row is live for an hour, in which all rows of the state arrive.
        changes: True if rows may be retracted.
        sides: The number of rows of each key: 2 if both sides of a join have state.
        versions: True if the state is made of rows of the right side only.
    """

    apply: Callable[[bl.Collection], bl.Collection]
    ends: bool = False
    changes: bool = False
    sides: int = 1
    versions: bool = False

    def stage(self) -> Stage:
        """Returns the stage of the operator, as the compiler makes it."""
        schema = {"user": int, "score": int, "back": bool, "at": int}
        source = bl.TestStream(schema).advance_watermark_to_infinity()
        read = bl.Pipeline("p").read("rows", source, timestamp="at", timestamp_unit="s")
        rows = read.select("user", "score", "back")
        rows = bl.changes(rows, op="back", before=None, after=None) if self.changes else rows.drop("back")
        out = self.apply(rows).write("out", bl.Memory())
        (stage,) = out.pipeline.plan().stages.values()
        return stage.stage


OPERATORS: Final = {
    "early panes": Job(_sums),
    "max of changes": Job(_greatest, changes=True),
    "top of changes": Job(_top, changes=True),
    "running": Job(lambda rows: rows.group_by("user").running(total=bl.sum("score"), rows=bl.count())),
    "process": Job(_process),
    "dedup": Job(lambda rows: rows.dedup("user", within="1h"), ends=True),
    "distinct": Job(lambda rows: rows.select("user").distinct()),
    "interval join": Job(lambda rows: rows.join(rows, on="user", within=("0s", "1h")), ends=True, sides=2),
    "interval join, outer": Job(
        lambda rows: rows.join(rows, on="user", within=("0s", "1h"), how="full"), ends=True, sides=2
    ),
    "as-of join": Job(lambda rows: rows.join_asof(rows, on="user"), versions=True),
    "join, kept for ever": Job(lambda rows: rows.join(rows, on="user", keep_forever=True), sides=2),
}


@attrs.define
class Bench:
    """An operator with so many live rows, whose batches have so many arrivals."""

    job: Job
    rows: int
    arrivals: int
    stage: Stage = attrs.field(init=False)
    store: CountingStore = attrs.field(factory=CountingStore)
    _random: np.random.Generator = attrs.field(factory=lambda: np.random.default_rng(7))
    _before: pl.DataFrame | None = None

    def __attrs_post_init__(self) -> None:
        self.stage = self.job.stage()

    @property
    def _keys(self) -> int:
        return max(1, self.rows // self.job.sides)

    def fill(self) -> None:
        """Makes the live rows, of which each has another key or, in joins, each side has."""
        for part in self.parts():
            times = part[EVENT_TIME]
            rows = self._input(part, right_only=self.job.versions)
            clock = int(times[-1]) if self.job.ends else MIN_TIME if self.job.versions else 0
            self.stage.step(self.store, {MAIN: rows}, Times.of(clock, 0))

    def parts(self) -> Iterator[pl.DataFrame]:
        """Yields the users, scores and times of the live rows."""
        keys = self._random.permutation(self.rows) % self._keys
        times = np.zeros(self.rows, np.int64)
        if self.job.ends:
            times = np.sort(self._random.integers(-_HOUR, 0, self.rows))
        for first in range(0, self.rows, _PART):
            part = slice(first, first + _PART)
            yield self._rows(keys[part], times[part])

    def arriving(self, count: int) -> Iterator[pl.DataFrame]:
        """Yields the users, scores and times of the rows of batches."""
        for number in range(count):
            times = number * self._span + np.sort(self._random.integers(0, self._span, self.arrivals))
            yield self._rows(self._random.integers(0, self._keys, len(times)), times)

    @property
    def _span(self) -> int:
        """The event time (us) of a batch."""
        return max(1, _HOUR * self.arrivals // self.rows) if self.job.ends else _SECOND

    def batches(self, count: int) -> Iterator[Batch]:
        """Yields the costs of batches."""
        for number, arrived in enumerate(self.arriving(count)):
            rows = self._with_retractions(self._input(arrived))
            now = Times.of((number + 1) * self._span, (number + 1) * self._span)
            self.store.reset()
            wall, cpu = time.perf_counter(), time.process_time()
            step = self.stage.step(self.store, {MAIN: rows}, now)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            used = self.store.calls, self.store.read, self.store.written
            yield Batch(wall, cpu, *used, len(step.panes), step.live, self.store.bytes)

    def _rows(self, keys: np.ndarray, times: np.ndarray) -> pl.DataFrame:
        columns = {"user": keys, "score": self._random.integers(0, 100, len(keys)), "at": times}
        return pl.DataFrame({**columns, EVENT_TIME: times})

    def _input(self, rows: pl.DataFrame, *, right_only: bool = False) -> pl.DataFrame:
        """Converts rows to the input of the stage."""
        schema = self.stage.operator.inputs[MAIN].schema
        rows = rows.with_columns(pl.lit(False).alias(PANE_RETRACTED))
        if LEFT in schema:
            right = pl.lit(True) if right_only else pl.int_range(pl.len()) % 2 == 1
            side = pl.struct("user", "score")
            rows = rows.with_columns(
                pl.when(~right).then(side).alias(LEFT), pl.when(right).then(side).alias(RIGHT)
            )
        kept = [name for name in schema if name in rows.columns]
        flag = [PANE_RETRACTED] if self.job.changes else []
        return rows.select(*(pl.col(name).cast(schema[name]) for name in kept), *flag)

    def _with_retractions(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replaces some rows of a batch by retractions of rows of the batch before."""
        if not self.job.changes:
            return rows
        before, self._before = self._before, rows
        if before is None:
            return rows
        back = before.sample(fraction=_RETRACTED, seed=1).with_columns(pl.lit(True).alias(PANE_RETRACTED))
        self._before = rows.head(len(rows) - len(back))
        return pl.concat([self._before, back])


def run(job: Job, rows: int, arrivals: int, batches: int) -> list[Batch]:
    """Returns the costs of the batches after those that warm up."""
    bench = Bench(job, rows, arrivals)
    bench.fill()
    return list(bench.batches(_WARM_UP + batches))[_WARM_UP:]


@click.command()
@click.argument("operator", type=click.Choice(list(OPERATORS)))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rows", required=True, type=click.IntRange(1))
@click.option("--arrivals", required=True, type=click.IntRange(1))
@click.option("--batches", required=True, type=click.IntRange(1))
def main(operator: str, out: Path, rows: int, arrivals: int, batches: int) -> None:
    """Run an operator on a stage and write a list of what each batch took to the file OUT."""
    measured = run(OPERATORS[operator], rows, arrivals, batches)
    out.write_text(json.dumps([attrs.asdict(batch) for batch in measured]))


if __name__ == "__main__":
    main()
