"""Errors of the storage of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from beamlike.errors import CheckpointError


@contextmanager
def stored(what: str, name: str) -> Iterator[None]:
    """Turns storage errors of the `with` block into `CheckpointError`."""
    try:
        yield
    except (
        OSError,
        pl.exceptions.ComputeError,
    ) as error:  # polars raises the second one when it writes a file
        raise not_stored(what, name, error) from error


def not_stored(what: str, name: str, reason: object) -> CheckpointError:
    """The error for a file or folder of a checkpoint that cannot be read or written."""
    return CheckpointError(
        f"cannot {what} {name}: {reason}; check its storage (is there room, may this process read and write there?) "
        "and run again: a run continues from its last batch"
    )
