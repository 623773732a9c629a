"""Batches of rows: as if rows were added one by one, on any number of shards; waiting rows hold the watermark."""

from __future__ import annotations

import zlib

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from stages.operator import MAIN
from stages.process.into_batches import ROWS, IntoBatches, Limits
from stages.stage import Stage
from stages.state.store import DictStore
from windowing.clocks import Times
from windowing.columns import EVENT_TIME, WINDOW_END
from windowing.time import GLOBAL_WINDOW_END, MAX_TIME, MIN_TIME
from windowing.windowing import Windowing
from windowing.windows import FixedWindows

SCHEMA = pl.Schema({"key": pl.String(), "text": pl.String(), "number": pl.Int64()})
WINDOW = 20

Row = tuple[str | None, str, int]
"""Key, text and time (us)."""
Batch = tuple[str | None, int, list[int], int]
"""Key, end of the window, numbers of the rows, and time (us)."""

rows = st.tuples(
    st.sampled_from(["a", "b", None]), st.sampled_from(["", "x", "long" * 5]), st.integers(0, 60)
)
bundles = st.lists(st.tuples(st.lists(rows, max_size=9), st.integers(0, 30), st.integers(0, 6)), max_size=7)
limits = st.builds(
    Limits, st.none() | st.integers(1, 5), st.none() | st.integers(1, 80), st.none() | st.integers(0, 10)
).filter(lambda limit: limit.size is not None or limit.bytes is not None)


class Model:
    """A naive model that adds rows one by one."""

    def __init__(self, limit: Limits, windowed: bool) -> None:
        self.limit, self.windowed = limit, windowed
        self.open: dict[tuple[str | None, int], list[tuple[int, str, int, int]]] = {}
        self.held: dict[int, int] = {}

    def step(self, bundle: list[tuple[int, Row]], before: int, watermark: int, now: int) -> list[Batch]:
        given = []
        for number, (key, text, time) in bundle:
            end = (time // WINDOW + 1) * WINDOW if self.windowed else GLOBAL_WINDOW_END
            if end <= before:
                continue
            batch = self.open.setdefault((key, end), [])
            if batch and self.bytes(key, batch) + self.bytes(key, [(0, text, 0, 0)]) > (
                self.limit.bytes or 10**9
            ):
                given.append(self.take(key, end))
                batch = self.open.setdefault((key, end), [])
            self.held[number] = time if time >= before else MAX_TIME
            batch.append((number, text, time, now))
            if len(batch) == self.limit.size or self.bytes(key, batch) >= (self.limit.bytes or 10**9):
                given.append(self.take(key, end))
        for (key, end), batch in list(self.open.items()):
            waited = self.limit.max_wait is not None and now >= batch[0][3] + self.limit.max_wait
            if end <= watermark or waited:
                given.append(self.take(key, end))
        return given

    @staticmethod
    def bytes(key: str | None, batch: list[tuple[int, str, int, int]]) -> int:
        return sum(len(key or "") + len(text) + 8 for _, text, _, _ in batch)

    def take(self, key: str | None, end: int) -> Batch:
        batch = self.open.pop((key, end))
        return key, end, [number for number, *_ in batch], min(time for _, _, time, _ in batch)

    def hold(self, watermark: int) -> int:
        """Returns the watermark, held back by the waiting rows that were not late."""
        return min([watermark, *(self.held[row[0]] for batch in self.open.values() for row in batch)])


def as_batch(key: str | None, end: int, rows: list[dict[str, int]], time: int) -> Batch:
    return key, end, [row["number"] for row in rows], time


@given(bundles, limits, st.booleans(), st.sampled_from([1, 3]))
def test_batches_are_those_of_rows_one_by_one(
    stream: list[tuple[list[Row], int, int]], limit: Limits, windowed: bool, shards: int
) -> None:
    windowing = Windowing(FixedWindows(WINDOW / 1_000_000)) if windowed else Windowing()
    stage = Stage("calls", IntoBatches(("key",), SCHEMA, windowing, limit, order="arrival", title="batches"))
    model, stores = Model(limit, windowed), [DictStore() for _ in range(shards)]
    number, watermark, now = 0, MIN_TIME, 0
    for bundle, ahead, later in [*stream, ([], MAX_TIME, 0)]:
        before, watermark, now = watermark, min(max(watermark, 0) + ahead, MAX_TIME), now + later
        numbered = [(number + n, row) for n, row in enumerate(bundle)]
        number += len(bundle)
        expected = model.step(numbered, before, watermark, now)
        found: list[Batch] = []
        held = []
        for shard, store in enumerate(stores):
            mine = [
                (*row[:2], n, row[2])
                for n, row in numbered
                if zlib.crc32(str(row[0]).encode()) % shards == shard
            ]
            arrivals = pl.DataFrame(mine, {**SCHEMA, EVENT_TIME: pl.Int64()}, orient="row")
            step = stage.step(store, {MAIN: arrivals}, Times.of(watermark, now))
            columns = step.panes.select("key", WINDOW_END, ROWS, EVENT_TIME)
            found += [as_batch(*row) for row in columns.iter_rows()]
            held.append(step.watermarks.output)
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert min(held) == model.hold(watermark)
    assert not model.open
