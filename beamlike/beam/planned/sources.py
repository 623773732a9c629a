"""The sources of a plan: the event of an Impulse, and the events of TestStreams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import polars as pl

from beamlike.beam.cells import BUFFER
from beamlike.beam.planned.steps import CHUNKS
from beamlike.beam.streams import Streams
from beamlike.io.sources import SourceStep
from stages.strategies.announced import AnnouncedWatermark, announcement
from windowing.time import MIN_TIME


class StreamWatermark(AnnouncedWatermark):
    """The watermark of a TestStream. The times of elements are in their encoded content."""

    assigns_event_time: ClassVar[bool] = True


@attrs.frozen(eq=False)
class Script:
    """A source of the steps of a TestStream."""

    steps: tuple[SourceStep, ...] = attrs.field(repr=lambda steps: f"<{len(steps)} steps>")

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


def scripts_of(transforms: Sequence[Any], context: Any) -> Mapping[bytes, Script]:
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
    return {buffer: Script(tuple(steps)) for buffer, steps in found.items()}


def impulse(buffer: bytes, element: bytes) -> Script:
    """Returns an Impulse of a pipeline with TestStreams."""
    return Script((SourceStep(pl.DataFrame([(buffer, element)], CHUNKS, orient="row"), {}, 0),))
