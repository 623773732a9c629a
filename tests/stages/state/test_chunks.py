"""Chunks are read as they were written."""

from __future__ import annotations

import polars as pl
from polars.testing import assert_frame_equal

from stages.state import chunks
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
        found = read(store, "stage", 1, range(len(written)))
        assert_frame_equal(pl.concat(unpack(found, frame.schema)), frame)


def test_a_chunk_that_this_process_has_written_is_the_one_that_another_process_reads() -> None:
    part = pl.DataFrame({"n": [1, 2], "text": ["a", None], "many": [[{"a": 1}], []]})
    rows, store = pl.concat([part, part], rechunk=False), DictStore()
    write(store, "stage", 1, 0, Patch(rows))
    here, again = read(store, "stage", 1, [0]), read(store, "stage", 1, [0])
    chunks._WRITTEN.clear()
    elsewhere = read(store, "stage", 1, [0])
    assert here[0] is again[0]
    assert elsewhere[0] is not here[0]
    (known,), (decoded,) = unpack(here, rows.schema), unpack(elsewhere, rows.schema)
    assert_frame_equal(known, decoded)
    assert known.n_chunks() == 1  # otherwise the chunks would become more with each step
