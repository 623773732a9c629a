"""Cogroups and joins in the same windows, compared with nested loops, for any bundles and shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import Part, output_frame
from beamlike.steps.joins import How
from tests.support.examples import share
from tests.support.model_joins import windowed_join
from tests.support.shards import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Element = tuple[str | None, int]
"""Key and second."""

NEVER_LATE = bl.BoundedOutOfOrderness("1h")
WINDOWS: dict[str, tuple[bl.WindowFn, Callable[[int], list[int]]]] = {
    "fixed": (bl.FixedWindows("10s"), lambda at: [at // 10 * 10]),
    "sliding": (bl.SlidingWindows("10s", "5s"), lambda at: [at // 5 * 5, at // 5 * 5 - 5]),
    "global": (bl.GlobalWindows(), lambda at: [0]),
}

elements = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 25)), max_size=8)


def side(p: bl.Pipeline, name: str, rows: list[Element], per_batch: int = 2) -> bl.Collection:
    frame = pl.DataFrame(
        [(key, at, number) for number, (key, at) in enumerate(rows)],
        {"key": pl.String(), "at": pl.Int64(), "n": pl.Int64()},
        orient="row",
    )
    source = bl.Rows(frame, rows_per_batch=per_batch)
    return p.read(name, source, timestamp="at", timestamp_unit="s", watermark=NEVER_LATE)


def written(p: bl.Pipeline, shards: int | None) -> list[dict[str, Any]]:
    """Runs a pipeline, on shards if given, and returns the rows of the sink "out"."""
    (out,) = (write.sink for write in p.writes if write.name == "out")
    if shards is None:
        p.run()
    else:
        for number, batch in enumerate(Query(p.plan(), shards).batches()):
            for task, frame in enumerate(batch.frames("out")):
                out.write(output_frame(frame), Part(p.name, number, task))
    return out.rows()


@given(
    elements,
    elements,
    st.sampled_from(get_args(How)),
    st.sampled_from(sorted(WINDOWS)),
    st.integers(1, 5),
    st.sampled_from([None, 1, 3]),
)
def test_a_join_is_what_nested_loops_find(
    left: list[Element], right: list[Element], how: Any, windows: str, per_batch: int, shards: int | None
) -> None:
    window_fn, starts = WINDOWS[windows]
    p = bl.Pipeline("join")
    sides = [side(p, "l", left, per_batch), side(p, "r", right, 6 - per_batch)]
    both = [one.window_into(window_fn) for one in sides]
    both[0].join(both[1], on="key", how=how).write("out", bl.Memory())
    expected = []
    for start in {start for _, at in (*left, *right) for start in starts(at)}:
        mine = [
            [(key, (key, n)) for n, (key, at) in enumerate(rows) if start in starts(at)]
            for rows in (left, right)
        ]
        expected += windowed_join(how, *mine)
    keys = [(one or other)[0] for one, other in expected]
    wanted = [
        (key, one and one[1], other and other[1]) for key, (one, other) in zip(keys, expected, strict=True)
    ]
    found = [(row["key"], row["n"], row.get("n_right")) for row in written(p, shards)]
    assert Counter(found) == Counter(wanted)


@share(2)
@given(elements, elements, st.integers(1, 5), st.sampled_from([None, 1, 3]))
def test_a_cogroup_by_sessions_has_all_rows_of_both_once_and_in_order(
    left: list[Element], right: list[Element], per_batch: int, shards: int | None
) -> None:
    p = bl.Pipeline("cogroup")
    sessions = bl.Sessions("3s")
    sides = [
        side(p, name, rows, per_batch).window_into(sessions) for name, rows in (("l", left), ("r", right))
    ]
    bl.cogroup(l=sides[0], r=sides[1]).by("key").write("out", bl.Memory())
    rows = written(p, shards)
    for name, given_rows in (("l", left), ("r", right)):
        assert sorted(one["n"] for row in rows for one in row[name]) == list(range(len(given_rows)))
        for row in rows:
            numbers = [one["n"] for one in row[name]]
            assert numbers == sorted(numbers)
    for row in rows:
        times = sorted(one["at"] for one in (*row["l"], *row["r"]))
        assert {one["key"] for one in (*row["l"], *row["r"])} == {row["key"]}
        assert all(after - before <= 3 for before, after in pairwise(times))


def test_sessions_are_those_of_both_sides_together() -> None:
    p = bl.Pipeline("p")
    sessions = [
        side(p, name, rows).window_into(bl.Sessions("10s"))
        for name, rows in (("l", [("a", 0), ("a", 16)]), ("r", [("a", 8)]))
    ]
    rows = sessions[0].join(sessions[1], on="key").collect().rows(named=True)
    assert [(row["at"], row["at_right"], (row["window_end"] - row["window_start"]).seconds) for row in rows] == [
        (0, 8, 26), (16, 8, 26)
    ]  # fmt: skip


def everything(p: bl.Pipeline) -> dict[str, bl.Memory]:
    """Declares a cogroup, joins, dedup, distinct rows, the latest and batches; returns their sinks by name."""
    left, right = (
        side(p, name, [("abc"[n % 3] if n % 7 else None, (n * step) % 40) for n in range(30)], per_batch=7)
        for name, step in (("l", 5), ("r", 11))
    )
    ones, others = (one.window_into(bl.FixedWindows("10s")) for one in (left, right))
    made = {
        "cogroup": bl.cogroup(l=ones, r=others).by("key"),
        "join": ones.join(others, on="key", how="full"),
        "self-join": ones.join(ones, on=["key", "at"]),
        "dedup": left.dedup("key", within="15s"),
        "distinct": ones.select("key", "at").distinct(),
        "latest": bl.flatten(ones, others).latest("key"),
        "batches": left.group_by("key").group_into_batches(size=4),
    }
    sinks = {name: bl.Memory() for name in made}
    for name, sink in sinks.items():
        made[name].write(f"{name} out", sink)
    return sinks


@pytest.mark.slow
@pytest.mark.spark
def test_spark_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    local, on_spark = bl.Pipeline("all"), bl.Pipeline("all")
    expected, found = everything(local), everything(on_spark)
    local.run()
    on_spark.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=3, drain=True))
    for name, sink in expected.items():
        assert sink.rows()
        assert sorted(map(str, found[name].rows())) == sorted(map(str, sink.rows())), name
