"""The Python worker processes that run operators. Spark reuses them for later tasks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache, wraps

import pyarrow as pa

from beamlike.spark.session.sockets import acknowledged

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@cache
def settle(operator: str) -> None:
    """Freezes the objects of this process after an operator has run, so that garbage collection skips them.

    Spark's workers collect garbage after every task. For the hundred thousand objects of the libraries this takes some
    60 ms, which is most of the time of a small task. In other processes it does no harm.
    """
    gc.collect()
    gc.freeze()


def settled(run: Batches) -> Batches:
    """Wraps a function for `mapInArrow`: its input is `acknowledged`, and `settle` is called in its worker after it has
    run.
    """

    @wraps(run)
    def and_settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run(acknowledged(batches))
        settle(run.__qualname__)

    return and_settle
