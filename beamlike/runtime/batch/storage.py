"""Errors of the storage of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from beamlike.errors import CheckpointError


@contextmanager
def stored(what: str, name: str) -> Iterator[None]:
    """Converts storage errors of the `with` block to `CheckpointError`. `what` is the verb that
    failed, "read" or "write", and `name` the file.
    """
    try:
        yield
    except (
        OSError,
        pl.exceptions.ComputeError,
    ) as error:  # polars raises a ComputeError when it cannot write a file
        raise not_stored(what, name, error) from error


def not_stored(what: str, name: str, reason: object) -> CheckpointError:
    """Returns the error for a file or folder `name` of a checkpoint, for which the verb `what` ("read" or "write")
    failed.
    """
    return CheckpointError(
        f"cannot {what} {name}: {reason}; check its storage (is there room, may this process read and write there?) "
        "and run again: a run continues from its last batch"
    )
