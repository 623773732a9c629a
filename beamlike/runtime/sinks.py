"""Sinks in a run: checked before anything is read, and a write that fails says which sink and batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import attrs
import polars as pl

from beamlike.errors import PlanError, SinkError, SinkInUse
from beamlike.expressions.describe import describe
from beamlike.io.base import Part, Sink, WrittenBySpark, WrittenInFrames, output_frame
from beamlike.io.sinks import Checked, Held, Replacing, Started
from beamlike.plan.compiler import Plan
from beamlike.rows.dead_letters import UNCLAIMED
from beamlike.system.locks import InUse


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
                raise SinkError(name, f"{describe(sink)} cannot be used: {_what(error)}") from error


def hold_sinks(plan: Plan, run: str) -> ExitStack:
    """Until it is closed, no other run of this name writes to where the sinks of the plan do.

    Raises `SinkInUse`, which says who does; `SinkError` and what the sink itself refuses where there is no such place.
    """
    with ExitStack() as held:
        for name, sink in plan.sinks.items():
            if isinstance(sink.sink, Held) and (lock := _held(name, sink.sink, run)):
                held.enter_context(lock)
        return held.pop_all()


def _held(name: str, sink: Held, run: str) -> AbstractContextManager[object] | None:
    try:
        return sink.hold(run)
    except InUse as error:
        raise SinkInUse(
            name,
            f"{describe(sink)} is being written by {error}; wait for its end, or give this run a name of its own: "
            "LocalRunner(run_id=...), or on Spark a checkpoint",
        ) from None
    except PlanError:
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be opened: {_what(error)}") from error


def start_sink(name: str, sink: Sink, run: str) -> None:
    """Has the sink make what it writes to. Raises `SinkError` where it cannot, and what the sink itself refuses."""
    if not isinstance(sink, Started):
        return
    try:
        sink.start(run)
    except (PlanError, SinkError):
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be opened: {_what(error)}") from error


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
    """What fails meanwhile is a `SinkError`, which names sink and batch."""
    try:
        yield
    except Exception as error:
        what = f"batch {batch} could not be written to {describe(sink)}"
        raise SinkError(name, f"{what}: {_what(error)}") from error


def start_sinks(plan: Plan, run: str) -> None:
    """Has the sinks of a plan make what they write to. Raises as `start_sink` and `write_part` do."""
    for name, sink in plan.sinks.items():
        start_sink(name, sink.sink, run)
    for name, sink in plan.sinks.items():
        # So that a sink knows its columns even if no row ever comes.
        if not isinstance(sink.sink, WrittenBySpark):
            empty = output_frame(pl.DataFrame(schema=sink.schema))
            write_part(sink.sink, empty, Part(run, 0, sink=name))


def beside(plan: Plan, run: str) -> Plan:
    """The plan, but its sinks write files beside those of an earlier run, which a `Replacement` ends."""
    sinks = {
        name: attrs.evolve(sink, sink=sink.sink.beside(run)) if isinstance(sink.sink, Replacing) else sink
        for name, sink in plan.sinks.items()
    }
    return attrs.evolve(plan, sinks=sinks)


@attrs.define
class Replacement:
    """What becomes of files that a run has written beside those of an earlier one: the first call counts."""

    run: str = ""
    sinks: Mapping[str, Sink] = attrs.field(factory=dict)
    _is_over: bool = attrs.field(default=False, init=False)

    def publish(self) -> None:
        """The run has been: its files replace those of an earlier one. Raises `SinkError` where they cannot."""
        for name, sink in self._ending():
            try:
                sink.publish(self.run)
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be replaced: {_what(error)}") from error

    def withdraw(self) -> None:
        """The run failed: its files go, but for dead letters, which say why."""
        for name, sink in self._ending():
            with suppress(OSError):  # what failed before is told
                if name == UNCLAIMED and sink.has_beside(self.run):
                    sink.publish(self.run)
                sink.forget(self.run)

    def _ending(self) -> list[tuple[str, Replacing]]:
        """Those that end now."""
        ending = {} if self._is_over else self.sinks
        self._is_over = True
        return [(name, sink) for name, sink in ending.items() if isinstance(sink, Replacing)]


def _what(error: Exception) -> str:
    """The error in words: of one with the traceback of another process in it, the last line."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        text = text.splitlines()[-1]
    return f"{type(error).__name__}: {text}"
