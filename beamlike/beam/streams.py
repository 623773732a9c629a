"""The events of Beam's TestStream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2 as beam_protos
from apache_beam.runners.portability.fn_api_runner.translations import create_buffer_id
from apache_beam.testing.test_stream import WindowedValueHolder
from apache_beam.transforms import window as beam_window
from apache_beam.utils.timestamp import Timestamp

from beamlike.beam.nodes import Context
from beamlike.beam.phases import STREAM
from windowing.time import MAX_TIME, MIN_TIME


def streams_of(pipeline: Any) -> list[Any]:
    """Returns the TestStreams of a pipeline proto."""
    urn = common_urns.primitives.TEST_STREAM.urn
    return [each for each in pipeline.components.transforms.values() if each.spec.urn == urn]


class Streams:
    """The watermarks of TestStreams, and the processing time that they set.

    Attributes:
        watermarks: The watermark (us) of each output by collection.
        processing_time: The processing time (us); None if the pipeline has no TestStream.
    """

    def __init__(self, transforms: list[Any], context: Context, send: Callable[[bytes, bytes], None]) -> None:
        self.transforms, self.context, self.send = transforms, context, send
        self.watermarks = {each: MIN_TIME for transform in transforms for each in transform.outputs.values()}
        self.processing_time = 0 if transforms else None
        self.processed = {transform.unique_name: 0 for transform in transforms}

    def saved(self) -> Iterator[tuple[str, Any]]:
        """Yields what a checkpoint contains: how many events of each stream are processed, and the times."""
        yield "events", self.processed
        yield "times", (self.watermarks, self.processing_time)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self.processed = saved["events"]
        self.watermarks, self.processing_time = saved["times"]

    def play(self, settle: Callable[[], None]) -> None:
        """Processes all events in order, each with a call of `settle`, and then ends the input."""
        for transform in self.transforms:
            payload = beam_protos.TestStreamPayload.FromString(transform.spec.payload)
            for event in payload.events[self.processed[transform.unique_name] :]:
                self.processed[transform.unique_name] += 1
                self._apply(event, transform, payload)
                settle()
            self.watermarks |= dict.fromkeys(transform.outputs.values(), MAX_TIME)
            settle()

    def _apply(self, event: Any, transform: Any, payload: Any) -> None:
        kind = event.WhichOneof("event")
        own = getattr(event, kind)
        if kind == "processing_time_event":
            self.processing_time = (self.processing_time or 0) + own.advance_duration * 1000
            return
        outputs = dict(transform.outputs)
        collection = outputs[own.tag] if own.tag in outputs else next(iter(outputs.values()))
        if kind == "watermark_event":
            reached = min(own.new_watermark * 1000, MAX_TIME)
            self.watermarks[collection] = max(self.watermarks[collection], reached)
        else:
            self._feed(collection, payload.coder_id, own.elements)

    def _feed(self, collection: str, coder_id: str, elements: Any) -> None:
        coders = self.context.pipeline_context.coders
        decode = coders[coder_id].decode
        coder = coders[self.context.data_channel_coders[collection]].get_impl()
        out = create_OutputStream()
        for each in elements:
            value = decode(each.encoded_element)
            at = Timestamp(micros=each.timestamp * 1000)
            held = isinstance(value, WindowedValueHolder)
            placed = value.windowed_value if held else beam_window.GlobalWindows.windowed_value(value, at)
            coder.encode_to_stream(placed, out, True)
        self.send(self.buffer(collection), out.get())

    @staticmethod
    def buffer(collection: str) -> bytes:
        """Returns the buffer of the elements of an output."""
        buffer: bytes = create_buffer_id(collection, STREAM)
        return buffer
