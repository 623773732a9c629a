"""The primitive transforms that the runner knows. Any other would be skipped, or read as empty, by Beam's phases."""

from __future__ import annotations

from typing import Any, Final

from apache_beam.portability import common_urns, python_urns
from apache_beam.runners.portability.fn_api_runner.translations import KNOWN_COMPOSITES
from apache_beam.runners.worker.bundle_processor import BeamTransformFactory

from beamlike.beam.phases import COLUMNS, READ

_NOTHING: Final = frozenset(["", python_urns.GENERIC_COMPOSITE_TRANSFORM, python_urns.PICKLED_TRANSFORM])
"""The URNs of transforms of users that do nothing if they have neither parts nor outputs of their own."""


def check_primitives(pipeline: Any) -> None:
    """Raises `NotImplementedError`, with its label and URN, if a pipeline proto has a primitive that is not known."""
    known = {*_primitives(), *KNOWN_COMPOSITES, *BeamTransformFactory._known_urns}
    for transform in pipeline.components.transforms.values():
        urn, own = transform.spec.urn, {*transform.outputs.values()} - {*transform.inputs.values()}
        if transform.subtransforms or urn in known or (not own and urn in _NOTHING):
            continue
        remedy = (
            "it can write with a DoFn"
            if transform.inputs
            else "it can read with beamlike.beam.Read, beamlike.beam.kafka.ReadFromKafka or a splittable DoFn"
        )
        raise NotImplementedError(
            f"BeamlikeRunner cannot run {transform.unique_name!r}: it has no implementation of {urn!r}; {remedy}"
        )


def _primitives() -> set[str]:
    """Returns the URNs of the primitives that the runner itself executes."""
    own = common_urns.primitives
    return {own.IMPULSE.urn, own.FLATTEN.urn, own.TEST_STREAM.urn, READ, COLUMNS}
