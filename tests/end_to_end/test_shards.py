"""Results do not depend on the number of shards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beamlike as bl
from beamlike.io import Part, output_frame
from tests.support.examples import share
from tests.support.shards import Query


def two_stages(elements: str) -> tuple[bl.Pipeline, bl.Memory, bl.Memory]:
    """Declares a minute per key at its earliest time, then ten seconds of all; two elements of key@second per batch."""
    read = [
        {"key": key, "at": int(at), "value": 1} for key, at in (one.split("@") for one in elements.split())
    ]
    source = bl.Rows(read, rows_per_batch=2)
    p, minutes, tens = bl.Pipeline("two stages"), bl.Memory(), bl.Memory()
    watermark = bl.MonotonousTimestamps()
    rows = p.read("rows", source, timestamp="at", timestamp_unit="s", watermark=watermark)
    windowed = rows.window_into(bl.FixedWindows("60s"), timestamp_combiner="earliest")
    sums = windowed.group_by("key", name="minutes").aggregate(value=bl.sum("value"))
    sums.with_columns(at=bl.event_time()).write("minutes out", minutes)
    total = sums.window_into(bl.FixedWindows("10s")).aggregate(value=bl.sum("value")).named("tens")
    total.with_columns(start=bl.window_start()).write("tens out", tens)
    return p, minutes, tens


def seconds(sink: bl.Memory, column: str) -> list[tuple[Any, int]]:
    return sorted((row[column].second, row["value"]) for row in sink.rows())


@pytest.mark.parametrize("shards", [None, 1, 2, 3, 7])
def test_an_element_behind_the_watermark_holds_nothing_whatever_other_keys_hold(shards: int | None) -> None:
    p, minutes, tens = two_stages("c@5 a@30 a@20")
    if shards is None:
        p.run()
    else:
        query = Query(p.plan(), shards)
        for number, batch in enumerate(query.batches()):
            for name, sink in (("minutes out", minutes), ("tens out", tens)):
                for task, frame in enumerate(batch.frames(name)):
                    sink.write(output_frame(frame), Part("two stages", number, task))
    assert seconds(minutes, "at") == [(5, 1), (30, 2)]
    assert seconds(tens, "start") == [(0, 1), (30, 2)]


class Joined(bl.CombineFn):
    """Concatenates texts."""

    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, element: str) -> str:
        return f"{accumulator}{element} "

    def merge_accumulators(self, accumulators: list[str]) -> str:
        return "".join(accumulators)

    def extract_output(self, accumulator: str) -> str:
        return accumulator


def in_turn(rows: list[tuple[str, int]], per_batch: int, windows: Any) -> tuple[bl.Pipeline, bl.Memory]:
    """Declares counts per key, then aggregates that depend on the order of panes, with rows of two sources."""
    p, out = bl.Pipeline("in turn"), bl.Memory()
    keyed = [{"key": key, "at": at, "n": -1} for key, at in rows]
    sources = [
        p.read(
            name,
            bl.Rows(keyed[part::2] or keyed, rows_per_batch=per_batch),
            timestamp="at",
            timestamp_unit="s",
            watermark=bl.BoundedOutOfOrderness("5s"),
        )
        for part, name in enumerate(["z", "b"])
    ]
    both = bl.flatten(*sources)
    panes = both.window_into(bl.FixedWindows("10s")).group_by("key").aggregate(n=bl.count())
    texts = panes.with_columns(what=bl.col("key")).select("what", "n")
    plain = both.with_columns(what=bl.col("key")).select("what", "n")
    everything = bl.flatten(plain.window_into(windows), texts.window_into(windows))
    everything.aggregate(
        all=bl.collect("what"),
        first=bl.first("n"),
        last=bl.last("what"),
        joined=bl.combine(Joined(), "what", str),
    ).write("out", out)
    return p, out


@share(3)
@given(
    rows=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40)), min_size=1, max_size=14),
    per_batch=st.integers(1, 5),
    windows=st.sampled_from([bl.FixedWindows("1m"), bl.Sessions("7s"), bl.GlobalWindows()]),
)
def test_the_order_in_which_panes_arrive_does_not_depend_on_shards(
    rows: list[tuple[str, int]], per_batch: int, windows: Any
) -> None:
    p, out = in_turn(rows, per_batch, windows)
    p.run()
    alone = out.rows()
    for shards in (1, 3, 7):
        sharded = bl.Memory()
        query = Query(p.plan(), shards, tasks=2, seed=shards)
        for number, batch in enumerate(query.batches()):
            for task, frame in enumerate(batch.frames("out")):
                sharded.write(output_frame(frame), Part("in turn", number, task))
        assert sharded.rows() == alone
