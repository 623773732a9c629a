"""A Kafka topic as a sink, with one message for each row."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, unknown_column
from beamlike.io.base import Part
from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.codecs import Codec, Json, Plain, codec, json
from beamlike.io.kafka.log import Log, UnknownTopic
from beamlike.io.kafka.messages import VALUE
from beamlike.io.kafka.sender import PATIENCE, groups, latest_batch, send_once
from beamlike.io.kafka.settings import OF_READERS
from beamlike.io.kafka.source import options_of, server_list
from beamlike.io.sinks import SinkInput
from beamlike.rows.dtypes import has_values_of, type_name
from beamlike.rows.nonfinite import warn_nonfinite
from beamlike.system.fields import text, true_or_false
from beamlike.system.locks import Lock
from stages.keys import key_text

_PARTITIONER: Final = "murmur2_random"  # that of the Java client, so that keys meet those of other producers
HEADERS: Final = ("beamlike-run", "beamlike-batch", "beamlike-shard", "beamlike-row")
"""The headers of a message: with them it can be told from all others of the pipeline, also if it comes twice."""


def _value(given: Any) -> Codec:
    try:
        return codec(given)
    except TypeError as error:
        raise TypeError(f"KafkaSink: value {error}") from None


def _options(options: Mapping[str, str]) -> dict[str, str]:
    return options_of(options, OF_READERS, "it is a setting of readers; give it to bl.Kafka(options=...)")


def _names(key: str | Sequence[str] | None) -> tuple[str, ...]:
    names = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"KafkaSink: key must be a column or several, not {key!r}")
    return names


@attrs.frozen(eq=False)
class KafkaSink:
    """Sends each row to a topic as a message.

    Messages of one key go to one partition, the same as with the Java client. The headers `beamlike-run`,
    `beamlike-batch`,
    `beamlike-shard` and `beamlike-row` identify the row of the run. The topic must exist. Needs confluent-kafka, from
    the
    extra `kafka`.

    Args:
        servers: Brokers such as "localhost:9092", separated by commas, or a list.
        topic: The name of the topic.
        value: The format of values: `bl.json()` for an object of all columns, `bl.json({...})` for some, or
            `bl.avro(schema)`. `str` or `bytes` send the column `value`.
        key: A column, sent as text or bytes, or several, sent as a JSON object. By default messages have no key.
        transactions: True to send each part of a batch in a transaction, which also records it as done, as the offset
            of a
            consumer group. A reader of committed messages then sees each row once, also after a task or a run was
            repeated.
            Needs brokers of version 2.5 or later. With False, rows of a repeated batch are sent twice.
        options: Settings of the client, as confluent-kafka has them.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is invalid, or an option is for readers only.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("topic", bl.KafkaSink("localhost:9092", "plays", key="user"))
        <Collection 'plays': user String, points Int64, at String>
    """

    servers: str = attrs.field(converter=server_list)
    topic: str = attrs.field(validator=text)
    value: Codec = attrs.field(factory=json, converter=_value)
    key: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_names)
    transactions: bool = attrs.field(default=True, kw_only=True, validator=true_or_false)
    # Values may be passwords.
    options: Mapping[str, str] = attrs.field(
        factory=dict, kw_only=True, converter=_options, repr=lambda given: f"[{', '.join(given)}]"
    )

    # The name of the sink in its pipeline, as several may send to one topic.
    _name: str = attrs.field(default="", kw_only=True, repr=False)

    distributed: ClassVar[bool] = True
    upserts: ClassVar[bool] = False
    per_pane: ClassVar[bool] = False

    def fitted(self, rows: SinkInput) -> Self:
        """Returns the sink with its name.

        Raises `PlanError` for a column of key or value that the rows lack, or have in another type.
        """
        is_open = isinstance(self.value, Json) and self.value.is_open
        columns = {} if is_open else dict(self.value.columns(VALUE))
        for name in (*self.key, *columns):
            if name not in rows.schema:
                raise unknown_column(name, rows.schema, rows.step)
        for name, dtype in columns.items():
            if isinstance(self.value, Json) and not has_values_of(rows.schema[name], dtype):
                told = f"{type_name(rows.schema[name])}, and {type_name(dtype)} in bl.json(...)"
                raise WrongType(f"the column {name!r} is {told}", step=rows.step)
        if isinstance(self.value, Plain) and rows.schema[VALUE] not in (pl.String, pl.Binary):
            raise WrongType(
                f"a message is text or bytes, but {VALUE!r} is {type_name(rows.schema[VALUE])}",
                step=rows.step,
            )
        return attrs.evolve(self, name=rows.step)

    def check(self) -> None:
        """Raises `PlanError` if the topic does not exist, and `SourceError` if no server answers."""
        with closing(Log.open(self.servers, (self.topic,), self.options, headers=False, skips=False)) as log:
            try:
                log.partitions()
            except UnknownTopic as error:
                raise PlanError(str(error)) from None

    def start(self, run: str) -> None:
        """Deletes the consumer groups of an earlier run of this name; its messages stay."""
        if not self.transactions:
            return
        admin = confluent_kafka().admin.AdminClient(self._settings())
        names = groups(admin, self._prefix(run))
        for answer in (admin.delete_consumer_groups(names) if names else {}).values():
            answer.result()

    @property
    def remembers(self) -> bool:
        """True with transactions, which record what was sent."""
        return self.transactions

    def hold(self, run: str) -> Lock | None:
        """Locks the sink for a run of this name, on this machine. Raises `InUse`.

        Returns None without transactions, since nothing is recorded of a run.
        """
        if not self.transactions:
            return None
        place = "\0".join([self.servers, self._prefix(run), self._name]).encode()
        digest = hashlib.sha256(place).hexdigest()[:32]
        return Lock.take(f"{tempfile.gettempdir()}/beamlike-topic-{digest}.lock", f"the run {run!r}")

    def latest_batch(self, run: str) -> int | None:
        return latest_batch(self._settings(), self.topic, self._prefix(run))

    def cut(self, run: str, batch: int) -> str:
        """Removes nothing, as a topic keeps its messages."""
        return f"their messages stay, and are sent once more; the headers {HEADERS[0]} and {HEADERS[1]} tell them apart"

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Sends the part, unless it was sent already."""
        if frame.is_empty():
            return
        if not self.transactions:
            self._send_all(frame, part)
        else:
            self._send_once(frame, part)

    def _send_all(self, frame: pl.DataFrame, part: Part) -> None:
        failed: list[str] = []
        producer = confluent_kafka().Producer(
            {**self._settings(), "enable.idempotence": True, "delivery.report.only.error": True}
        )

        def told(error: Any, message: Any) -> None:
            failed.append(error.str())

        self._produce(producer, frame, part, on_delivery=told)
        left = producer.flush(PATIENCE)
        if failed or left:
            why = failed[0] if failed else f"{left} messages were not taken within {PATIENCE:.0f}s"
            raise OSError(f"Kafka at {self.servers}: {why}")

    def _send_once(self, frame: pl.DataFrame, part: Part) -> None:
        name = f"{self._prefix(part.query)}{part.sink}/{part.task}"
        send_once(self._settings(), self.topic, name, part.batch, lambda to: self._produce(to, frame, part))

    def _produce(self, producer: Any, frame: pl.DataFrame, part: Part, **choices: Any) -> None:
        """Passes all rows to the client, which sends them in the background."""
        ours = [part.query, str(part.batch), str(part.task)]
        headers = list(zip(HEADERS, (text.encode() for text in ours), strict=False))
        for row, (key, value) in enumerate(self._messages(frame)):
            told = [*headers, (HEADERS[-1], str(row).encode())]
            while True:
                try:
                    producer.produce(self.topic, value, key, headers=told, **choices)
                    break
                except BufferError:
                    producer.poll(1.0)
            if not row % 1_000:
                producer.poll(0)

    def _messages(self, frame: pl.DataFrame) -> Iterator[tuple[bytes | None, bytes | None]]:
        if isinstance(self.value, Json):
            warn_nonfinite(frame, f"topic {self.topic!r}")
        values = self.value.encode(frame.select(VALUE) if isinstance(self.value, Plain) else frame)
        if not self.key:
            keys = pl.Series([None], dtype=pl.Binary).new_from_index(0, len(frame))
        elif len(self.key) > 1:
            keys = Json(None).encode(frame.select(self.key))
        elif frame.schema[self.key[0]] == pl.Binary:
            keys = frame[self.key[0]]
        else:
            keys = frame.select(key_text(self.key[0]).cast(pl.Binary)).to_series()
        return zip(keys.to_list(), values.to_list(), strict=True)

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "log_level": 0,
            "partitioner": _PARTITIONER,
            **self.options,
        }

    def _prefix(self, run: str) -> str:
        """Returns the name prefix of the consumer groups that record the parts of a run."""
        return f"beamlike/{quote(run, safe='')}/{self.topic}/"
