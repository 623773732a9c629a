"""Envelopes carry rows and messages from one Spark operator to a shard of the next one, or to a sink.

Envelopes are few and large: one with data has thousands of rows. Watermarks, summaries and records travel as messages
in envelopes of their own.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import attrs
import polars as pl
import pyarrow as pa

from beamlike.plan.model import Plan
from beamlike.plan.route import address, addressed
from beamlike.runtime.batch.messages import MESSAGES, Kind, Message
from beamlike.runtime.batch.origins import shard_name
from stages.facts import from_json, to_json
from stages.frames import size_of
from stages.keys import shard_of
from stages.operator import MAIN, Input, Operator
from stages.state.store import decode, encode

ARROW: Final = pa.schema(
    [
        ("shard", pa.int32()),
        ("target", pa.string()),
        ("origin", pa.string()),
        ("kind", pa.string()),
        ("sequence", pa.int64()),
        ("payload", pa.binary()),
    ]
)

CHUNK_BYTES: Final = 4_000_000
"""The approximate greatest size of a data payload in bytes. Spark's shuffle and Python both handle some
megabytes well.
"""

BATCH_BYTES: Final = 64_000_000
"""The approximate greatest size of the payloads (bytes) that a task sends at once."""

_PIECE_ROWS: Final = 10_000
"""The smallest number of rows in a slice of rows that may go to any shard."""

RECORDS: Final = "@records"
"""The target of messages for the driver."""


def _payload(content: bytes | pl.DataFrame) -> bytes:
    return content if isinstance(content, bytes) else packed(content)


@attrs.frozen
class Envelope:
    """An envelope. `shard` is the label of a partition. Payloads from an `origin` are sorted by `sequence`.

    `content` is the payload as bytes, or rows, which are packed into bytes before they leave this process.
    """

    shard: int
    target: str
    origin: str
    kind: str
    sequence: int
    content: bytes | pl.DataFrame = attrs.field(eq=_payload)

    @property
    def payload(self) -> bytes:
        """The content as bytes."""
        return _payload(self.content)

    def sealed(self) -> Envelope:
        """Returns the envelope with its content as bytes, so that it can leave this process."""
        return attrs.evolve(self, content=self.payload)

    def frame(self) -> pl.DataFrame:
        """Returns the rows in the payload of an envelope with rows."""
        return unpacked(self.content) if isinstance(self.content, bytes) else self.content

    def message(self) -> Message:
        """Returns the message in the payload of an envelope without rows."""
        return from_json(MESSAGES[self.kind], self.payload)


def message_envelope(shard: int, target: str, origin: str, message: Message) -> Envelope:
    """Creates an envelope with a message."""
    return Envelope(shard, target, origin, message.kind, 0, to_json(message, ordered=True))


def in_batches(envelopes: Iterable[Envelope]) -> Iterator[list[Envelope]]:
    """Yields lists of sealed envelopes of several megabytes. Arrow can store at most 2 GB of payloads in one batch. No
    list is empty, since Spark cannot find the types of a frame without rows.
    """
    held: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        held.append(envelope.sealed())
        size += len(held[-1].payload)
        if size > BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def to_arrow(envelopes: list[Envelope]) -> pa.RecordBatch:
    """Converts envelopes to a record batch, one row per envelope."""
    columns = [[getattr(envelope, name) for envelope in envelopes] for name in ARROW.names]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


@attrs.frozen(slots=False)
class Topology:
    """The addressing of envelopes: the label of each shard, the shards of each stage, and the keys that choose among
    them.

    Labels are chosen so that Spark's hash function puts each on a partition of its own. `inputs` has the inputs of all
    stages by address, and `operators` the stages' operators by name.
    """

    labels: tuple[int, ...]
    inputs: Mapping[str, Input]
    operators: Mapping[str, Operator] = attrs.field(factory=dict)

    @classmethod
    def of(cls, plan: Plan, labels: tuple[int, ...]) -> Topology:
        operators = {name: stage.stage.operator for name, stage in plan.stages.items()}
        inputs = {
            address(name, role): one
            for name, operator in operators.items()
            for role, one in operator.inputs.items()
        }
        return cls(labels, inputs, operators)

    @cached_property
    def stages(self) -> frozenset[str]:
        """The names of the stages."""
        return frozenset(name for name, role in map(addressed, self.inputs) if role == MAIN)

    def shards(self, stage: str) -> tuple[int, ...]:
        """Returns the shards of a stage: all shards, or a single one if its rows cannot be distributed by key."""
        if self.inputs[stage].shared:
            return tuple(range(len(self.labels)))
        return (zlib.crc32(stage.encode()) % len(self.labels),)

    def origins(self, producer: str) -> tuple[str, ...]:
        """Returns the names under which a source, or the shards of a stage, report watermarks."""
        if producer not in self.stages:
            return (producer,)
        return tuple(shard_name(producer, shard) for shard in self.shards(producer))

    def label_of(self, origin: str) -> int:
        """Returns the label of some shard, derived from the origin, for content that any shard may process."""
        return self.labels[zlib.crc32(origin.encode()) % len(self.labels)]

    def lift(self, target: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Pre-aggregates rows in a source's task if they are for a stage. Other rows stay unchanged."""
        return self.operators[target].pre_aggregated(frame) if target in self.operators else frame

    def data(self, target: str, frame: pl.DataFrame, origin: str, sequence: int = 0) -> Iterator[Envelope]:
        """Yields envelopes with the rows for a stage's shards or a sink, in chunks numbered from `sequence`."""
        if target in self.inputs and self.inputs[target].placed == "everywhere":
            yield from self.copies(target, frame, origin, sequence)
            return
        # No two payloads for a shard have the same origin and sequence. A consumer sorts by both, so a replay
        # gives the same state.
        for label, part in self._parts(target, frame, f"{origin}/{sequence}", origin):
            for chunk in _chunks(part):
                yield Envelope(label, target, origin, Kind.DATA, sequence, chunk)
                sequence += 1

    def copies(self, target: str, frame: pl.DataFrame, origin: str, sequence: int = 0) -> Iterator[Envelope]:
        """Yields envelopes with all rows for every shard of a stage."""
        labels = [self.labels[shard] for shard in self.shards(addressed(target)[0])]
        for number, chunk in enumerate(_chunks(frame) if len(frame) else (), start=sequence):
            payload = packed(chunk)
            for label in labels:
                yield Envelope(label, target, origin, Kind.DATA, number, payload)

    def _parts(
        self, target: str, frame: pl.DataFrame, piece: str, origin: str
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        if frame.is_empty():
            return
        if target not in self.inputs:
            yield self.label_of(origin), frame
        elif len(shards := self.shards(target)) == 1:
            yield self.labels[shards[0]], frame
        elif self.inputs[target].placed == "anywhere":
            yield from self._spread(frame, piece)
        else:
            keys = self.inputs[target].keys
            placed = frame.with_columns(shard_of(keys, len(self.labels)).alias("__shard"))
            parts = placed.partition_by("__shard", as_dict=True, include_key=False)
            for shard in sorted(parts):
                yield self.labels[shard[0]], parts[shard]

    def _spread(self, frame: pl.DataFrame, piece: str) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yields slices of rows with the labels of their shards."""
        # The first shard is derived from the name of the piece instead of chosen at random. So a replay sends
        # the piece to the same shard.
        pieces = min(len(self.labels), -(-len(frame) // _PIECE_ROWS))
        first = zlib.crc32(piece.encode())
        for number, part in enumerate(frame.iter_slices(-(-len(frame) // pieces))):
            yield self.labels[(first + number) % len(self.labels)], part

    def broadcast(self, consumer: str, origin: str, message: Message) -> Iterator[Envelope]:
        """Yields envelopes with the same message for every shard of a stage."""
        payload = to_json(message, ordered=True)
        for shard in self.shards(consumer):
            yield Envelope(self.labels[shard], consumer, origin, message.kind, 0, payload)


def _chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    pieces = -(-max(1, size_of(frame)) // CHUNK_BYTES)
    rows = -(-len(frame) // pieces)
    yield from frame.iter_slices(rows)


SMALL: Final = 64_000
"""The size in bytes up to which payloads are not compressed. Compression costs 3 ms per megabyte, and saves more than
that on larger payloads.
"""

_ORDER: Final = "order"
_NULL: Final = "null"


def packed(frame: pl.DataFrame) -> bytes:
    """Packs rows into bytes. A column in which all structs are null is packed as its type only.

    Rows of one side of a join have such a column for each other side, and its fields would all need space.
    """
    null = [
        name
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.Struct) and frame[name].null_count() == len(frame)
    ]
    if not null or len(null) == frame.width:
        return _encode(frame)
    types = b64encode(encode(frame.select(null).clear())).decode()
    return _encode(frame.drop(null), {_ORDER: frame.columns, _NULL: types})


def _encode(frame: pl.DataFrame, facts: dict[str, Any] | None = None) -> bytes:
    return encode(frame, facts, compression="zstd" if size_of(frame) > SMALL else "uncompressed")


def unpacked(payload: bytes) -> pl.DataFrame:
    """Unpacks rows from bytes."""
    frame, facts = decode(payload)
    if _NULL not in facts:
        return frame
    null, _ = decode(b64decode(facts[_NULL]))
    columns = [pl.lit(None, dtype).alias(name) for name, dtype in null.schema.items()]
    return frame.with_columns(columns).select(facts[_ORDER])
