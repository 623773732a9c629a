"""A sink that calls a user's function."""

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
    """Calls `fn(frame, batch)` on the driver for every batch with rows.

    After a failure, a batch may be repeated under the same number: the function must then replace what it wrote for it.
    If
    the repeated batch has no rows this time, the frame is empty; the frame of the first batch of a continued run may be
    empty, too.

    A column may have times that Python cannot hold, such as `bl.window_end()` of the global window. Polars computes
    with
    them, but fails to print them or to convert them to dicts: a `ValueError` then names the column.

    Args:
        fn: A function of a polars frame with all rows of the batch, which must fit into the driver's memory, and of the
            number of the batch.

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
        if frame.is_empty():
            return
        try:
            self.fn(frame, part.batch)
        except (PanicException, OverflowError) as error:
            if (wrong := beyond_python(frame)) is None:
                raise
            raise ValueError(f"{error}; column {wrong!r}: {BEYOND}; cast or drop it") from error

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        """Calls the function with an empty frame."""
        self.fn(empty, part.batch)
