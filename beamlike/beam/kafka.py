"""Transforms like those of `apache_beam.io.kafka`, without a Java service: topics are read by the source `bl.Kafka`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import apache_beam as beam
import attrs
import polars as pl
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration, Timestamp

from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.messages import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
)
from beamlike.io.kafka.offsets import EARLIEST, LATEST, Offsets, split_name
from beamlike.io.kafka.reader import LogReader
from beamlike.io.kafka.source import Kafka

POLICIES: Final = ("ProcessingTime", "CreateTime", "LogAppendTime")
_ROWS: Final = 10_000
"""About how many messages a bundle has at most."""
_POLL: Final = 0.1
"""The time (s) after which a topic without new messages is read again."""
_FLUSH: Final = 60.0
"""The time (s) that the broker has for the messages of a bundle."""
_NAMES: Final = {0: "CREATE_TIME", 1: "LOG_APPEND_TIME"}


class KafkaRecord(NamedTuple):
    """A message with its metadata. Its fields have the names that they have in Beam."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestampTypeId: int
    timestampTypeName: str


@attrs.frozen
class Position:
    """A position in topics: the messages from these offsets on, after `count` earlier ones.

    `newest` has the newest time (us) of the messages of each partition.
    """

    offsets: Mapping[str, int] = attrs.field(factory=dict)
    newest: Mapping[str, int] = attrs.field(factory=dict)
    count: int = 0


class PositionTracker(RestrictionTracker):  # type: ignore[misc, unused-ignore]
    """The tracker of a `Position`, which is split only where a bundle ends."""

    def __init__(self, position: Position) -> None:
        self.left, self.ended, self.reading = position, False, False

    def current_restriction(self) -> Position:
        return self.left

    def try_claim(self, position: Position | None) -> bool:
        """Claims everything before a position.

        None announces a batch: until its position is claimed, the bundle does not end.
        """
        if self.ended:
            return False
        self.left, self.reading = position or self.left, position is None
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Position, Position] | None:
        if fraction_of_remainder or self.ended or self.reading:
            return None
        self.ended = True
        return self.left, self.left

    def check_done(self) -> None:
        """Does nothing: the rest of a topic may be left unread."""

    def current_progress(self) -> Any:
        return RestrictionProgress(completed=self.left.count, remaining=1)

    def is_bounded(self) -> bool:
        return False


class _Topics(beam.transforms.core.RestrictionProvider):  # type: ignore[misc, name-defined, unused-ignore]
    def initial_restriction(self, element: Any) -> Position:
        return Position()

    def create_tracker(self, restriction: Position) -> PositionTracker:
        return PositionTracker(restriction)

    def restriction_size(self, element: Any, restriction: Position) -> int:
        return 1

    def truncate(self, element: Any, restriction: Position) -> None:
        """Returns nothing: a run that is drained reads no further message."""


class _Read(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Emits the messages of topics."""

    def __init__(self, source: Kafka, policy: str, most: int | None, *, metadata: bool) -> None:
        self.source, self.policy, self.most, self.metadata = source, policy, most, metadata
        self.reader: LogReader | None = None

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator, unused-ignore]
    def process(
        self,
        element: Any,
        tracker: Any = beam.DoFn.RestrictionParam(_Topics()),  # noqa: B008
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),  # noqa: B008
    ) -> Iterator[Any]:
        position: Position = tracker.current_restriction()
        reader, now = self._at(position.offsets), time.time_ns() // 1000
        batch = reader.new()
        if batch is None:
            estimator.set_watermark(self._watermark(position, reader.end, now))
            tracker.defer_remainder(Duration(_POLL))
            return
        if not tracker.try_claim(None):
            return  # the runner has ended the bundle, and the next one reads this batch
        span = batch.input or {"begin": {}, "end": {}}
        rows = reader.log.read(span["begin"], span["end"])
        if self.most is not None:
            rows = rows.head(self.most - position.count)
        reader.passed(batch)
        position = _after(position, batch.position, rows)
        tracker.try_claim(position)
        yield from self._elements(rows, now)
        if self.most is not None and position.count >= self.most:
            estimator.set_watermark(MAX_TIMESTAMP)
            return
        estimator.set_watermark(self._watermark(position, reader.end, now))
        tracker.defer_remainder()

    def _at(self, offsets: Offsets) -> LogReader:
        """Returns a reader that continues at these offsets."""
        if self.reader is None or (offsets and {**self.reader.at} != {**offsets}):
            self.teardown()
            self.reader = LogReader.of(self.source, offsets, _ROWS, ends=False)
        return self.reader

    def _watermark(self, position: Position, end: Offsets, now: int) -> Timestamp:
        """Returns the watermark after a position: the newest time of the partition that is furthest behind.

        A partition of which all messages are read is as far as the clock.
        """
        times = [now]
        if self.policy != POLICIES[0]:
            times += [
                position.newest.get(name, 0) for name, at in end.items() if position.offsets.get(name, 0) < at
            ]
        return Timestamp(micros=min(times))

    def _elements(self, rows: pl.DataFrame, now: int) -> Iterator[Any]:
        times = rows[TIMESTAMP].dt.timestamp("us").to_list()
        stamps = [now] * len(rows) if self.policy == POLICIES[0] else times
        values = self._records(rows, times) if self.metadata else rows.select(KEY, VALUE).iter_rows()
        for stamp, value in zip(stamps, values, strict=True):
            yield beam.window.TimestampedValue(value, Timestamp(micros=stamp))

    @staticmethod
    def _records(rows: pl.DataFrame, times: list[int]) -> Iterator[KafkaRecord]:
        columns = rows.select(TOPIC, PARTITION, OFFSET, KEY, VALUE, HEADERS, TIMESTAMP_TYPE)
        for at, (topic, partition, offset, key, value, headers, kind) in zip(
            times, columns.iter_rows(), strict=True
        ):
            pairs = [(one["key"], one["value"]) for one in headers or ()]
            said = (kind, _NAMES.get(kind, "NO_TIMESTAMP_TYPE"))
            yield KafkaRecord(topic, partition, offset, at // 1000, key, value, pairs, *said)

    def teardown(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "reader": None}


def _after(position: Position, offsets: Offsets, rows: pl.DataFrame) -> Position:
    newest = rows.group_by(TOPIC, PARTITION).agg(pl.col(TIMESTAMP).max().dt.timestamp("us"))
    found = {split_name(topic, partition): at for topic, partition, at in newest.iter_rows()}
    latest = {name: max(at, position.newest.get(name, 0)) for name, at in found.items()}
    return Position({**offsets}, {**position.newest, **latest}, position.count + len(rows))


class ReadFromKafka(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
    """Reads topics of Kafka as pairs of key and value, both bytes or None, without a Java service. Experimental.

    A run with a checkpoint continues at the offsets that it has reached. No offset is committed to Kafka. Needs
    confluent-kafka, from the extra `kafka`.

    Args:
        consumer_config: `bootstrap.servers` and other settings of librdkafka's client. `auto.offset.reset` says where
            a new run begins, by default at the latest messages.
        topics: The names of the topics.
        start_read_time: The time (ms) of the messages from which a new run begins.
        max_num_records: The number of messages after which the transform ends. By default it does not end.
        with_metadata: True for `KafkaRecord` as elements.
        timestamp_policy: "ProcessingTime", "CreateTime" or "LogAppendTime": the timestamps of elements. With the last
            two, the watermark is the newest timestamp of the partition that is furthest behind.

    Raises:
        ValueError: An argument is invalid.

    Example:
        settings = {"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}
        plays = pipeline | ReadFromKafka(settings, ["plays"], timestamp_policy="CreateTime")
    """

    def __init__(
        self,
        consumer_config: Mapping[str, str],
        topics: Iterable[str],
        *,
        start_read_time: int | None = None,
        max_num_records: int | None = None,
        with_metadata: bool = False,
        timestamp_policy: str = POLICIES[0],
    ) -> None:
        super().__init__()
        if timestamp_policy not in POLICIES:
            raise ValueError(
                f"ReadFromKafka: timestamp_policy must be {', '.join(POLICIES)}, not {timestamp_policy!r}"
            )
        settings = {**consumer_config}
        servers = _servers(settings, "ReadFromKafka: consumer_config")
        for name in ("group.id", "enable.auto.commit"):
            if name in settings:
                raise ValueError(
                    f"ReadFromKafka: consumer_config: {name!r} would have no effect: a run continues from its "
                    "checkpoint, and commits no offsets to Kafka"
                )
        start: Any = settings.pop("auto.offset.reset", LATEST)
        if start_read_time is not None:
            start = datetime.fromtimestamp(start_read_time / 1000, UTC)
        elif start not in (EARLIEST, LATEST):
            raise ValueError(
                f"ReadFromKafka: consumer_config: 'auto.offset.reset' must be earliest or latest, not {start!r}"
            )
        source = Kafka(servers, [*topics], start=start, headers=with_metadata, options=settings)
        self.read = _Read(source, timestamp_policy, max_num_records, metadata=with_metadata)

    def expand(self, begin: Any) -> Any:
        """Returns the collection of the messages."""
        kind = KafkaRecord if self.read.metadata else tuple[bytes | None, bytes | None]
        topics = ", ".join(self.read.source.topics)
        return begin | "topics" >> beam.Impulse() | topics >> beam.ParDo(self.read).with_output_types(kind)


class _Write(beam.DoFn):  # type: ignore[misc, name-defined, unused-ignore]
    """Sends messages, and waits for the broker at the end of each bundle."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self.settings, self.topic = dict(settings), topic
        self.producer: Any = None
        self.failed: list[Any] = []

    def setup(self) -> None:
        self.producer = confluent_kafka().Producer(self.settings)

    def process(self, element: tuple[bytes | None, bytes | None]) -> None:
        key, value = element
        while True:
            with suppress(BufferError):  # its queue is full
                self.producer.produce(self.topic, value, key, on_delivery=self._delivered)
                return
            self.producer.poll(1.0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)

    def finish_bundle(self) -> None:
        left, failed = self.producer.flush(_FLUSH), self.failed
        self.failed = []
        if failed or left:
            why = failed[0].str() if failed else f"no answer within {_FLUSH:.0f}s"
            raise RuntimeError(f"WriteToKafka: messages to topic {self.topic!r} could not be sent: {why}")


class WriteToKafka(beam.PTransform):  # type: ignore[misc, name-defined, unused-ignore]
    """Sends pairs of key and value, both bytes or None, to a topic of Kafka, without a Java service. Experimental.

    A bundle that is processed again sends its messages again.

    Args:
        producer_config: `bootstrap.servers` and other settings of librdkafka's client.
        topic: The name of the topic.

    Raises:
        ValueError: The servers are missing.

    Example:
        pairs | WriteToKafka({"bootstrap.servers": "localhost:9092"}, "totals")
    """

    def __init__(self, producer_config: Mapping[str, str], topic: str) -> None:
        super().__init__()
        _servers({**producer_config}, "WriteToKafka: producer_config")
        self.write = _Write(producer_config, topic)

    def expand(self, pairs: Any) -> Any:
        """Sends the elements of a collection."""
        return pairs | self.write.topic >> beam.ParDo(self.write)


def _servers(settings: dict[str, str], what: str) -> str:
    """Removes the brokers from settings, and returns them."""
    if "bootstrap.servers" not in settings:
        raise ValueError(f"{what} has no 'bootstrap.servers', such as 'localhost:9092'")
    return settings.pop("bootstrap.servers")
