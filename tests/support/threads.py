"""Runs in process with a fixed number of threads, however few rows their batches have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from beamlike.system.threads import Threads


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Makes runs that begin in this context use `count` threads."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("run", "opening"):
            patch.setattr(f"beamlike.local.{module}.Threads", partial(Threads, count))
        patch.setattr("beamlike.runtime.loop.prefetch.FEW", 0)
        yield
