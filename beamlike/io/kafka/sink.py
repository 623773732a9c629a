"""A Kafka topic as a sink. Each row becomes a message."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, repeat
from typing import Any, ClassVar, Final, Literal, Self
from urllib.parse import quote

import attrs
import polars as pl

from beamlike.errors import PlanError, WrongType, listed, nearest, unknown_column
from beamlike.io.base import Part
from beamlike.io.kafka.client import confluent_kafka
from beamlike.io.kafka.codecs import Codec, Json, Plain, codec, json
from beamlike.io.kafka.kept import KeptClients
from beamlike.io.kafka.log import Log, UnknownTopic
from beamlike.io.kafka.messages import VALUE
from beamlike.io.kafka.sender import PATIENCE, groups, latest_batch, send_once
from beamlike.io.kafka.settings import OF_READERS
from beamlike.io.kafka.source import options_of, server_list
from beamlike.io.sinks import SinkInput, standing
from beamlike.rows.dtypes import has_values_of, type_name
from beamlike.rows.nonfinite import warn_nonfinite
from beamlike.system.datasets import Dataset, server_dataset
from beamlike.system.fields import text, true_or_false
from beamlike.system.locks import Lock
from beamlike.system.own_folder import own_folder
from stages.keys import key_text

_PARTITIONER: Final = "murmur2_random"  # the Java client's, so that all producers choose alike
HEADERS: Final = ("beamlike-run", "beamlike-batch", "beamlike-shard", "beamlike-row")
"""The headers that identify a message of the pipeline, so that readers can detect repeated messages."""

_PRODUCERS: Final[KeptClients[Any]] = KeptClients(lambda producer: producer.flush(0))
"""The producers that send without transactions, by their settings."""
_MODES: Final = ("append", "upsert")
Message = tuple[bytes | None, bytes | None]
"""A key and a value."""


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


def _mode(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value not in _MODES:
        raise ValueError(
            f"KafkaSink: mode may be 'append' or 'upsert', not {value!r}{nearest(value, _MODES)}"
        )


@attrs.frozen(eq=False)
class KafkaSink:
    """A Kafka topic as a sink: rows are sent as messages.

    Messages with the same key are in the same partition, which is also the one that the Java client chooses. The
    headers `beamlike-run`, `beamlike-batch`, `beamlike-shard` and `beamlike-row` identify the row of the run. The topic
    must exist. Needs confluent-kafka, from the extra `kafka`.

    Args:
        servers: Brokers such as "localhost:9092", separated by commas, or a list.
        topic: The name of the topic.
        value: The format of values: `bl.json()` for an object of all columns, `bl.json({...})` for some, or
            `bl.avro(schema)`. `str` or `bytes` send the column `value`.
        key: A column, sent as text or bytes, or several, sent as a JSON object. By default messages have no key, or
            with "upsert" that of the rows.
        mode: "append" sends each row. "upsert" is for the output of a grouping and a compacted topic: the latest
            message of a key has the row with this key. If there is no row, it is a tombstone, which has no value.
        transactions: True to send each part of a batch in a transaction, which also records it as done, as the offset
            of a consumer group. A reader of committed messages then sees each row once, also after a task or a run was
            repeated. Needs brokers of version 2.5 or later. With False, rows of a repeated batch are sent twice.
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
    mode: Literal["append", "upsert"] = attrs.field(default="append", kw_only=True, validator=_mode)
    transactions: bool = attrs.field(default=True, kw_only=True, validator=true_or_false)
    # Options may contain passwords, so only their names are shown.
    options: Mapping[str, str] = attrs.field(
        factory=dict, kw_only=True, converter=_options, repr=lambda given: f"[{', '.join(given)}]"
    )

    # The rows, and the name of the sink in its pipeline. Several sinks may send to the same topic.
    _rows: SinkInput | None = attrs.field(default=None, kw_only=True, repr=False)

    distributed: ClassVar[bool] = True
    per_pane: ClassVar[bool] = False

    @property
    def upserts(self) -> bool:
        """True if a message replaces the earlier message with the same key."""
        return self.mode == "upsert"

    def fitted(self, rows: SinkInput) -> Self:
        """Returns the sink for these rows.

        Raises `PlanError` if the rows lack a column of the key or value, or have it with another type, or if another
        key than that of the rows is given for "upsert".
        """
        is_open = isinstance(self.value, Json) and self.value.is_open
        columns = {} if is_open else dict(self.value.columns(VALUE))
        for name in (*self.key, *columns):
            if name not in rows.schema:
                raise unknown_column(name, rows.schema, rows.step)
        for name, dtype in columns.items():
            if isinstance(self.value, Json) and not has_values_of(rows.schema[name], dtype):
                types = f"{type_name(rows.schema[name])}, and {type_name(dtype)} in bl.json(...)"
                raise WrongType(f"the column {name!r} is {types}", step=rows.step)
        if isinstance(self.value, Plain) and rows.schema[VALUE] not in (pl.String, pl.Binary):
            raise WrongType(
                f"a message is text or bytes, but {VALUE!r} is {type_name(rows.schema[VALUE])}",
                step=rows.step,
            )
        if rows.key is None:
            return attrs.evolve(self, rows=rows)
        key = rows.key.columns
        if self.key and {*self.key} != {*key}:
            raise PlanError(
                f"with mode='upsert' the key must be {listed(map(repr, key))}, which identifies the rows, and "
                f"not {listed(map(repr, self.key))}; leave it out, or group by other columns",
                step=rows.step,
            )
        return attrs.evolve(self, key=self.key or key, rows=rows)

    def datasets(self) -> list[Dataset]:
        return [server_dataset("kafka", self.servers, 9092, self.topic)]

    def check(self) -> None:
        """Raises `PlanError` if the topic does not exist, and `SourceError` if no broker answers."""
        with closing(Log.open(self.servers, (self.topic,), self.options, headers=False, skips=False)) as log:
            try:
                log.partitions()
            except UnknownTopic as error:
                raise PlanError(str(error)) from None

    def start(self, run: str) -> None:
        """Deletes the consumer groups that record the batches of an earlier run with this name. Its messages stay."""
        if not self.transactions:
            return
        admin = confluent_kafka().admin.AdminClient(self._settings())
        names = groups(admin, self._prefix(run))
        for answer in (admin.delete_consumer_groups(names) if names else {}).values():
            answer.result()

    @property
    def remembers(self) -> bool:
        """True with transactions, which record the batches that were sent."""
        return self.transactions

    def hold(self, run: str) -> Lock | None:
        """Locks the sink for a run of this name, on this machine only. Raises `InUse` if another run of this name holds
        the lock.

        Returns None without transactions, because no batches are recorded.
        """
        if not self.transactions:
            return None
        place = "\0".join([self.servers, self._prefix(run), self._rows.step if self._rows else ""]).encode()
        digest = hashlib.sha256(place).hexdigest()[:32]
        return Lock.take(f"{own_folder()}/topic-{digest}.lock", f"the run {run!r}")

    def latest_batch(self, run: str) -> int | None:
        return latest_batch(self._settings(), self.topic, self._prefix(run))

    def cut(self, run: str, batch: int) -> str:
        """Removes nothing, because a topic keeps its messages."""
        return f"their messages stay, and are sent once more; the headers {HEADERS[0]} and {HEADERS[1]} mark them"

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
        settings = {**self._settings(), "enable.idempotence": True, "delivery.report.only.error": True}
        use = tuple(sorted(settings.items()))
        producer = _PRODUCERS.take(use) or confluent_kafka().Producer(settings)

        def delivered(error: Any, message: Any) -> None:
            failed.append(error.str())

        self._produce(producer, frame, part, on_delivery=delivered)
        left = producer.flush(PATIENCE)
        if failed or left:  # messages that are left are lost with the producer, which is not kept
            why = failed[0] if failed else f"{left} messages were not accepted within {PATIENCE:.0f}s"
            raise OSError(f"Kafka at {self.servers}: {why}")
        _PRODUCERS.keep(use, producer)

    def _send_once(self, frame: pl.DataFrame, part: Part) -> None:
        name = f"{self._prefix(part.query)}{part.sink}/{part.task}"
        send_once(self._settings(), self.topic, name, part.batch, lambda to: self._produce(to, frame, part))

    def _produce(self, producer: Any, frame: pl.DataFrame, part: Part, **choices: Any) -> None:
        """Passes all rows to the client library, which sends them in the background."""
        ours = [part.query, str(part.batch), str(part.task)]
        headers = list(zip(HEADERS, (text.encode() for text in ours), strict=False))
        for row, (key, value) in enumerate(self._messages(frame)):
            numbered = [*headers, (HEADERS[-1], str(row).encode())]
            while True:
                try:
                    producer.produce(self.topic, value, key, headers=numbered, **choices)
                    break
                except BufferError:
                    producer.poll(1.0)
            if not row % 1_000:
                producer.poll(0)

    def _messages(self, frame: pl.DataFrame) -> Iterator[Message]:
        key = None if self._rows is None else self._rows.key
        if key is None:
            return self._messages_of(frame)
        left = standing(frame, key)
        if null := next(
            (name for name in self.key if len(self.key) == 1 and left.rows[name].null_count()), None
        ):
            raise ValueError(f"{null!r} is null in a row, and a message of a compacted topic must have a key")
        tombstones = zip(self._keys(left.gone), repeat(None))
        return chain(self._messages_of(left.rows.select(self._columns())), tombstones)

    def _messages_of(self, frame: pl.DataFrame) -> Iterator[Message]:
        if isinstance(self.value, Json):
            warn_nonfinite(frame, f"topic {self.topic!r}")
        values = self.value.encode(frame.select(VALUE) if isinstance(self.value, Plain) else frame)
        return zip(self._keys(frame), values.to_list(), strict=True)

    def _keys(self, frame: pl.DataFrame) -> list[bytes | None]:
        if not self.key:
            return [None] * len(frame)
        if len(self.key) > 1:
            keys = Json(None).encode(frame.select(self.key))
        elif frame.schema[self.key[0]] == pl.Binary:
            keys = frame[self.key[0]]
        else:
            keys = frame.select(key_text(self.key[0]).cast(pl.Binary)).to_series()
        return keys.to_list()

    def _columns(self) -> list[str]:
        """Returns the columns of rows that replace others: all of them but the flag of retracted rows."""
        rows = self._rows
        assert rows is not None
        assert rows.key is not None
        flag = rows.key.retracted
        return [name for name in rows.schema if name != flag or name in rows.user]

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "log_level": 0,
            "partitioner": _PARTITIONER,
            **self.options,
        }

    def _prefix(self, run: str) -> str:
        """Returns the common prefix of the consumer groups that record the batches of a run."""
        return f"beamlike/{quote(run, safe='')}/{self.topic}/"
