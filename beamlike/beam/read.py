"""The transform that reads a source of this engine in a Beam pipeline."""

from __future__ import annotations

from typing import Any, Final

import apache_beam as beam
import polars as pl
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.internal import pickler
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from beamlike.api.pipeline import Pipeline
from beamlike.beam.phases import READ
from beamlike.io.memory import Memory
from beamlike.plan.model import Plan, SourcePlan
from windowing.columns import EVENT_TIME

SOURCE: Final = "source"
SINK: Final = "rows"


class Read(beam.PTransform):
    """Reads a source of beamlike, such as `bl.Kafka` or `bl.CSV`, as dicts. Experimental.

    Its elements are in the global window, with their event time cut to milliseconds. In process, the collection ends
    when a bounded source has no more rows; with `BeamlikeRunner(spark=...)`, when the run does.

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


def planned(source: Any, options: Any) -> Plan:
    """Returns the plan of a pipeline of this engine that only reads the source."""
    pipeline = Pipeline("beam", max_dead_letters=0)
    pipeline.read(SOURCE, source, **options).write(SINK, Memory())
    return pipeline.plan()


def declared(source: Any, options: Any) -> SourcePlan:
    """Returns the source as a pipeline of this engine reads it."""
    return planned(source, options).sources[SOURCE]


def encoded_rows(coder: Any, rows: pl.DataFrame) -> bytes:
    """Encodes rows, and their event times (us) if they have some, as elements."""
    times = rows[EVENT_TIME].to_list() if EVENT_TIME in rows.columns else [None] * len(rows)
    users = rows.select(name for name in rows.columns if name != EVENT_TIME)
    out = create_OutputStream()
    for row, time_us in zip(users.iter_rows(named=True), times, strict=True):
        at = MIN_TIMESTAMP if time_us is None else Timestamp(micros=time_us)
        coder.encode_to_stream(GlobalWindows.windowed_value(row, at), out, True)
    encoded: bytes = out.get()
    return encoded


def reads_in(pipeline: Any) -> list[Any]:
    """Returns the transforms of a pipeline proto that read sources of this engine."""
    return [each for each in pipeline.components.transforms.values() if each.spec.urn == READ]


def reads_of(pipeline: Any) -> dict[str, tuple[str, SourcePlan]]:
    """Returns the sources that a pipeline proto reads: the label and the source of each collection."""
    found = dict[str, tuple[str, SourcePlan]]()
    for transform in reads_in(pipeline):
        (collection,) = transform.outputs.values()
        found[collection] = transform.unique_name, declared(*pickler.loads(transform.spec.payload))
    return found
