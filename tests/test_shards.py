"""What comes out does not depend on the number of shards."""

from __future__ import annotations

from typing import Any

import pytest

import beamlike as bl
from beamlike.io import Part, output_frame
from tests.shards import Query


def two_stages(elements: str) -> tuple[bl.Pipeline, bl.Memory, bl.Memory]:
    """Elements of key@second, two in a batch: a minute per key at its earliest time, then all of ten seconds."""
    given = [
        {"key": key, "at": int(at), "value": 1} for key, at in (one.split("@") for one in elements.split())
    ]
    source = bl.Rows(given, rows_per_batch=2)
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
