"""A sink that is a function of the user's."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import polars as pl
from polars.exceptions import PanicException

from beamlike.io.base import Part
from beamlike.system.fields import function
from windowing.python_rows import BEYOND, beyond_python


@attrs.frozen
class Callback:
    """Calls `fn(frame, batch)` on the driver for every batch with rows: a polars frame, and the number of the batch.

    The frame has all rows of the batch, in the memory of the driver. After a failure a batch may come again, under
    the same number: what was written for it before has to be replaced. Where it has no rows this time, as a function
    before it gave others, the frame is empty; so may that of the first batch be when a run on Spark goes on.

    A column may have times that Python cannot hold, such as `bl.window_end()` of the global window. Polars computes
    with them, and fails where it is to print them or make dicts of them: a `ValueError` then names the column.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Callback(lambda frame, batch: print(batch, frame["user"].to_list())))
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run()
        0 ['ada']
        1 ['bob']
        2 ['ada']
    """

    fn: Callable[[pl.DataFrame, int], object] = attrs.field(validator=function)

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Calls the function, unless there are no rows."""
        if frame.is_empty():
            return
        try:
            self.fn(frame, part.batch)
        except (PanicException, OverflowError) as error:
            if (wrong := beyond_python(frame)) is None:
                raise
            raise ValueError(f"{error}; column {wrong!r}: {BEYOND}; cast or drop it") from error

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        """Calls the function with no rows, as it may have had some of this batch before."""
        self.fn(empty, part.batch)
