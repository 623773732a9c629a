"""A sink that calls a user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import polars as pl
from polars.exceptions import PanicException

from beamlike.io.base import Part
from beamlike.system.datasets import Dataset
from beamlike.system.fields import function
from windowing.python_rows import BEYOND, beyond_python


@attrs.frozen
class Callback:
    """A sink that calls `fn(frame, batch)` on the driver for every batch with rows.

    After a failure, a batch may be repeated with the same number. The function must then replace its earlier output for
    this number. The frame is empty if the repeated batch has no rows any more; it may also be empty in the first batch
    of a continued run.

    A column may have times that Python cannot hold, such as `bl.window_end()` of the global window. Polars computes
    with them, but fails to print them or to convert them to dicts: a `ValueError` then names the column.

    Args:
        fn: A function with two parameters: a polars frame with all rows of the batch, which must fit into the driver's
            memory, and the number of the batch.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("out", bl.Callback(lambda frame, batch: print(batch, frame["user"].to_list())))
        <Collection 'plays': user String, points Int64, at String>
        >>> run = p.run()
        0 ['ada']
        1 ['bob']
        2 ['ada']
    """

    fn: Callable[[pl.DataFrame, int], object] = attrs.field(validator=function)

    def datasets(self) -> list[Dataset]:
        return []

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        if frame.is_empty():
            return
        try:
            with naming_function():
                self.fn(frame, part.batch)
        except (PanicException, OverflowError) as error:
            if (wrong := beyond_python(frame)) is None:
                raise
            raise ValueError(f"{error}; column {wrong!r}: {BEYOND}; cast or drop it") from error

    def take_back(self, empty: pl.DataFrame, part: Part) -> None:
        """Calls the function with an empty frame."""
        with naming_function():
            self.fn(empty, part.batch)


@contextmanager
def naming_function() -> Iterator[None]:
    """Adds a note to errors of the user's function, so that it is not called again for them."""
    try:
        yield
    except Exception as error:
        error.add_note("in the function of the sink")
        raise
