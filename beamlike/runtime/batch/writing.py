"""Writes parts to sinks; errors name the sink and batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from beamlike.errors import RunError, SinkError, without_colours
from beamlike.expressions.describe import describe
from beamlike.io.base import Part, Sink, WrittenInFrames
from beamlike.runtime.batch.dead_letter_folder import CheckpointLetters
from beamlike.runtime.batch.storage import not_stored


def write_part(sink: Sink, frame: pl.DataFrame, part: Part) -> None:
    """Writes a part to a sink that writes frames itself. Raises `SinkError`, which names sink and batch."""
    assert isinstance(sink, WrittenInFrames)
    with writing(sink, part.sink, part.batch):
        sink.write(frame, part)


@contextmanager
def writing(sink: Sink, name: str, batch: int) -> Iterator[None]:
    """Turns errors of the `with` block into `SinkError`, which names sink and batch.

    An error of the storage of dead letters in a checkpoint becomes a `CheckpointError`.
    """
    try:
        yield
    except Exception as error:
        raise failure(name, sink, f"batch {batch} could not be written to {{}}", error) from error


def failure(name: str, sink: Sink, what: str, error: Exception) -> RuntimeError:
    """The error for a failure `what`, in which `{}` stands for the sink."""
    if isinstance(sink, CheckpointLetters) and isinstance(error, OSError | pl.exceptions.ComputeError):
        return not_stored("write", sink.folder, what_failed(error))
    return SinkError(name, f"{what.format(describe(sink))}: {what_failed(error)}")


def what_failed(error: Exception) -> str:
    """The error as text; of an error with a traceback of another process, the last line."""
    text = without_colours(str(error)).strip()
    if isinstance(error, RunError):
        return text  # one of ours, whose text is complete
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"
