"""A primitive transform that the runner does not know is refused by its label and URN, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.io.gcp.pubsub import (  # noqa: E402
    MultipleReadFromPubSub,
    PubSubSourceDescriptor,
    ReadFromPubSub,
    _PubSubSink,
)
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402

import beamlike as bl  # noqa: E402
from beamlike.beam import BeamlikeRunner  # noqa: E402

TOPIC, SUBSCRIPTION = "projects/project/topics/topic", "projects/project/subscriptions/name"
SINK = _PubSubSink(TOPIC, None, None)
READ, WRITE = "beam:transform:pubsub_read:v1", "beam:transform:pubsub_write:v1"
PICKLED, OWN = "beam:transform:pickled_python:v1", "tests:transform:own:v1"


class Begins(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
    """A transform without an input or parts, which some other runner may know."""

    def expand(self, begin: Any) -> Any:
        return beam.PCollection(begin.pipeline, is_bounded=True)

    def get_windowing(self, inputs: Any) -> Any:
        return beam.Windowing(beam.window.GlobalWindows())


class Named(Begins):
    """A primitive with a URN of its own."""

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return OWN, b""


class Continues(Named):
    """A primitive with an input, and an output of its own."""

    def expand(self, rows: Any) -> Any:
        return beam.PCollection.from_(rows)


class Ends(Named):
    """A primitive with an input and no output."""

    def expand(self, rows: Any) -> Any:
        return beam.pvalue.PDone(rows.pipeline)


class Nested(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
    """A composite transform with a primitive in it."""

    def expand(self, begin: Any) -> Any:
        return begin | "inner" >> Named() | beam.WindowInto(beam.window.FixedWindows(5)) | beam.GroupByKey()


def side(p: Any) -> Any:
    return p | beam.Create([1]) | beam.Map(lambda row, own: row, beam.pvalue.AsIter(p | "side" >> Named()))


def flattened(p: Any) -> Any:
    return (p | beam.Create([1]), p | "other" >> Named()) | beam.Flatten()


KINDS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a topic": (lambda p: p | ReadFromPubSub(TOPIC), "ReadFromPubSub/Read", READ),
    "a subscription": (lambda p: p | "in" >> ReadFromPubSub(None, SUBSCRIPTION), "in/Read", READ),
    "attributes": (lambda p: p | ReadFromPubSub(TOPIC, with_attributes=True), "ReadFromPubSub/Read", READ),
    "several topics": (
        lambda p: (
            p | MultipleReadFromPubSub([PubSubSourceDescriptor(TOPIC), PubSubSourceDescriptor(SUBSCRIPTION)])
        ),
        "Read",
        READ,
    ),
    "a write": (lambda p: p | beam.Create([b"a"]) | "out" >> beam.io.Write(SINK), "out", WRITE),
    "no URN": (lambda p: p | "begins" >> Begins(), "begins", PICKLED),
    "another URN": (lambda p: p | "begins" >> Named(), "begins", OWN),
    "nested": (lambda p: p | "outer" >> Nested(), "outer/inner", OWN),
    "a side": (side, "side", OWN),
    "flattened": (flattened, "other", OWN),
    "with an input": (lambda p: p | beam.Create([1]) | "continues" >> Continues(), "continues", OWN),
    "without an output": (lambda p: p | beam.Create([1]) | "ends" >> Ends(), "ends", OWN),
}


def refused(runner: BeamlikeRunner, kind: str) -> None:
    build, label, urn = KINDS[kind]
    p = beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"]))
    build(p)
    with pytest.raises(
        NotImplementedError, match=f"BeamlikeRunner cannot run '.*{label}.*no implementation of '{urn}'"
    ):
        p.run()


@pytest.mark.parametrize("kind", KINDS)
def test_a_primitive_that_is_not_known_is_refused(kind: str) -> None:
    refused(BeamlikeRunner(), kind)


def test_so_is_one_of_a_plan() -> None:
    refused(BeamlikeRunner(spark=bl.LocalRunner(quiet=True)), "a topic")


def test_a_refused_run_leaves_no_checkpoint(tmp_path: Path) -> None:
    refused(BeamlikeRunner(checkpoint=tmp_path / "checkpoint"), "a write")
    assert not [*tmp_path.iterdir()]


def test_composites_of_users_that_do_nothing_run() -> None:
    class Same(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
        def expand(self, rows: Any) -> Any:
            return rows

    with beam.Pipeline(runner=BeamlikeRunner()) as p:
        p | beam.Create([1]) | Same() | beam.Map(lambda row: row)
        (() | beam.Flatten(pipeline=p)) | "nothing" >> beam.Map(lambda row: row)
