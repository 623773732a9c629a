"""Scans of a table without loading it: only the buckets that can have the requested rows are read."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from stages.clock import Watermarks
from stages.operator import HOLD, PENDING
from stages.state import buckets
from stages.state.store import DictStore
from stages.state.tables import Tables
from stages.state_tables import KeyedTable, StateTable
from windowing.clocks import WATERMARK, Times
from windowing.time import MAX_TIME, MIN_TIME

STAGE = "stage"
KEYS = 2_000


class Texts(StateTable[KeyedTable]):
    """A table with two texts for each key."""

    clocks = (WATERMARK,)
    table = KeyedTable(
        row="text",
        waits="waits",
        keys=("key",),
        bounds=("number", "number"),
        schema=pl.Schema(
            {
                "key": pl.Int64(),
                "number": pl.Int64(),
                "text": pl.String(),
                PENDING: pl.Int64(),
                HOLD: pl.Int64(),
            }
        ),
        incoming=pl.Schema({"key": pl.Int64()}),
    )

    def deadlines(self, times: Times) -> Mapping[str, pl.Expr]:
        return {WATERMARK: pl.lit(None, pl.Int64)}


class Noting(DictStore):
    """A store that counts reads."""

    reads = 0

    def get(self, stage: str, key: str) -> bytes | None:
        self.reads += 1
        return super().get(stage, key)


def test_a_scan_for_keys_reads_only_their_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "SPLIT_BYTES", 4_000)
    store, table = Noting(), Texts()
    rows = [(key, number, f"{key} {number}", 0, None) for key in range(KEYS) for number in (0, 1)]
    state = Tables.open(store, STAGE, [table])
    state.load(table, pl.DataFrame({"key": range(KEYS)}))
    state.write_back(table, pl.DataFrame(rows, table.table.schema, orient="row"))
    state.save(store, STAGE, Watermarks(), 0)

    state = Tables.open(store, STAGE, [table])
    sizes = len(state.indices[""].sizes())
    assert sizes > 10
    store.reads = 0
    found = state.scan(table, (MIN_TIME, MAX_TIME), pl.DataFrame({"key": [7]}))
    assert found["text"].sort().to_list() == ["7 0", "7 1"]
    assert store.reads < sizes / 2
    assert state.scan(table, (MIN_TIME, MAX_TIME), pl.DataFrame({"key": [KEYS]})).is_empty()
