"""Plays random chains of operators on a runner, and sums up the rows that they emit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import narwhals as nw
import polars as pl
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io.base import Part, output_frame
from beamlike.plan.stepped import steps_of
from beamlike.spark.checkpoint.commands import EndSources, PlayStep
from beamlike.testing.player import Recorder
from tests.support.chains import Operator, Panes
from tests.support.shards import Query, reshard

Row = tuple[str, int, int, bool]
"""(key, value, second, whether it retracts an earlier row)"""

Bundle = tuple[tuple[Row, ...], int | None]
"""Rows, and the watermark (s) to which the clock moves after them, if it does."""

Net = Counter[tuple[Any, ...]]

SCHEMA = pl.Schema({"key": pl.String(), "value": pl.Int64(), "at": pl.Int64(), "back": pl.Boolean()})


@st.composite
def bundles(draw: st.DrawFn) -> list[Bundle]:
    """Draws bundles in any order of time, with a watermark that stays or advances.

    Some bundles retract rows that the watermark has not passed.
    """
    watermark, made, there = -1, [], list[Row]()
    log = draw(st.booleans())
    row = st.tuples(st.sampled_from("ab"), st.integers(-4, 9), st.integers(0, 25), st.just(False))
    for rows in draw(st.lists(st.lists(row, max_size=3), min_size=1, max_size=5)):
        there = [one for one in there if one[2] > watermark] + rows
        if log and there and draw(st.booleans()):
            gone = there.pop(draw(st.integers(0, len(there) - 1)))
            rows = [*rows, (*gone[:3], True)]
        step = draw(st.sampled_from([0, 0, 4, 9]))
        watermark += step
        made.append((tuple(rows), watermark if step else None))
    return made


def played(
    operators: Sequence[Operator],
    given: Sequence[Bundle],
    panes: Panes = "drawn",
    shards: int = 0,
    moved: tuple[int, int] | None = None,
) -> list[Net]:
    """Returns the net changes of each bundle and of the end of input; `shards` runs it on shards, as Spark does.

    `moved` is the number of a bundle and of shards: before it, the run is restored from a savepoint on that many
    shards.
    """
    p, recorder = bl.Pipeline("chain"), Recorder()
    stream, ends = bl.TestStream(SCHEMA), []
    for rows, watermark in given:
        stream = stream.add_elements([dict(zip(SCHEMA, row, strict=True)) for row in rows])
        if watermark is not None:
            stream = stream.advance_watermark_to(watermark)
        ends.append(len(stream.steps))
    collection = p.read("rows", stream.advance_watermark_to_infinity(), timestamp="at", timestamp_unit="s")
    if any(row[-1] for rows, _ in given for row in rows):
        collection = bl.changes(
            collection, op="back", before=None, after=None, timestamp="at", timestamp_unit="s"
        )
    collection = collection.select("key", "value")
    for operator in operators:
        collection = operator.apply(collection, panes)
    collection.with_columns(time=bl.event_time().cast(nw.Int64)).write("out", recorder)
    at = None if moved is None else ([0, *ends][moved[0]], moved[1])
    count = _run(p, recorder, shards, at)
    return [
        _net(recorder.rows(range(start, end))) for start, end in pairwise([0, *ends, max(count, ends[-1])])
    ]


def _run(p: bl.Pipeline, recorder: Recorder, shards: int, moved: tuple[int, int] | None) -> int:
    """Runs a pipeline and returns the number of its batches."""
    if not shards:
        return len(p.run(bl.LocalRunner()).batches)
    plan = p.plan()
    query, orders = Query(plan, shards, seed=shards), [*map(PlayStep, range(steps_of(plan) or 0))]
    for number, order in enumerate([*orders, EndSources(tuple(plan.sources))]):
        if moved is not None and moved[0] == number:
            query = reshard(query, plan, moved[1])
        for task, frame in enumerate(query.ordered(order).frames("out")):
            recorder.write(output_frame(frame), Part("chain", number, task))
    return len(orders) + 1


def _net(rows: Sequence[dict[str, Any]]) -> Net:
    net: Net = Counter()
    for row in rows:
        net[row["key"], row["value"], row["time"]] += -1 if row.get("pane_retracted") else 1
    return net


def total(nets: Sequence[Net]) -> Net:
    """Returns the net content after these changes."""
    found: Net = Counter()
    for net in nets:
        found.update(net)
    return Counter({row: count for row, count in found.items() if count})
