"""The access to a shard's state in Spark's map state, and the output of an operator."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import polars as pl
import pytest
from pyspark.sql import Row

import beamlike as bl
from beamlike.runtime.batch.envelope import ARROW, RECORDS, Envelope
from beamlike.spark.query.operators import LevelOperator, MapStateStore
from beamlike.testing.shards import ShardedRun
from examples.session_lengths import pipeline
from stages.state import chunks
from stages.state.store import Within


@attrs.define
class Calls:
    """A map state that records Spark's calls."""

    values: dict[tuple[str], tuple[bytes]] = attrs.field(factory=dict)
    made: list[str] = attrs.field(factory=list)

    def containsKey(self, key: tuple[str]) -> bool:
        self.made.append("containsKey")
        return key in self.values

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        self.made.append("getValue")
        return self.values.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        self.values[key] = value

    def removeKey(self, key: tuple[str]) -> None:
        self.values.pop(key, None)


def test_a_chunk_is_asked_for_once_and_what_may_be_missing_is_looked_for_before() -> None:
    state = Calls()
    store = MapStateStore(state)
    for kept in (store, Within(store, "cells/")):
        chunks.write(kept, "stage", -1, 3, chunks.Patch(pl.DataFrame({"n": [7]})))
        state.made.clear()
        (found,) = chunks.read(kept, "stage", -1, [3])
        assert found.rows == 1
        assert state.made == ["getValue"]
    state.made.clear()
    assert store.get("stage", "index") is None
    assert state.made == ["containsKey"]
    assert store.get("stage", "rows/0/0") is None


def test_what_was_met_in_a_batch_before_is_asked_for_at_once() -> None:
    state, met = Calls(), set[str]()
    store = MapStateStore(state, met)
    store.put("stage", "index", b"before")
    assert store.get("stage", "index") == b"before"
    state.made.clear()
    later = MapStateStore(state, met)
    assert later.get("stage", "index") == b"before"
    assert state.made == ["getValue"]


def test_what_was_met_is_looked_for_again_once_it_is_deleted() -> None:
    state = Calls()
    store = MapStateStore(state)
    store.put("stage", "index", b"before")
    assert store.get("stage", "index") == b"before"
    store.delete("stage", "index")
    state.made.clear()
    assert store.get("stage", "index") is None
    assert state.made == ["containsKey"]


def test_what_was_met_in_a_batch_that_came_to_nothing_is_missing() -> None:
    store = MapStateStore(Calls(), {"stage/index"})
    assert store.get("stage", "index") is None


@pytest.fixture
def settled() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("settled")
def test_all_levels_in_one_operator_send_what_an_operator_for_each_sends(tmp_path: Path) -> None:
    plan = pipeline(tmp_path, tmp_path, bl.END_OF_WINDOW).plan()
    apart = ShardedRun(plan, 1)
    (label,), state = apart.topology.labels, Calls()
    operator = LevelOperator((*apart.levels,), None, ticks=False, in_rows=True)
    stages = set[str]()
    for batch in (*(apart.ingested(chunk) for chunk in chunks_of_plays()), apart.end()):
        rows = operator.rows(Any, state, label, (row_of(envelope) for envelope in batch), None)
        sent = [Envelope(*row) for row in rows]
        assert in_order(sent) == in_order(apart.through(batch)[-1])
        stages |= {envelope.origin for envelope in sent if envelope.target == RECORDS}
    assert stages == {"sessions of mobile", "sessions of console", "average"}
    stored = {key: value for store in apart.stores.values() for key, value in store.values.items()}
    assert {name: value for (name,), (value,) in state.values.items()} == {
        f"{stage}/{key}": value for (stage, key), value in stored.items()
    }


def chunks_of_plays() -> Iterator[dict[str, pl.LazyFrame]]:
    """Returns plays of three users on both platforms, in three batches."""
    for number in range(3):
        at = pl.datetime_range(
            datetime(2026, 1, 1, 0, 2 * number), datetime(2026, 1, 1, 0, 2 * number + 1), "5s", eager=True
        )
        plays = pl.DataFrame({"user": [n % 3 for n in range(len(at))], "event_time": at, "score": 1})
        yield {platform: plays.lazy() for platform in ("mobile", "console")}


def row_of(envelope: Envelope) -> Row:
    return Row(*ARROW.names)(*(getattr(envelope.sealed(), name) for name in ARROW.names))


def in_order(envelopes: Iterable[Envelope]) -> list[Envelope]:
    return sorted(
        (sent.sealed() for sent in envelopes), key=lambda sent: (sent.target, sent.origin, sent.payload)
    )
