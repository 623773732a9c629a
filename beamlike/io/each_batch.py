"""A sink that gives each batch to a user's function, like `foreachBatch` of Structured Streaming."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import polars as pl

from beamlike.io.base import Part
from beamlike.io.callback import Callback, naming_function
from beamlike.system.datasets import Dataset
from beamlike.system.fields import function


@attrs.frozen
class ForEachBatch:
    """A sink that calls `fn(frame, batch)` on the driver for every batch with rows, like `foreachBatch` of Spark.

    The frame is a Spark DataFrame, so the function can use every writer of Spark, merge into a Delta table or join
    tables of the session. The rows of a batch pass through the driver. If the first parameter of the function is
    annotated as `polars.DataFrame`, the function receives a polars frame and the pipeline also runs in process, as with
    `bl.Callback`.

    A batch is committed after its function has returned. After a failure it is repeated with the same number, the same
    input and the state from before it. Rows are written exactly once if the function replaces its earlier output for
    this number, or if its writer skips a number that it has, as Delta does with `txnAppId` and `txnVersion`. The frame
    is empty if the repeated batch has no rows any more.

    Args:
        fn: A function with two parameters: a frame with all rows of the batch, and the number of the batch.

    Example, with the `plays` of `bl.Collection`:
        >>> def save(rows, batch):
        ...     rows.write.mode("overwrite").parquet(f"s3a://bucket/plays/batch={batch}")
        >>> plays.write("totals", bl.ForEachBatch(save))
        <Collection 'plays': user String, points Int64, at String>
    """

    fn: Callable[[Any, int], object] = attrs.field(validator=function)

    def datasets(self) -> list[Dataset]:
        return []

    def for_run(self) -> Any:
        """Returns a sink of polars frames if the function takes such."""
        return Callback(self.fn) if _takes_polars(self.fn) else self

    def write_by_spark(self, rows: Any, part: Part) -> None:
        with naming_function():
            self.fn(rows, part.batch)

    def take_back(self, empty: Any, part: Part) -> None:
        """Calls the function with an empty frame."""
        with naming_function():
            self.fn(empty, part.batch)


def _takes_polars(fn: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(fn, eval_str=True).parameters.values()
    except (
        TypeError,
        ValueError,
        NameError,
    ):  # written in C, or annotated with a name that only type checkers know
        return False
    return next((one.annotation for one in parameters), None) is pl.DataFrame
