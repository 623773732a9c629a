"""Writes parts to sinks. Errors name the sink and the batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

import polars as pl

from beamlike.errors import RunError, SinkError, text_of, without_colours
from beamlike.expressions.describe import describe
from beamlike.io.base import Part, Sink, WrittenInFrames
from beamlike.runtime.batch.dead_letter_folder import CheckpointLetters
from beamlike.runtime.batch.storage import not_stored
from beamlike.system.retries import again
from beamlike.system.secrets import without_secrets

T = TypeVar("T")


def write_part(sink: Sink, frame: pl.DataFrame, part: Part) -> None:
    """Writes a part to a sink that accepts frames. Raises `SinkError`, which names the sink and the batch."""
    assert isinstance(sink, WrittenInFrames)
    written(sink, part.sink, part.batch, lambda repeated: sink.write(frame, part))


def written(sink: Sink, name: str, batch: int, write: Callable[[bool], T]) -> T:
    """Calls a method of a sink. Errors become `SinkError`, which names the sink and the batch.

    The call is repeated if the target is briefly unwell: a sink accepts a batch again, as the next run may repeat it.
    The argument of `write` is True in a repetition. An error of the storage of a checkpoint's dead letters becomes a
    `CheckpointError`.
    """
    calls = count()
    try:
        return again(f"sink {name!r}, batch {batch}", lambda: write(next(calls) > 0))
    except Exception as error:
        raise failure(name, sink, f"batch {batch} could not be written to {{}}", error) from error


def failure(name: str, sink: Sink, what: str, error: Exception) -> RuntimeError:
    """Returns the error for a failure. In the description `what`, `{}` stands for the sink."""
    if isinstance(sink, CheckpointLetters) and isinstance(error, OSError | pl.exceptions.ComputeError):
        return not_stored("write", sink.folder, what_failed(error))
    return SinkError(name, f"{what.format(describe(sink))}: {what_failed(error)}")


def what_failed(error: Exception) -> str:
    """Returns the text of an error without secrets. If it contains a traceback from another process, only the last line
    is returned.
    """
    text = without_secrets(without_colours(text_of(error)).strip())
    if isinstance(error, RunError):
        return text  # the text of an error of this package is complete
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"
