"""State whose buckets are patched from the first row on and soon divided, and its index, rebuilt from all rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stages.snapshot import restore, save
from stages.stage import Stage
from stages.state.buckets import BUCKET
from stages.state.index import COUNTS, DEADLINE
from stages.state.storage import Storage
from stages.state.store import DictStore


@contextmanager
def patched(
    *, large: int, most: int, changed: float, split: int, chunk: int, crowded: int = 0
) -> Iterator[None]:
    """Applies other size limits of buckets, chunks and patches. A bucket may change `changed` times as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.state.storage.LARGE_BYTES", large)
        patch.setattr("stages.state.storage.SEARCHED_BYTES", large)
        patch.setattr("stages.state.patches.MOST_PATCHES", most)
        patch.setattr("stages.state.working_set.CROWDED", crowded)
        patch.setattr("stages.state.slices.MOST_DELETED", changed)
        patch.setattr("stages.state.slices.MOST_ROWS", 1 + changed)
        patch.setattr("stages.state.buckets.SPLIT_BYTES", split)
        patch.setattr("stages.state.chunks.CHUNK_BYTES", chunk)
        patch.setattr("stages.state.chunks.REMEMBERED", 1)
        patch.setattr("stages.state.time_order.FEW", 1)
        yield


SIZES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "large": st.sampled_from([1, 1, 1, 3_000]),
        "most": st.sampled_from([1, 2, 16]),
        "changed": st.sampled_from([0.5, 2, 1_000]),
        "split": st.sampled_from([100, 500, 10**9]),
        "chunk": st.sampled_from([200, 10**9]),
        "crowded": st.sampled_from([0, 0, 4]),
    }
)
ALWAYS = {"large": 1, "most": 1_000, "changed": 1_000, "split": 10**9, "chunk": 10**9}


def require_exact(stage: Stage, store: DictStore) -> None:
    """Checks that the index of each bucket agrees with its rows."""
    for storage in stage.tables(store).storages.values():
        if isinstance(storage, Storage) and storage.table.patched:
            _require_exact(storage)


def _require_exact(storage: Storage) -> None:
    named = pl.col(BUCKET, *COUNTS, "hold", f"^{DEADLINE}.*$")
    said = storage.index.buckets.select(named).sort(BUCKET)
    rows = [
        storage.rows([bucket]).with_columns(pl.lit(bucket).cast(pl.Int64).alias(BUCKET))
        for bucket in said[BUCKET]
    ]
    found = pl.concat([storage.buckets.place(storage.table.no_rows), *rows])
    counted = storage.summary(found, storage.sizes, storage.index.times).select(named).sort(BUCKET)
    assert_frame_equal(said, counted)
    placed = storage.buckets.place(found.drop(BUCKET))
    assert placed[BUCKET].to_list() == found[BUCKET].to_list()


def moved(stage: Stage, store: DictStore) -> DictStore:
    """Returns all state in another store."""
    again = DictStore()
    restore(stage, again, save(stage, store))
    return again
