"""Chunks are read as they were written, and rows of several chunks are gathered as those of each."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stages.state import chunks
from stages.state.chunks import FEW, Chunk, Patch, gathered, pack, read, unpack, write
from stages.state.row_numbers import Positions
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


@given(st.lists(st.tuples(st.integers(0, 2), st.sets(st.integers(0, 5))), max_size=8))
def test_rows_of_several_chunks_are_gathered_as_those_of_each(parts: list[tuple[int, set[int]]]) -> None:
    plain = pl.DataFrame({"n": range(6), "text": [*"abcde", None], "same": [1] * 6})
    nested = plain.with_columns(
        pl.struct("n", "text").alias("both"), pl.concat_list("n", "same").alias("all")
    )
    constant = Chunk(plain[["n", "text"]], {"same": 1}, 6, None)
    for schema, kinds in (
        (plain.schema, [Chunk(plain, {}, 6, None), constant, Chunk(plain[::-1], {}, 6, None)]),
        (nested.schema, [Chunk(nested, {}, 6, None)] * 3),
    ):
        wanted = [(kinds[kind], Positions(np.array(sorted(rows), np.intp))) for kind, rows in parts]
        nothing = pl.DataFrame(schema=schema)
        found = pl.concat([nothing, *unpack(gathered(wanted), schema)])
        each = [nothing, *unpack((chunk.at(rows) for chunk, rows in wanted), schema)]
        assert_frame_equal(found, pl.concat(each))
