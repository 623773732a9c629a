"""Nexmark's events in Kafka: a query over topics has the same results as over files."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import beamlike as bl
from benchmarks.nexmark.events import KINDS, Nexmark, side
from benchmarks.nexmark.generate import Arrivals
from benchmarks.nexmark.pipeline import SCHEMAS
from benchmarks.nexmark.produce import send
from benchmarks.nexmark.queries import QUERIES, Auction
from tests.connectors.kafka import Cluster

pytestmark = pytest.mark.connectors


@pytest.mark.parametrize("query", [5, 9])
def test_a_query_over_topics_gives_what_it_gives_over_files(kafka: Cluster, query: int) -> None:
    arrivals, prefix = Arrivals(Nexmark(rate=100), 3_000, files=2), kafka.topic()
    for kind in KINDS:
        kafka.topic(2, f"{prefix}{kind}")
    send(kafka.servers, arrivals, prefix)
    frames = {kind: pl.concat([dict(arrivals.frames(file))[kind] for file in range(2)]) for kind in KINDS}
    topics = {
        kind: bl.Kafka(kafka.servers, f"{prefix}{kind}", value=bl.json(SCHEMAS[kind])) for kind in KINDS
    }
    found = rows_of(query, topics)
    assert not found.is_empty()
    wanted = rows_of(query, {kind: bl.Rows(frame) for kind, frame in frames.items()})
    assert_frame_equal(found, wanted, check_row_order=False, check_column_order=False)


def rows_of(query: int, sources: dict[str, object]) -> pl.DataFrame:
    p = bl.Pipeline("nexmark")
    streams = {
        kind: p.read(kind, source, timestamp="at", watermark=bl.BoundedOutOfOrderness("1s"))
        for kind, source in sources.items()
    }
    table = p.read("side", bl.Rows(side()))
    rows = QUERIES[query](Auction(**streams, side=table)).collect()
    return rows.select(name for name in rows.columns if not name.startswith(("pane_", "kafka_")))
