"""Sinks in a run: checked before anything is read, and a write that fails says which sink and batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from beamlike.describe import describe
from beamlike.errors import PlanError, SinkError
from beamlike.io import Table
from beamlike.io.base import Part, Sink

Write = Callable[[pl.DataFrame, Part], object]


def check_sinks(sinks: Mapping[str, Sink]) -> None:
    """Each time that a run begins or goes on: what is written to is there and fits, or an error says how not.

    Raises `PlanError` where it does not fit, and `SinkError` where it cannot be looked at.
    """
    for name, sink in sinks.items():
        if isinstance(sink, Table):
            try:
                sink.check()
            except PlanError:
                raise
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be used: {_what(error)}") from error


def start_sink(name: str, sink: Sink, run: str) -> None:
    """Has the sink make what it writes to. Raises `SinkError` where it cannot, and what the sink itself refuses."""
    try:
        sink.start(run)
    except (PlanError, SinkError):
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be opened: {_what(error)}") from error


def write_part(sink: Sink, frame: pl.DataFrame, part: Part, write: Write | None = None) -> None:
    """Has the sink, or `write` in its place, write the part. Raises `SinkError`, which names sink and batch."""
    try:
        (write or sink.write)(frame, part)
    except Exception as error:
        what = f"batch {part.batch} could not be written to {describe(sink)}"
        raise SinkError(part.sink, f"{what}: {_what(error)}") from error


def _what(error: Exception) -> str:
    """The error in words: of one with the traceback of another process in it, the last line."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"
