"""Digests of rows in memory and of test streams, which must not change when their run is continued."""

from __future__ import annotations

import hashlib

import polars as pl

from beamlike.errors import CheckpointError
from beamlike.io.sources import ReadFromMemory, ReadInSteps
from beamlike.plan.model import Plan
from stages.state.store import encode


def digest_of_rows(rows: ReadFromMemory) -> str:
    """Returns a digest of all rows. Equal rows have equal digests."""
    return hashlib.sha256(_content(rows.all_rows())).hexdigest()


def digest_of_streams(plan: Plan) -> str:
    """Returns a digest of the steps of the plan's test streams. Equal steps have equal digests."""
    digest = hashlib.sha256()
    for name, source in plan.sources.items():
        assert isinstance(source.source, ReadInSteps)
        for step in source.source.steps:
            digest.update(repr((name, step.summary, step.processing_time)).encode() + _content(step.elements))
    return digest.hexdigest()


def _content(frame: pl.DataFrame) -> bytes:
    """Returns the content of a frame as bytes. The frame may be shared with other runs of the same pipeline.

    Polars locks a frame while it writes it, and then waits for Python's global lock. Another run may hold that while it
    waits for the frame: a deadlock. A clone has a lock of its own, and shares the data.
    """
    return encode(frame.clone())


def other_rows(source: str, checkpoint: str) -> CheckpointError:
    """Returns the error for rows in memory that differ from those of the checkpoint."""
    return CheckpointError(
        f"source {source!r} has other rows than the run of the checkpoint {checkpoint}; start again with another "
        "checkpoint"
    )


def other_streams(checkpoint: str) -> CheckpointError:
    """Returns the error for test streams that differ from those of the checkpoint."""
    return CheckpointError(
        f"the test streams are not those of the checkpoint {checkpoint}; start again with another checkpoint"
    )
