"""Other size limits of buckets, chunks and logs, with which little state is divided as much state is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import strategies as st

from stages.state.slices import MOST_DELETED
from stages.state.storage import LARGE_BUFFER_BYTES


@contextmanager
def sizes(
    *,
    small: int,
    split: int,
    chunk: int,
    near: int,
    share: int,
    patient: bool,
    many: int = 2,
    large: int = LARGE_BUFFER_BYTES,
    changed: float = MOST_DELETED,
) -> Iterator[None]:
    """Applies other size limits of buckets, chunks and logs, and another number of windows of a key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.state.working_set.SMALL_BYTES", small)
        if patient:
            patch.setattr("stages.state.working_set._may_grow", lambda size: True)
        patch.setattr("stages.state.working_set.FROM_BYTES", near)
        patch.setattr("stages.state.due_soon.SHARE", share)
        patch.setattr("stages.state.buckets.SPLIT_BYTES", split)
        patch.setattr("stages.state.chunks.CHUNK_BYTES", chunk)
        patch.setattr("stages.grouping.merging.MANY", many)
        patch.setattr("stages.state.storage.LARGE_BUFFER_BYTES", large)
        patch.setattr("stages.state.slices.MOST_DELETED", changed)
        patch.setattr("stages.state.time_order.FEW", 1)
        yield


SIZES = st.fixed_dictionaries(
    {
        "small": st.sampled_from([-1, 1_000]),
        "split": st.sampled_from([100, 500, 10**9]),
        "chunk": st.sampled_from([200, 10**9]),
        "near": st.sampled_from([0, 0, 400, 10**9]),
        "share": st.sampled_from([2, 4, 16]),
        "patient": st.booleans(),
        "many": st.sampled_from([0, 2]),
        "large": st.sampled_from([1, LARGE_BUFFER_BYTES]),
        "changed": st.sampled_from([0.5, 2, 1_000]),
    }
)

PATIENT = {"small": -1, "split": 10**9, "chunk": 10**9, "near": 0, "share": 4, "patient": True}
