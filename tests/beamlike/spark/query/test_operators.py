"""How the state of a shard is reached in Spark's map of it."""

from __future__ import annotations

import attrs
import polars as pl

from beamlike.spark.query.operators import MapStateStore
from stages.state import chunks
from stages.state.store import Within


@attrs.define
class Calls:
    """A map of state, and which calls of Spark were made."""

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
