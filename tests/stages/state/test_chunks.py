"""Columns of a chunk that look constant by their ends."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_frame_equal

from stages.state.chunks import FEW, Chunk, Patch, pack, read, unpack, write
from stages.state.store import DictStore


def test_a_column_whose_ends_are_equal_is_kept_whole_unless_all_of_it_is_the_same() -> None:
    middle = [*range(FEW), 0]
    rows = pl.DataFrame(
        {"n": middle, "text": map(str, middle), "same": [4] * len(middle), "none": [None] * len(middle)}
    )
    rows = rows.with_columns(pl.col("none").cast(pl.Int64), pl.col("n").replace(0, None).alias("gaps"))
    chunk = Chunk.of(pack(Patch(rows)))
    assert chunk.constants == {"same": 4, "none": None}
    assert_frame_equal(pl.concat(unpack([chunk], rows.schema)), rows)


def test_a_store_in_this_process_has_few_rows_as_they_are_and_many_compressed() -> None:
    store = DictStore()
    for rows in (100, 20_000):
        frame = pl.DataFrame({"n": range(rows), "text": map(str, range(rows))})
        raw = len(pack(Patch(frame), 10**9))
        written = write(store, "stage", 1, 0, Patch(frame)).bytes
        assert (written == [raw]) == (rows == 100)
        assert max(written) <= raw
        chunks = read(store, "stage", 1, range(len(written)))
        assert_frame_equal(pl.concat(unpack(chunks, frame.schema)), frame)
