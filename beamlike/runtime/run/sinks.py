"""Checks, locks and starts the sinks of a run. Errors name the sink."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import attrs

from beamlike.errors import PlanError, SinkError, SinkInUse, naming_step
from beamlike.expressions.describe import describe
from beamlike.io.base import Sink, WrittenBySpark, WrittenInFrames
from beamlike.io.sinks import HasCheck, HasStart, Lockable, PerRun
from beamlike.plan.model import Plan
from beamlike.runtime.batch.writing import failure, what_failed
from beamlike.system.locks import InUse
from beamlike.system.retries import FEW, again


def with_sinks_of_run(plan: Plan) -> Plan:
    """Returns the plan for one run. Sinks that store what they learn are replaced by copies, so that declarations do
    not change.

    Raises `PlanError` if `for_run` of a sink does not return a sink.
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
        f"{kind}.for_run() must return a sink for one run, such as a copy, not {found!r}", step=name
    )


def check_sinks(sinks: Mapping[str, Sink]) -> None:
    """Checks sinks each time a run begins or continues.

    Raises `PlanError` if a sink's target does not fit, and `SinkError` if it cannot be inspected.
    """
    for name, sink in sinks.items():
        if isinstance(sink, HasCheck):
            try:
                with naming_step(name):
                    again(f"sink {name!r}", sink.check, FEW)
            except PlanError:
                raise
            except Exception as error:
                raise SinkError(name, f"{describe(sink)} cannot be used: {what_failed(error)}") from error


_NAME_IT: Final = (
    "wait for its end, or give this run a name of its own: LocalRunner(run_id=...), or on Spark a checkpoint"
)


def hold_sinks(plan: Plan, run: str, remedy: str = _NAME_IT) -> ExitStack:
    """Locks the targets of a plan's sinks against other runs of this name, until the returned stack is closed.

    Raises `SinkInUse`, whose message names the holder and ends with `remedy`. Raises `SinkError` or the sink's own
    error if a target cannot be opened.
    """
    with ExitStack() as held:
        for name, sink in plan.sinks.items():
            if isinstance(sink.sink, Lockable):
                _hold(name, sink.sink, run, held, remedy)
        return held.pop_all()


def _hold(name: str, sink: Lockable, run: str, held: ExitStack, remedy: str) -> None:
    try:
        with naming_step(name):
            if (lock := again(f"sink {name!r}", partial(sink.hold, run), FEW)) is not None:
                held.enter_context(lock)
    except InUse as error:
        raise SinkInUse(name, f"{describe(sink)} is being written by {error}; {remedy}") from None
    except PlanError:
        raise
    except Exception as error:
        raise SinkError(name, f"{describe(sink)} cannot be opened: {what_failed(error)}") from error


def start_sink(name: str, sink: Sink, run: str) -> None:
    """Lets the sink prepare its target. Raises `SinkError` if that fails, and the sink's own errors."""
    if not isinstance(sink, HasStart):
        return
    try:
        with naming_step(name):
            again(f"sink {name!r}", partial(sink.start, run), FEW)
    except (PlanError, SinkError):
        raise
    except Exception as error:
        raise failure(name, sink, "{} cannot be opened", error) from error


def require_in_process(plan: Plan) -> None:
    """Raises `PlanError` for a sink that only Spark can write."""
    for name, sink in plan.sinks.items():
        if not isinstance(sink.sink, WrittenInFrames):
            raise PlanError("only Spark can write this sink: run with runner=bl.SparkRunner(...)", step=name)
