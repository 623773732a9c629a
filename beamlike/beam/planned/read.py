"""The transform that reads a source of this engine in a Beam pipeline that is executed as a plan."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler

from beamlike.api.pipeline import Pipeline
from beamlike.beam.phases import READ
from beamlike.io.memory import Memory
from beamlike.plan.model import SourcePlan


class Read(beam.PTransform):
    """Reads a source of beamlike, such as `bl.Kafka` or `bl.CSV`, as dicts. Experimental.

    A pipeline with this transform needs `BeamlikeRunner(spark=...)`. Its elements are in the global window, with their
    event time cut to milliseconds.

    Args:
        source: The source.
        **options: The arguments of `Pipeline.read`, such as `timestamp` and `watermark`.

    Raises:
        PlanError: The options do not fit the source, as in `Pipeline.read`.

    Example:
        plays = bl.CSV("plays/*.csv", schema={"user": str, "at": int})
        lines = pipeline | "plays" >> Read(plays, timestamp="at", watermark=bl.BoundedOutOfOrderness("5s"))
    """

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__()
        self.source, self.options = source, options
        declared(source, options)

    def default_label(self) -> str:
        """Returns the label, unless the user gives one."""
        return f"Read({type(self.source).__name__})"

    def expand(self, begin: Any) -> Any:
        """Returns the collection of the rows."""
        return beam.PCollection(begin.pipeline, element_type=dict[str, Any], is_bounded=self.source.bounded)

    def get_windowing(self, inputs: Any) -> Any:
        """Returns the windowing of the collection."""
        return beam.Windowing(beam.window.GlobalWindows())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        """Returns the transform as it is in a pipeline proto."""
        return READ, pickler.dumps((self.source, self.options))

    @staticmethod
    @beam.PTransform.register_urn(READ, None)  # type: ignore[untyped-decorator]
    def from_runner_api_parameter(transform: Any, payload: bytes, context: Any) -> Read:
        """Returns the transform of a pipeline proto."""
        source, options = pickler.loads(payload)
        return Read(source, **options)


def declared(source: Any, options: Any) -> SourcePlan:
    """Returns the source as a pipeline of this engine reads it."""
    pipeline = Pipeline("beam")
    pipeline.read("source", source, **options).write("rows", Memory())
    return pipeline.plan().sources["source"]


def reads_of(pipeline: Any) -> dict[str, tuple[str, SourcePlan]]:
    """Returns the sources that a pipeline proto reads: the label and the source of each collection."""
    found = dict[str, tuple[str, SourcePlan]]()
    for transform in pipeline.components.transforms.values():
        if transform.spec.urn == READ:
            (collection,) = transform.outputs.values()
            source = declared(*pickler.loads(transform.spec.payload))
            found[collection] = transform.unique_name, source
    return found
