"""A part of a Beam pipeline in this package's own interface, which works on columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

import apache_beam as beam
import attrs
import polars as pl
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.internal import pickler
from apache_beam.transforms import window as beam_window
from apache_beam.utils.timestamp import Timestamp

from beamlike.api.pipeline import Collection, Pipeline
from beamlike.beam.nodes import Context
from beamlike.beam.phases import COLUMNS
from beamlike.beam.read import SINK
from beamlike.beam.strategies import coder_text
from beamlike.io.announcing import AnnouncingSource
from beamlike.io.base import Announced, output_frame
from beamlike.io.memory import Memory
from beamlike.local.engine import Engine
from beamlike.plan.model import Plan
from beamlike.rows.dtypes import SchemaLike
from beamlike.runtime.batch.ingest import ingest
from beamlike.runtime.batch.kept_inputs import keep_inputs, load_inputs
from beamlike.runtime.loop.batch_input import BatchInput
from stages.progress.inputs import Inputs
from stages.state.index import HoldOwner
from stages.state.store import StateStore, Within
from windowing.clocks import PROCESSING_TIME
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME, MIN_TIME

TIMESTAMP: Final = "beam_timestamp"
"""The column with the timestamps (us) of elements."""
_SOURCE: Final = "elements"

Part = Callable[[Collection], Collection]
"""A function that declares the part."""


@attrs.frozen
class _Elements(AnnouncingSource):
    """The elements of a Beam collection, with the watermark of Beam. The node ingests them itself."""

    columns: Mapping[str, Any]

    def schema(self) -> dict[str, Any]:
        return {**self.columns, TIMESTAMP: pl.Int64}

    def plan(self, position: Any, rows: int) -> NoReturn:
        raise NotImplementedError

    def read(self, batch: Any) -> NoReturn:
        raise NotImplementedError


def _planned(part: Part, schema: SchemaLike) -> Plan:
    pipeline = Pipeline("columns", max_dead_letters=0)
    source = _Elements(schema)  # type: ignore[arg-type]
    elements = pipeline.read(_SOURCE, source, timestamp=TIMESTAMP, timestamp_unit="us", max_future=None)
    made = part(elements)
    if not isinstance(made, Collection):
        raise TypeError(f"InColumns: the function must return a collection, not {made!r}")
    made.write(SINK, Memory())
    return pipeline.plan()


class InColumns(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
    """Executes a part of a Beam pipeline in this package's own interface, on columns. Experimental.

    Elements become rows: dicts, tuples with the values in the order of `schema`, or, for a single column, the values.
    Their timestamps are the event times, and their watermark is that of the part. The rows of the result are dicts,
    with the columns that a sink receives, in the global window, with their event times as timestamps. Needs
    `BeamlikeRunner`.

    Args:
        part: A function of a `bl.Collection` that returns another.
        schema: The columns of the elements and their types.

    Raises:
        PlanError: The part is invalid. Raised when the transform is applied.

    Example:
        minutes = lambda plays: plays.window_into(bl.FixedWindows("1m")).group_by("user")
        sums = pairs | InColumns(lambda plays: minutes(plays).aggregate(n=bl.sum("n")), {"user": str, "n": int})
    """

    def __init__(self, part: Part, schema: SchemaLike) -> None:
        super().__init__()
        self.part, self.schema = part, schema

    def expand(self, elements: Any) -> Any:
        """Returns the collection of the rows."""
        _planned(self.part, self.schema)
        return beam.PCollection.from_(elements, is_bounded=elements.is_bounded)

    def infer_output_type(self, kind: Any) -> Any:
        """Returns the type of the rows."""
        return dict[str, Any]

    def get_windowing(self, inputs: Any) -> Any:
        """Returns the windowing of the rows."""
        return beam.Windowing(beam_window.GlobalWindows())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        """Returns the transform as it is in a pipeline proto."""
        return COLUMNS, pickler.dumps((self.part, self.schema))

    @staticmethod
    @beam.PTransform.register_urn(COLUMNS, None)  # type: ignore[untyped-decorator, unused-ignore]
    def from_runner_api_parameter(transform: Any, payload: bytes, context: Any) -> InColumns:
        """Returns the transform of a pipeline proto."""
        return InColumns(*pickler.loads(payload))


@attrs.define
class TakenRows:
    """A sink that takes the rows of each batch."""

    rows: list[pl.DataFrame] = attrs.field(factory=list)

    def may_change(self, arrived: Any) -> bool:
        return False

    def write(self, batch: int, arrived: Mapping[str, list[pl.DataFrame]], threads: Any) -> dict[str, int]:
        self.rows = arrived.get(SINK, [])
        return {}


class ColumnsNode:
    """A part in columns with its state: reads encoded elements, and emits encoded rows."""

    def __init__(
        self, buffer: bytes, context: Context, transform: Any, store: StateStore, now: Callable[[], int]
    ) -> None:
        name = transform.unique_name
        self.key = self.label = name
        self.buffer, self.now = buffer, now
        (source,), (target,) = transform.inputs.values(), transform.outputs.values()
        names, coders = context.data_channel_coders, context.pipeline_context.coders
        self.coder, self.row_coder = (coders[names[each]].get_impl() for each in (source, target))
        self.coder_text = coder_text(context.pipeline_components.coders, names[source])
        part, schema = pickler.loads(transform.spec.payload)
        self.plan = _planned(part, schema)
        self.columns = [name for name in self.plan.sources[_SOURCE].source.schema() if name != TIMESTAMP]
        self.store, self.sink = Within(store, f"{name}/"), TakenRows()
        self.engine = Engine(self.plan, now, store=self.store)
        self.timed = any(PROCESSING_TIME in one.stage.operator.clocks for one in self.plan.stages.values())
        self.pending: list[bytes] = []
        self.output, self.number = MIN_TIME, 0
        self.clock: tuple[int, int] | None = None

    def described(self) -> dict[str, str]:
        """Returns a description that a checkpoint compares: the stages of the part, and the coder of its input."""
        stages = ", ".join(
            f"{name} {plan.stage.operator.declared}" for name, plan in self.plan.stages.items()
        )
        return {f"the part {self.key!r}": f"{stages}, encoded as {self.coder_text}"}

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains, besides the state."""
        for name, inputs in self.engine.inputs.items():
            keep_inputs(name, self.store, inputs)
        yield "watermark", (self.output, self.number)
        yield "pending", self.pending

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.output, self.number = saved["watermark"]
        self.pending = saved["pending"]
        known = {name: load_inputs(name, self.store) for name in self.plan.producers}
        self.engine.inputs |= {name: inputs for name, inputs in known.items() if inputs != Inputs()}

    def holder(self) -> HoldOwner | None:
        """Returns None: what holds the watermark of a part is not in the records."""
        return None

    def step(self, watermark: int, processing_time: int) -> bytes:
        """Executes the part with the pending elements, then advances its clocks (us). Returns the encoded rows."""
        if not self.timed:
            processing_time = 0
        if not self.pending and self.clock == (watermark, processing_time):
            return b""
        self.clock = (watermark, processing_time)
        now, source = self.now(), self.plan.sources[_SOURCE]
        got = ingest(source, Announced(self._arrivals().lazy(), watermark), now)
        batch = BatchInput({_SOURCE: got}, {_SOURCE: now}, now, ended=watermark >= MAX_TIME)
        record = self.engine.run(batch, self.number, self.sink)  # type: ignore[arg-type]
        self.number += 1
        if record.errors:
            (where, error), *_ = record.errors.items()
            raise RuntimeError(f"InColumns {self.label!r}: an element cannot be used in {where!r}: {error}")
        ends = {name: one.output for name, one in record.stages.items()}
        ends |= {name: one.watermark for name, one in record.sources.items()}
        self.output = max(self.output, min(ends[name] for name in self.plan.sinks[SINK].inputs))
        return b"".join(map(self._encoded, self.sink.rows))

    def _arrivals(self) -> pl.DataFrame:
        """Removes the pending elements, and decodes them."""
        elements = [each for chunk in self.pending for each in self.coder.decode_all(chunk)]
        self.pending = []
        values = [element.value for element in elements]
        if values and not isinstance(values[0], dict | tuple):
            values = [(value,) for value in values]
        schema = {name: self.plan.sources[_SOURCE].source.schema()[name] for name in self.columns}
        rows = pl.DataFrame(values, schema, orient="row")
        times = pl.Series(TIMESTAMP, [element.timestamp_micros for element in elements], pl.Int64)
        return rows.with_columns(times)

    def _encoded(self, frame: pl.DataFrame) -> bytes:
        out, times = create_OutputStream(), frame[EVENT_TIME].to_list()
        for at, row in zip(times, output_frame(frame).iter_rows(named=True), strict=True):
            stamp = Timestamp(micros=MIN_TIME if at is None else at)
            self.row_coder.encode_to_stream(beam_window.GlobalWindows.windowed_value(row, stamp), out, True)
        encoded: bytes = out.get()
        return encoded
