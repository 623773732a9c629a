"""Operators over changes on a stage alone: rows per CPU second, beside the same operator over rows.

    POLARS_MAX_THREADS=1 python -m benchmarks.changes [--operator max ...]

Batches have 100 thousand rows of 10 thousand keys. From the second batch on, one row in a hundred of the batch before
is retracted; with allowed lateness it is replaced by another value, so results that were emitted are corrected. State
is a dict in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import click
import numpy as np
import polars as pl

import beamlike as bl
from beamlike.plan.compiler import compile_plan
from benchmarks import readme
from benchmarks.kept import Figures
from benchmarks.machine import machine
from benchmarks.section import Section
from stages.joins.base import LEFT, RIGHT
from stages.operator import MAIN
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, PANE_RETRACTED

SECOND: Final = 1_000_000
ROWS: Final = 100_000
KEYS: Final = 10_000
CORRECTED: Final = 0.01
SPAN: Final = 10
"""The seconds of event time of a batch."""
LATENESS: Final = "1m"
WARM_UP: Final = 2


class Count(bl.Process):
    """The number of rows of a key."""

    n = bl.Value(int, default=0)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.n += 1
        yield {"n": self.n}


def early(rows: bl.Collection) -> bl.Collection:
    """Returns windows of ten minutes with a pane for each batch, which corrects the one before."""
    trigger = bl.AfterWatermark(early=bl.AfterCount(1), late=bl.AfterCount(1))
    return rows.window_into(bl.FixedWindows("10m"), trigger=trigger, accumulation=bl.RETRACTING)


OPERATORS: Final[dict[str, Callable[[bl.Collection], bl.Collection]]] = {
    "sum": lambda rows: early(rows).group_by("key").aggregate(v=bl.sum("value")),
    "max": lambda rows: early(rows).group_by("key").aggregate(v=bl.max("value")),
    "top": lambda rows: early(rows).group_by("key").aggregate(v=bl.top("value", 3)),
    "running": lambda rows: rows.group_by("key").running(total=bl.sum("value"), n=bl.count()),
    "process": lambda rows: rows.group_by("key").process(Count(), {"n": int}, keep_forever=True),
    "as-of join": lambda rows: rows.join_asof(rows, on="key"),
    "interval join": lambda rows: rows.join(rows, on="key", within=("0s", "10s")),
    "dedup": lambda rows: rows.dedup("key", "value", within="1m"),
    "distinct": lambda rows: rows.select("key", "value").distinct(),
}
"""The operators by name, each as a function of its input."""


@attrs.frozen
class Job:
    """An operator over rows or over changes with some allowed lateness."""

    operator: str
    changes: bool
    lateness: str = "0s"

    @property
    def is_late(self) -> bool:
        return self.lateness != "0s"

    def stage(self) -> Stage:
        """Returns the stage of the operator, as the compiler makes it."""
        schema = {"key": int, "value": int, "back": bool, "at": int}
        source = bl.TestStream(schema).advance_watermark_to_infinity()
        log = (
            bl.Pipeline("p")
            .read("log", source, timestamp="at", timestamp_unit="s")
            .select("key", "value", "back")
        )
        rows = bl.changes(log, op="back", before=None, after=None) if self.changes else log.drop("back")
        once = bl.Repeatedly(bl.AfterCount(1))
        placed = rows.window_into(bl.GlobalWindows(), trigger=once, allowed_lateness=self.lateness)
        out = OPERATORS[self.operator](placed).write("out", bl.Memory())
        (stage,) = compile_plan(out.pipeline).stages.values()
        return stage.stage

    def batches(self, schema: pl.Schema, count: int) -> Iterator[pl.DataFrame]:
        """Yields batches with the columns of the operator's input."""
        random = np.random.default_rng(1)
        before: pl.DataFrame | None = None
        for number in range(count):
            times = random.integers(number * SPAN * SECOND, (number + 1) * SPAN * SECOND, ROWS)
            keys, values = random.integers(0, KEYS, ROWS), random.integers(0, 100, ROWS)
            rows = pl.DataFrame({"key": keys, "value": values, EVENT_TIME: times, PANE_RETRACTED: False})
            of = before if self.is_late else rows
            back = rows.clear() if of is None else of.sample(fraction=CORRECTED, seed=number)
            before = rows
            parts = [rows]
            if self.changes:
                again = back.with_columns(pl.col("value") + 1)
                parts += [back.with_columns(pl.lit(True).alias(PANE_RETRACTED)), again]
            yield self._fitted(pl.concat(parts), schema)

    @staticmethod
    def _fitted(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
        if LEFT in schema:
            left, row = pl.col(EVENT_TIME) % 2 == 0, pl.struct("key", "value")
            sides = (pl.when(left).then(row).alias(LEFT), pl.when(~left).then(row).alias(RIGHT))
            rows = rows.with_columns(sides)
        columns = [name for name in schema if name in rows.columns]
        return rows.select(pl.col(name).cast(schema[name]) for name in columns)


def rate(job: Job, batches: int) -> float:
    """Returns rows per CPU second. Raises `RuntimeError` if the operator drops a row."""
    stage, store, used = job.stage(), DictStore(), 0.0
    operator = stage.operator
    for number, rows in enumerate(job.batches(operator.inputs[MAIN].schema, batches + WARM_UP)):
        began = time.process_time()
        arrivals = operator.concat_arrivals([operator.pre_aggregated(rows)])
        step = stage.step(store, {MAIN: arrivals}, Times.of((number + 1) * SPAN * SECOND))
        took = time.process_time() - began
        if any(step.dropped.values()):
            raise RuntimeError(f"{job}: dropped {step.dropped}")
        used += took if number >= WARM_UP else 0.0
    return ROWS * batches / used


def lines(figures: Sequence[Figures]) -> Iterator[str]:
    """Returns the table of the page, in rows per CPU second."""
    rows = ((each["operator"], *(f"{each[kind]:,.0f}" for kind in KINDS)) for each in figures)
    return readme.table(("operator", "rows", "changes", f"changes, {LATENESS} of lateness"), rows)


KINDS: Final = ("rows", "changes", "late changes")
SECTION = Section("changes", ("operator",), lines)


@click.command()
@click.option(
    "--operator", "chosen", multiple=True, type=click.Choice([*OPERATORS]), help="Only this; default: all."
)
@click.option("--batches", default=8, show_default=True, type=click.IntRange(1), help="Batches that count.")
def main(chosen: tuple[str, ...], batches: int) -> None:
    """Prints a table of rows per CPU second."""
    for name in chosen or OPERATORS:
        jobs = (Job(name, changes=False), Job(name, changes=True), Job(name, changes=True, lateness=LATENESS))
        rates = {kind: rate(job, batches) for kind, job in zip(KINDS, jobs, strict=True)}
        SECTION.keep([{"operator": name, **rates}], machine(None))
    SECTION.show()
    click.echo("\n".join(SECTION.text()))


if __name__ == "__main__":
    main()
