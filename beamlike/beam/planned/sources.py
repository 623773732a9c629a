"""The sources of a plan: the event of an Impulse, and the events of TestStreams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import polars as pl
from apache_beam.runners.common import ENCODED_IMPULSE_VALUE
from apache_beam.runners.portability.fn_api_runner import translations

from beamlike.beam.cells import BUFFER
from beamlike.beam.planned.steps import CHUNKS
from beamlike.beam.streams import Streams
from beamlike.io.sources import PlannedBatch, Position, SourceStep
from stages.strategies.announced import AnnouncedWatermark, announcement
from windowing.time import MIN_TIME


class StreamWatermark(AnnouncedWatermark):
    """The watermark of a TestStream. The times of elements are in their encoded content."""

    assigns_event_time: ClassVar[bool] = True


@attrs.frozen(eq=False)
class TestStream:
    """A source of the steps of a TestStream, or of an Impulse beside one."""

    steps: tuple[SourceStep, ...] = attrs.field(repr=lambda steps: f"<{len(steps)} steps>")

    __test__: ClassVar[bool] = False  # otherwise pytest would collect the class

    bounded = True

    @property
    def processing_time(self) -> int:
        """The processing time after the last step (us)."""
        return self.steps[-1].processing_time

    @property
    def announces(self) -> bool:
        """True if any step announces a watermark."""
        return any(step.summary for step in self.steps)

    def schema(self) -> pl.Schema:
        """Returns the columns of the elements."""
        return CHUNKS

    def chunks(self, rows: int) -> Iterator[pl.LazyFrame]:
        """Yields the elements of each step that has some."""
        return (step.elements.lazy() for step in self.steps if step.elements.height)

    def step(self, number: int) -> SourceStep:
        """Returns the step with this number; after the last step, one in which nothing happens."""
        if number < len(self.steps):
            return self.steps[number]
        return SourceStep(CHUNKS.to_frame(), {}, self.processing_time)

    def datasets(self) -> list[Any]:
        """Returns no dataset, since the elements are part of the program."""
        return []


def scripts_of(transforms: Sequence[Any], context: Any) -> Mapping[bytes, TestStream]:
    """Returns the outputs of TestStreams by buffer. Each event of a stream is a step of all of them."""
    rows = list[tuple[bytes, bytes]]()
    streams = Streams(list(transforms), context, lambda buffer, data: rows.append((buffer, data)))
    found: dict[bytes, list[SourceStep]] = {streams.buffer(each): [] for each in streams.watermarks}
    announced = dict.fromkeys(streams.watermarks, MIN_TIME)

    def settle() -> None:
        sent = pl.DataFrame(rows, CHUNKS, orient="row")
        rows.clear()
        for collection, watermark in streams.watermarks.items():
            summary = announcement(watermark) if watermark != announced[collection] else {}
            announced[collection], buffer = watermark, streams.buffer(collection)
            own = sent.filter(pl.col(BUFFER) == pl.lit(buffer))
            found[buffer].append(SourceStep(own, summary, streams.processing_time or 0))

    streams.play(settle)
    return {buffer: TestStream(tuple(steps)) for buffer, steps in found.items()}


def impulse() -> pl.DataFrame:
    """Returns the element of an Impulse."""
    return pl.DataFrame([(translations.IMPULSE_BUFFER, ENCODED_IMPULSE_VALUE)], CHUNKS, orient="row")


def impulse_beside_streams() -> TestStream:
    """Returns the Impulse of a pipeline with TestStreams."""
    return TestStream((SourceStep(impulse(), {}, 0),))


@attrs.frozen(eq=False)
class Impulse:
    """A source of one element."""

    bounded = True

    def schema(self) -> pl.Schema:
        """Returns the columns of the element."""
        return CHUNKS

    def plan(self, position: Position, rows: int) -> PlannedBatch | None:
        """Plans the only batch."""
        return None if position else PlannedBatch([1], {"rows": 1})

    def read(self, batch: PlannedBatch) -> pl.DataFrame:
        """Returns the element."""
        return impulse()

    def datasets(self) -> list[Any]:
        """Returns no dataset, since the element is part of the program."""
        return []
