"""The Python processes that run our operators: Spark keeps them from task to task."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import cache, wraps

import pyarrow as pa

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@cache
def settle(operator: str) -> None:
    """Whatever this process has loaded once an operator ran in it is there to stay: no more looking for garbage in it.

    Spark's workers collect garbage after every task. Among the hundred thousand objects of the libraries that takes
    some 60 ms, which would be most of what a small task costs. Where processes are none of Spark's workers, too, this
    is harmless.
    """
    gc.collect()
    gc.freeze()


def settled(run: Batches) -> Batches:
    """A function for `mapInArrow` whose worker settles after it."""

    @wraps(run)
    def and_settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run(batches)
        settle(run.__qualname__)

    return and_settle
