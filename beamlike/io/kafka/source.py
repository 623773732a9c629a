"""Kafka topics as a source. Spark's own reader reads them on Spark, and confluent-kafka in process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, get_args

import attrs
import polars as pl

from beamlike.io.base import Pieces
from beamlike.io.kafka import messages
from beamlike.io.kafka.client import for_java
from beamlike.io.kafka.codecs import Codec, codec
from beamlike.io.kafka.log import Log
from beamlike.io.kafka.messages import KEY, VALUE
from beamlike.io.kafka.offsets import EARLIEST, LATEST, Boundary, Offsets, boundary_of, split_name, split_of
from beamlike.io.kafka.reader import LogReader
from beamlike.io.kafka.settings import OF_WRITERS
from beamlike.io.sources import PlannedBatch
from beamlike.system.datasets import Dataset, server_dataset
from beamlike.system.fields import true_or_false, whole_number

OnDataLoss = Literal["fail", "skip"]


def server_list(servers: str | Sequence[str]) -> str:
    """Returns brokers as one text, separated by commas. Raises `TypeError` or `ValueError` unless each is
    `host:port`.
    """
    given = [servers] if isinstance(servers, str) else servers
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise TypeError(
            f"Kafka: servers must be text such as 'localhost:9092', or a list of those, not {servers!r}"
        )
    found = [one.strip() for text in given for one in text.split(",")]
    if wrong := [one for one in found if not one.rpartition(":")[2].isdigit()]:
        raise ValueError(f"Kafka: servers must be such as 'localhost:9092', not {wrong[0]!r}")
    return ",".join(found)


def _topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    found = (topics,) if isinstance(topics, str) else topics
    if (
        not isinstance(found, list | tuple)
        or not found
        or not all(isinstance(one, str) and one for one in found)
    ):
        raise TypeError(f"Kafka: topics must be a name or a list of names, not {topics!r}")
    return tuple(dict.fromkeys(found))


def _codec(field: str, given: Any) -> Codec:
    try:
        return codec(given)
    except TypeError as error:
        raise TypeError(f"Kafka: {field} {error}") from None


def _value(given: Any) -> Codec:
    return _codec("value", given)


def _key(given: Any) -> Codec | None:
    return None if given is None else _codec("key", given)


def options_of(options: Mapping[str, str], other: frozenset[str], remedy: str) -> dict[str, str]:
    """Returns checked settings of the client.

    Raises `TypeError` for a value that is not text, and `ValueError` for a setting of the `other` role, which would
    have no effect.
    """
    if wrong := [
        name for name, value in options.items() if not (isinstance(name, str) and isinstance(value, str))
    ]:
        raise TypeError(
            f"Kafka: options must be text, as in {{'security.protocol': 'SSL'}}; {wrong[0]!r} is not"
        )
    if wrong := sorted(other.intersection(options)):
        raise ValueError(f"Kafka: options: {wrong[0]!r} would have no effect here, as {remedy}")
    return dict(options)


def _options(options: Mapping[str, str]) -> dict[str, str]:
    return options_of(options, OF_WRITERS, "it is a setting of writers; give it to bl.KafkaSink(options=...)")


@attrs.frozen(eq=False)
class Kafka:
    """The messages of one or more Kafka topics, as rows.

    Columns: those of key and value; `kafka_topic`, `kafka_partition`, `kafka_topic_partition`, `kafka_offset`;
    `kafka_timestamp` and its kind in `kafka_timestamp_type`, which is "create", or "append" if the broker set the time;
    and `kafka_headers` with `headers=True`. A message that cannot be decoded is a dead letter.

    By default each partition has its own watermark. A continued run on Spark begins where the previous run ended. Needs
    confluent-kafka, from the extra `kafka`, in process, and the package spark-sql-kafka-0-10 on Spark.

    Args:
        servers: Brokers such as "localhost:9092", separated by commas, or a list.
        topics: The name of a topic, or a list of names.
        value: The format of values: `bytes` or `str` for a column `value`, or a format such as `bl.json({...})` with
            columns of its own. By default `bytes`.
        key: The format of keys, like `value`, with a column `key`. By default keys are not read.
        start: Where a run begins: "earliest", "latest", a datetime, or offsets by partition such as `{0: 1200}`, for
            several topics `{"plays": {0: 1200}}`.
        end: Where a run ends, like `start`. In process the source is over when all partitions have reached offsets or a
            time: its watermark goes to the end of time. By default a run in process ends with the messages that exist
            when it begins, and a run on Spark continues as its trigger says.
        headers: True to add the column `kafka_headers`.
        max_offsets_per_trigger: About how many messages a batch has at most, shared among the partitions.
        on_data_loss: "fail" if the topic's retention removed messages before they were read, or "skip" them.
        options: Settings of confluent-kafka's client, such as those for security.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is invalid, or an option is for writers only.

    Example:
        >>> plays = bl.Kafka("localhost:9092", "plays", value=bl.json({"user": str, "at": int}), key=str)
        >>> late = bl.BoundedOutOfOrderness("5s")
        >>> read = bl.Pipeline("p").read("plays", plays, timestamp="at", timestamp_unit="s", watermark=late)
        >>> read.select("user", "kafka_offset")
        <Collection 'plays.select': user String, kafka_offset Int64>
    """

    servers: str = attrs.field(converter=server_list)
    topics: tuple[str, ...] = attrs.field(converter=_topics)
    value: Codec = attrs.field(factory=lambda: codec(bytes), converter=_value)
    key: Codec | None = attrs.field(default=None, kw_only=True, converter=_key)
    start: Any = attrs.field(default=EARLIEST, kw_only=True)
    end: Any = attrs.field(default=None, kw_only=True)
    headers: bool = attrs.field(default=False, kw_only=True, validator=true_or_false)
    max_offsets_per_trigger: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=whole_number(1),
    )
    on_data_loss: OnDataLoss = attrs.field(default="fail", kw_only=True)
    # Options may contain passwords, so only their names are shown.
    options: Mapping[str, str] = attrs.field(
        factory=dict, kw_only=True, converter=_options, repr=lambda given: f"[{', '.join(given)}]"
    )

    split: ClassVar[str] = messages.SPLIT

    @on_data_loss.validator
    def _is_a_choice(self, attribute: attrs.Attribute[OnDataLoss], value: object) -> None:
        if value not in get_args(OnDataLoss):
            raise ValueError(f"Kafka: on_data_loss must be 'fail' or 'skip', not {value!r}")

    def __attrs_post_init__(self) -> None:
        self.schema()
        _, end = self._first, self._last
        if end == EARLIEST:
            raise ValueError("Kafka: end must not be 'earliest', or there is nothing to read")

    @property
    def bounded(self) -> bool:
        return self.end is not None

    @property
    def complete(self) -> bool:
        """True if the source has an end that is the same in each run: in process, it is over when it reaches that."""
        return self.end is not None and self._last != LATEST

    @property
    def _first(self) -> Boundary:
        return boundary_of(self.start, self.topics, "start")

    @property
    def _last(self) -> Boundary:
        return boundary_of(LATEST if self.end is None else self.end, self.topics, "end")

    @property
    def _codecs(self) -> dict[str, Codec]:
        return {**({} if self.key is None else {KEY: self.key}), VALUE: self.value}

    def schema(self) -> pl.Schema:
        """Returns the columns of key and value, and the columns that Kafka adds."""
        return messages.row_schema(self._codecs, headers=self.headers)

    # In process

    def log(self) -> Log:
        """Opens a connection to the topics."""
        skips = self.on_data_loss == "skip"
        return Log.open(self.servers, self.topics, self.options, headers=self.headers, skips=skips)

    def first(self, log: Log) -> Offsets:
        """Returns the offsets at which a run begins."""
        return log.offsets(self._first, LATEST if isinstance(self._first, int) else EARLIEST)

    def last(self, log: Log) -> Offsets:
        """Returns the offsets at which a run ends if it reads only messages that exist now."""
        return log.offsets(self._last, LATEST)

    def is_final(self, log: Log) -> bool:
        """True if no message that arrives later can be before the end."""
        return self.complete and log.found(self._last).keys() >= {*log.partitions()}

    def chunks(self, rows: int) -> Iterator[Pieces]:
        reader = LogReader.of(self, {}, rows, ends=True, goes_on=False)
        with closing(reader):
            while (batch := reader.new()) is not None:
                yield reader.read(batch)

    def resume(self, position: Offsets, rows: int) -> LogReader:
        """Returns a reader that begins at these offsets, or at `start` if there are none.

        New partitions are read from their beginning.
        """
        return LogReader.of(self, position, rows, ends=self.bounded)

    def offsets_of_spark(self, position: Offsets) -> list[str]:
        found: dict[str, dict[str, int]] = {}
        for name, at in position.items():
            topic, partition = split_of(name)
            found.setdefault(topic, {})[str(partition)] = at
        return [json.dumps(found)]

    def position_of(self, offsets: Sequence[str]) -> Offsets:
        [line] = offsets
        return {
            split_name(topic, int(partition)): at
            for topic, of in json.loads(line).items()
            for partition, at in of.items()
        }

    def span(self, begin: Offsets, end: Offsets) -> PlannedBatch:
        """Returns the batch of the messages between these offsets. Other partitions have none."""
        moved = {name: at for name, at in end.items() if at > begin.get(name, 0)}
        return PlannedBatch({"begin": {name: begin.get(name, 0) for name in moved}, "end": moved}, end)

    def past(self, position: Offsets, since: int | None) -> PlannedBatch:
        """Returns the batch of the messages from `start` to these offsets.

        With `since` (us), messages with an earlier timestamp are left out, as they have earlier event times. Raises
        `LookupError` if the run began at the latest messages of that time, unless there is a `since`.
        """
        if self._first == LATEST and since is None:
            raise LookupError(
                "the run began with start='latest', and where that was is not known any more; give since=, the event "
                "time from which it is needed"
            )
        with closing(self.log()) as log:
            first = {} if self._first == LATEST else dict(self.first(log))
            if since is not None:
                found = log.offsets(max(0, since // 1000), LATEST)
                first = {name: max(first.get(name, 0), at) for name, at in found.items()}
        return self.span(first, position)

    # On Spark

    def decode(self, frame: pl.DataFrame) -> Pieces:
        """Decodes messages that either runner has read to rows and dead letters."""
        return messages.rows_of(frame, self._codecs, headers=self.headers)

    def datasets(self) -> list[Dataset]:
        return [server_dataset("kafka", self.servers, 9092, topic) for topic in self.topics]

    def read_by_spark(self, spark: Any) -> Any:
        """Returns a stream of messages for `decode`.

        Raises `SourceError` for topics or brokers that do not exist; Spark's reader would report them only minutes
        later.
        """
        if find_spec("confluent_kafka") is not None:
            with closing(self.log()) as log:
                log.partitions()
        stream = spark.readStream.format("kafka").options(**self._spark_options()).load()
        return self._before_end(stream).selectExpr(*_raw(headers=self.headers))

    def _spark_options(self) -> dict[str, str]:
        own = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": ",".join(self.topics),
            "includeHeaders": str(self.headers).lower(),
            "failOnDataLoss": str(self.on_data_loss == "fail").lower(),
            # After each poll, by default of 500 messages, Spark asks the broker for the ends of topics.
            "kafka.max.poll.records": "1000000",
            **{f"kafka.{name}": value for name, value in for_java(self.options).items()},
        }
        if self.max_offsets_per_trigger is not None:
            own["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        first = self._first
        if isinstance(first, int):
            return {**own, "startingTimestamp": str(first), "startingOffsetsByTimestampStrategy": LATEST}
        if isinstance(first, Mapping):
            first = self._named(first)
        return {**own, "startingOffsets": first}

    def _named(self, position: Boundary) -> str:
        """Returns offsets of all partitions as text in Spark's format."""
        with closing(self.log()) as log:
            [line] = self.offsets_of_spark(log.offsets(position, EARLIEST))
        return line

    def _before_end(self, stream: Any) -> Any:
        """Removes messages after the end, if an end is set, because Spark's streams themselves never end."""
        if isinstance(self._last, str):
            return stream
        with closing(self.log()) as log:
            end = {split_of(name): at for name, at in log.found(self._last).items()}
        if not end:
            return stream
        cases = " ".join(
            f"WHEN topic = '{topic}' AND partition = {partition} THEN offset < {at}L"
            for (topic, partition), at in end.items()
        )
        return stream.where(f"CASE {cases} ELSE true END")


def _raw(*, headers: bool) -> list[str]:
    """Returns Spark's columns of messages, renamed to this package's names."""
    names = {
        "topic": messages.TOPIC,
        "partition": messages.PARTITION,
        "offset": messages.OFFSET,
        "timestamp": messages.TIMESTAMP,
        "timestampType": messages.TIMESTAMP_TYPE,
        "key": KEY,
        "value": VALUE,
        **({"headers": messages.HEADERS} if headers else {}),
    }
    return [f"{spark} AS {name}" for spark, name in names.items()]
