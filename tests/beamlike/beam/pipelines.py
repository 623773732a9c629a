"""Functions and streams of Beam pipelines for tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, OrderedListStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from beamlike.beam import BeamlikeRunner


class RunningSum(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the running sum of a key with each value."""

    TOTAL = BagStateSpec("total", beam.coders.VarIntCoder())

    def process(self, element: Any, total: Any = beam.DoFn.StateParam(TOTAL)) -> Iterator[Any]:
        total.add(element[1])
        yield element[0], sum(total.read())


class Sorted(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the values of a key so far in order, and forgets those below the value."""

    VALUES = OrderedListStateSpec("values", beam.coders.VarIntCoder())

    def process(self, element: Any, values: Any = beam.DoFn.StateParam(VALUES)) -> Iterator[Any]:
        key, value = element
        values.add((Timestamp(value), value))
        yield key, [each for _, each in values.read_range(Timestamp(0), Timestamp(100))]
        values.clear_range(Timestamp(0), Timestamp(value))


class AtTheEnd(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the values of a key when the watermark reaches 10, or, `by_clock`, when the processing time reaches 60."""

    VALUES = BagStateSpec("values", beam.coders.VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def __init__(self, *, by_clock: bool = False) -> None:
        self.by_clock = by_clock

    def process(
        self,
        element: Any,
        values: Any = beam.DoFn.StateParam(VALUES),
        end: Any = beam.DoFn.TimerParam(END),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> None:
        values.add(element[1])
        if self.by_clock:
            clock.set(60)
        else:
            end.set(10)

    @on_timer(END)
    def fire(
        self, key: Any = beam.DoFn.KeyParam, values: Any = beam.DoFn.StateParam(VALUES)
    ) -> Iterator[Any]:
        yield key, sorted(values.read())

    @on_timer(CLOCK)
    def fire_by_clock(
        self, key: Any = beam.DoFn.KeyParam, values: Any = beam.DoFn.StateParam(VALUES)
    ) -> Iterator[Any]:
        yield key, sorted(values.read())


def timed(seconds: int, key: str, value: int) -> Any:
    """Returns a key and a number with their time."""
    return beam.window.TimestampedValue((key, value), seconds)


def pairs() -> Any:
    """Returns an empty stream of keys and numbers."""
    coder = beam.coders.TupleCoder([beam.coders.StrUtf8Coder(), beam.coders.VarIntCoder()])
    return TestStream(coder=coder, output_tags=None)


def in_bundles(*bundles: list[tuple[str, int]]) -> Any:
    """Returns a stream whose bundles arrive one by one, before its watermark moves."""
    stream = pairs()
    for bundle in bundles:
        stream = stream.advance_processing_time(1).add_elements(bundle)
    return stream.advance_watermark_to(20).advance_watermark_to_infinity()


def streaming(**named: Any) -> Any:
    """Returns a streaming pipeline on the runner with these arguments."""
    options = PipelineOptions([])
    options.view_as(StandardOptions).streaming = True
    return beam.Pipeline(runner=BeamlikeRunner(**named), options=options)


seen: list[Any] = []
"""The elements that pipelines have passed to `see`."""


def see(element: Any) -> None:
    """Records an element. The worker imports this function by name, so that it appends to the list of this module."""
    seen.append(element)
