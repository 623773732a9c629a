"""The checks of a pipeline that is executed as a plan. Each names what a plan does not support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apache_beam.internal import pickler
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.transforms.core import DoFnInfo

from beamlike.beam.phases import READ, payload_of
from beamlike.beam.stateful import timer_name
from beamlike.beam.streams import streams_of


def check(pipeline: Any, runner: Any) -> None:
    """Raises `NotImplementedError`, with the name of a transform, if the runner cannot execute the pipeline as a plan.

    Timers by processing time need a run that goes on, or a TestStream, which sets the processing time.
    """
    simulated = bool(streams_of(pipeline))
    ends = runner.drain or (runner.checkpoint is None and runner.trigger == "available_now")
    for transform in pipeline.components.transforms.values():
        for why in _reasons(transform, pipeline, clock_stops=ends and not simulated):
            raise NotImplementedError(
                f"BeamlikeRunner(spark=...) cannot run {transform.unique_name!r}: {why}"
            )


def _reasons(transform: Any, pipeline: Any, *, clock_stops: bool) -> Iterator[str]:
    """Yields the reasons why a transform cannot be executed."""
    if transform.spec.urn == READ and streams_of(pipeline):
        yield "the pipeline has a TestStream, which sets the time of all sources"
    environment = pipeline.components.environments.get(transform.environment_id)
    if environment is not None and environment.urn != python_urns.EMBEDDED_PYTHON:
        yield f"it needs an environment of its own, {environment.urn}"
    payload = payload_of(transform)
    if payload is None:
        return
    if payload.requests_finalization:
        yield "it finalizes bundles, which a batch commits only after they are finalized"
    if payload.restriction_coder_id and _is_endless(payload):
        yield (
            "it is a splittable DoFn that is unbounded per element, and would never end its batch; beamlike.beam.Read "
            "reads sources that grow"
        )
    for name, spec in payload.timer_family_specs.items():
        if clock_stops and spec.time_domain == beam_protos.TimeDomain.PROCESSING_TIME:
            yield (
                f"its timer {timer_name(name)!r} fires by processing time, and the run ends before; give the runner a "
                "checkpoint, or a trigger with an interval"
            )


def _is_endless(payload: Any) -> bool:
    """True if a splittable DoFn is declared with `@DoFn.unbounded_per_element()`."""
    data = DoFnInfo.from_runner_api(payload.do_fn, None).serialized_dofn_data()
    fn, *_ = pickler.loads(data)
    return bool(getattr(fn.process, "unbounded_per_element", False))
