"""Beam pipelines that read and write topics of Kafka, without a Java service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.testing.util import assert_that, equal_to  # noqa: E402

from beamlike.beam.kafka import KafkaRecord, ReadFromKafka, WriteToKafka  # noqa: E402
from tests.beamlike.beam.pipelines import RunningSum, see, seen, streaming  # noqa: E402
from tests.connectors.kafka import Cluster  # noqa: E402

pytestmark = pytest.mark.connectors

MINUTE = 60_000
START = 1_767_225_600_000  # ms, the start of a minute


def settings(kafka: Cluster) -> dict[str, str]:
    return {"bootstrap.servers": kafka.servers, "auto.offset.reset": "earliest"}


def test_messages_are_pairs_of_bytes_with_their_own_time(kafka: Cluster) -> None:
    topic = kafka.topic(2)
    for n in range(6):
        kafka.send(topic, [b"%d" % n], n % 2, key=b"red", timestamp=START + n * MINUTE // 3)
    with streaming() as p:
        read = ReadFromKafka(settings(kafka), [topic], max_num_records=6, timestamp_policy="CreateTime")
        pairs = p | read | beam.MapTuple(lambda key, value: (key, int(value)))
        sums = pairs | beam.WindowInto(beam.window.FixedWindows(60)) | beam.CombinePerKey(sum)
        assert_that(sums, equal_to([(b"red", 0 + 1 + 2), (b"red", 3 + 4 + 5)]))


def test_a_record_has_the_metadata_of_its_message(kafka: Cluster) -> None:
    topic = kafka.topic()
    kafka.send(topic, [b"x"], key=None, timestamp=START, headers=[("kind", b"a")])
    seen.clear()
    with streaming() as p:
        read = ReadFromKafka(settings(kafka), [topic], max_num_records=1, with_metadata=True)
        p | read | beam.Map(see)
    record = KafkaRecord(topic, 0, 0, START, None, b"x", [("kind", b"a")], 0, "CREATE_TIME")
    assert seen == [record]


def test_pairs_are_messages(kafka: Cluster) -> None:
    topic = kafka.topic()
    with streaming() as p:
        (
            p
            | beam.Create([(b"a", b"1"), (None, b"2")])
            | WriteToKafka({"bootstrap.servers": kafka.servers}, topic)
        )
    with streaming() as p:
        read = p | ReadFromKafka(settings(kafka), [topic], max_num_records=2)
        assert_that(read, equal_to([(b"a", b"1"), (None, b"2")]))


class Fails(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Fails at a value while a file does not exist, which it then creates."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def process(self, element: tuple[bytes, int]) -> Any:
        if element[1] == 40 and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("the service is away")
        yield element


def test_a_run_continues_at_the_offsets_and_with_the_state_of_its_checkpoint(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beamlike.beam.kafka._ROWS", 7)
    topic = kafka.topic(2)
    for partition in range(2):
        kafka.send(topic, [b"%d" % n for n in range(partition, 50, 2)], partition, key=b"red")

    def run() -> None:
        with streaming(checkpoint=tmp_path / "checkpoint") as p:
            pairs = p | ReadFromKafka(settings(kafka), [topic], max_num_records=50)
            numbers = pairs | beam.MapTuple(lambda key, value: (key, int(value)))
            (
                numbers
                | "fails" >> beam.ParDo(Fails(tmp_path / "mark"))
                | "sum" >> beam.ParDo(RunningSum())
                | beam.Map(see)
            )

    seen.clear()
    with pytest.raises(RuntimeError, match="the service is away"):
        run()
    before = len(seen)
    run()
    assert 0 < before < 50 == len(seen)
    assert max(total for _, total in seen) == sum(range(50))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"consumer_config": {}}, "has no 'bootstrap.servers'"),
        (
            {"timestamp_policy": "EventTime"},
            "must be ProcessingTime, CreateTime, LogAppendTime, not 'EventTime'",
        ),
        (
            {"consumer_config": {"bootstrap.servers": "a:1", "group.id": "g"}},
            "'group.id' would have no effect",
        ),
        (
            {"consumer_config": {"bootstrap.servers": "a:1", "auto.offset.reset": "none"}},
            "earliest or latest",
        ),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadFromKafka(**{"consumer_config": {"bootstrap.servers": "a:1"}, "topics": ["plays"], **arguments})
