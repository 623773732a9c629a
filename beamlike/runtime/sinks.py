"""Sinks in a run: checked before anything is read, and a write that fails says which sink and batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs
import polars as pl

from beamlike.errors import PlanError, RunError, SinkError, SinkInUse, without_colours
from beamlike.expressions.describe import describe
from beamlike.io.base import Part, Sink, WrittenBySpark, WrittenInFrames
from beamlike.io.sinks import Checked, Held, PerRun, Started
from beamlike.plan.model import Plan
from beamlike.runtime.checkpoint import not_stored
from beamlike.runtime.dead_letter_folder import CheckpointLetters
from beamlike.system.locks import InUse


def with_sinks_of_run(plan: Plan) -> Plan:
    """The plan of one run: what a sink learns in it stays with the run, and declarations as they were.

    Raises `PlanError` where a sink gives something else than a sink.
    """
    sinks = {name: attrs.evolve(sink, sink=_of_run(name, sink.sink)) for name, sink in plan.sinks.items()}
    return attrs.evolve(plan, sinks=sinks)


def _of_run(name: str, sink: Sink) -> Sink:
    if not isinstance(sink, PerRun):
        return sink
    found: object = sink.for_run()
    if isinstance(found, WrittenInFrames | WrittenBySpark):
        return found
    kind = type(sink).__name__
    raise PlanError(
        f"{kind}.for_run() must give a sink for one run, such as a copy, not {found!r}", step=name
    )


def check_sinks(sinks: Mapping[str, Sink]) -> None:
    """Each time that a run begins or goes on: what is written to is there and fits, or an error says how not.

    Raises `PlanError` where it does not fit, and `SinkError` where it cannot be looked at.
    """
    for name, sink in sinks.items():
        if isinstance(sink, Checked):
            try:
                sink.check()
            except PlanError:
                raise
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be used: {what_failed(error)}") from error


_NAME_IT: Final = (
    "wait for its end, or give this run a name of its own: LocalRunner(run_id=...), or on Spark a checkpoint"
)


def hold_sinks(plan: Plan, run: str, remedy: str = _NAME_IT) -> ExitStack:
    """Until it is closed, no other run of this name writes to where the sinks of the plan do.

    Raises `SinkInUse`, which says who does and ends with the `remedy`; `SinkError` and what the sink itself refuses
    where there is no such place.
    """
    with ExitStack() as held:
        for name, sink in plan.sinks.items():
            if isinstance(sink.sink, Held):
                _hold(name, sink.sink, run, held, remedy)
        return held.pop_all()


def _hold(name: str, sink: Held, run: str, held: ExitStack, remedy: str) -> None:
    try:
        if (lock := sink.hold(run)) is not None:
            held.enter_context(lock)
    except InUse as error:
        raise SinkInUse(name, f"{describe(sink)} is being written by {error}; {remedy}") from None
    except PlanError:
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be opened: {what_failed(error)}") from error


def start_sink(name: str, sink: Sink, run: str) -> None:
    """Has the sink make what it writes to. Raises `SinkError` where it cannot, and what the sink itself refuses."""
    if not isinstance(sink, Started):
        return
    try:
        sink.start(run)
    except (PlanError, SinkError):
        raise
    except Exception as error:
        raise _failure(name, sink, "{} cannot be opened", error) from error


def require_in_process(plan: Plan) -> None:
    """Raises `PlanError` for a sink that only Spark can write."""
    for name, sink in plan.sinks.items():
        if not isinstance(sink.sink, WrittenInFrames):
            raise PlanError("only Spark can write it: run with runner=bl.SparkRunner(...)", step=name)


def write_part(sink: Sink, frame: pl.DataFrame, part: Part) -> None:
    """Has the sink write the part, which it can do itself. Raises `SinkError`, which names sink and batch."""
    assert isinstance(sink, WrittenInFrames)
    with writing(sink, part.sink, part.batch):
        sink.write(frame, part)


@contextmanager
def writing(sink: Sink, name: str, batch: int) -> Iterator[None]:
    """Raises `SinkError`, with sink and batch, for what fails; `CheckpointError` for dead letters in a checkpoint."""
    try:
        yield
    except Exception as error:
        raise _failure(name, sink, f"batch {batch} could not be written to {{}}", error) from error


def _failure(name: str, sink: Sink, what: str, error: Exception) -> RuntimeError:
    """The error for a sink of which `what`, with a place for the sink, is true."""
    if isinstance(sink, CheckpointLetters) and isinstance(error, OSError | pl.exceptions.ComputeError):
        return not_stored("write", sink.folder, what_failed(error))
    return SinkError(name, f"{what.format(describe(sink))}: {what_failed(error)}")


def what_failed(error: Exception) -> str:
    """The error in words: of one with the traceback of another process in it, the last line."""
    text = without_colours(str(error)).strip()
    if isinstance(error, RunError):
        return text  # of ours, which says it all
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"
