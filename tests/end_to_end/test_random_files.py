"""Random pipelines over files: the same rows in process and on Spark, on several shards.

A batch reads some files of each source, all of one modification time; rows are out of order, late, or invalid.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import beamlike as bl
from tests.support.fuzz import as_texts
from tests.support.strategies import all_windows, fixed_windows, sliding_windows, us, windowings
from windowing import TimestampOf, WindowFn, Windowing
from windowing.clocks import WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pair = tuple[Windowing, WindowFn]
"""The windowing of a pipeline's first grouping, and the windows of the second."""


def by_event_time(windowing: Windowing) -> bool:
    """True for windowings without processing time, which differs between runs, and without percentiles."""
    chosen = isinstance(windowing.timestamp_combiner, TimestampOf)
    return not chosen and windowing.trigger.clocks() <= {WATERMARK}


def drawn(count: int, number: int = 0) -> list[Pair]:
    """Returns `count` random windowings, the same each time."""
    found: list[Pair] = []

    @seed(number)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(windowings(windows=all_windows).filter(by_event_time), fixed_windows | sliding_windows)
    def draw(first: Windowing, second: WindowFn) -> None:
        found.append((first, second))

    draw()
    return found


SOURCES = {"rows": 6, "others": 5}
"""The number of files of each source."""


def files(folder: Path, number: int = 0) -> Path:
    """Writes files of JSON lines, all of one modification time, whose names are not in order of time.

    Most have invalid lines. Of each source, one file has only invalid lines and one is empty.
    """
    rng = random.Random(number)
    for source, count in SOURCES.items():
        (folder / source).mkdir(parents=True)
        bad, empty = rng.sample(range(count), 2)
        for file in range(count):
            lines = [] if file == empty else [line(rng, file, 1 if file == bad else 0.04) for _ in range(25)]
            path = folder / source / f"part-{file:02d}.jsonl"
            path.write_text("\n".join(lines))
            os.utime(path, (1_000_000_000, 1_000_000_000))
    return folder


def line(rng: random.Random, file: int, bad: float) -> str:
    late = 40 if rng.random() < 0.1 else 0
    at = 20 * file + rng.randint(0, 25) - late
    row = {"key": rng.choice("abcde"), "value": rng.randint(-9, 9), "at": at}
    return "no row" if rng.random() < bad else json.dumps(row)


def declare(
    folder: Path, pairs: Sequence[Pair], most: int | None = 1
) -> tuple[bl.Pipeline, dict[str, bl.Memory]]:
    """Declares two sources, two consecutive groupings for each pair, and a sink for everything.

    `most` is the number of files of each source in a batch; None for all.
    """
    p, sinks = bl.Pipeline("random files"), dict[str, bl.Memory]()
    schema = {"key": str, "value": int, "at": int}
    rows = [
        p.read(
            source,
            bl.JSONLines(folder / source, schema=schema, max_files_per_trigger=most),
            timestamp="at",
            timestamp_unit="us",
            watermark=bl.BoundedOutOfOrderness(us(10)),
        )
        for source in SOURCES
    ]

    def write(name: str, collection: bl.Collection) -> None:
        sinks[name] = bl.Memory()
        collection.write(name, sinks[name])

    for source, read in zip(SOURCES, rows, strict=True):
        write(f"letters of {source}", read.dead_letters())
    both = bl.flatten(*rows)
    for number, (first, second) in enumerate(pairs):
        choices = {field.name: getattr(first, field.name) for field in attrs.fields(Windowing)}
        grouped = both.window_into(**choices).group_by("key", name=f"first {number}")
        panes = grouped.aggregate(value=bl.sum("value"), n=bl.count())
        write(f"panes {number}", panes.with_columns(nonspeculative=bl.pane_nonspeculative_index()))
        write(f"late {number}", panes.late().select("key", "value", "reason"))
        totals = panes.window_into(second).aggregate(value=bl.sum("value"), n=bl.sum("n"))
        write(f"totals {number}", totals.named(f"second {number}"))
    return p, sinks


def in_process(folder: Path, pairs: Sequence[Pair], most: int | None) -> dict[str, list[str]]:
    p, sinks = declare(folder, pairs, most)
    p.run()
    return as_texts(sinks)


MORE = [
    pytest.param(12, 1, 1, marks=pytest.mark.slow),
    pytest.param(12, 2, 2, marks=[pytest.mark.slow, pytest.mark.long]),
    pytest.param(12, 3, None, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("count", "number", "most"), [(8, 0, 1), *MORE])
def test_spark_gives_the_same_rows(
    spark: SparkSession, tmp_path: Path, count: int, number: int, most: int | None
) -> None:
    folder, pairs = files(tmp_path / "rows", number), drawn(count, number)
    expected = in_process(folder, pairs, most)
    assert min(len(expected[f"letters of {source}"]) for source in SOURCES) >= 25
    assert most is None or sum(len(expected[f"late {one}"]) > 0 for one in range(count)) >= count // 3
    p, sinks = declare(folder, pairs, most)
    p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=3, drain=True))
    assert as_texts(sinks) == expected
