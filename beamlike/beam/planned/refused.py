"""The checks of a pipeline that is executed as a plan. Each names what a plan does not support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apache_beam.portability import python_urns

from beamlike.beam.phases import COLUMNS, is_endless, payload_of
from beamlike.beam.streams import streams_of

_MODES: Final = {
    python_urns.EMBEDDED_PYTHON_GRPC: "multi_threading",
    python_urns.SUBPROCESS_SDK: "multi_processing",
}
"""The pipeline option that asks for an environment."""


def check(pipeline: Any, *, fired: bool) -> None:
    """Raises `NotImplementedError`, with the name of a transform, if the pipeline cannot be executed as a plan.

    `fired`: the pipeline is one because a side input may fire more than once.
    """
    who = (
        "BeamlikeRunner, with a side input that may fire more than once,"
        if fired
        else "BeamlikeRunner(spark=...)"
    )
    for transform in pipeline.components.transforms.values():
        for why in _reasons(transform, pipeline):
            raise NotImplementedError(f"{who} cannot run {transform.unique_name!r}: {why}")


def _reasons(transform: Any, pipeline: Any) -> Iterator[str]:
    """Yields the reasons why a transform cannot be executed."""
    if transform.spec.urn == COLUMNS:
        yield "a part in columns needs BeamlikeRunner without spark="
    environment = pipeline.components.environments.get(transform.environment_id)
    if environment is not None and environment.urn != python_urns.EMBEDDED_PYTHON:
        asked = _MODES.get(environment.urn)
        because = f"; leave out --direct_running_mode={asked}, which asks for it" if asked else ""
        yield f"it needs an environment of its own, {environment.urn}{because}"
    payload = payload_of(transform)
    if payload is None:
        return
    if payload.requests_finalization:
        yield "it finalizes bundles, which a batch commits only after they are finalized"
    if payload.restriction_coder_id and streams_of(pipeline) and is_endless(payload):
        yield (
            "it is a splittable DoFn that is unbounded per element, and the pipeline has a TestStream, at whose end "
            "the run ends"
        )
