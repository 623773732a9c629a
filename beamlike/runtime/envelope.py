"""What flows between operators: envelopes, few and large, addressed to a shard of a stage or to a sink.

A data payload is a chunk of thousands of rows; watermarks, summaries and records travel in band beside them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import polars as pl
import pyarrow as pa

from beamlike.plan.model import Plan
from beamlike.runtime.messages import MESSAGES, Kind, Message
from beamlike.runtime.origins import shard_name
from stages.facts import from_json, to_json
from stages.keys import shard_of
from stages.operator import MAIN, Operator
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
DDL: Final = "shard int, target string, origin string, kind string, sequence bigint, payload binary"

CHUNK_BYTES: Final = 4_000_000
"""About how large a data payload may be: Spark's shuffle and Python both handle some megabytes well."""

RECORDS: Final = "@records"
"""The target of what only the driver wants to know."""


@attrs.frozen
class Envelope:
    """One row between operators. `shard` is the label of a partition; (origin, sequence) orders its payloads."""

    shard: int
    target: str
    origin: str
    kind: str
    sequence: int
    payload: bytes

    def frame(self) -> pl.DataFrame:
        """The rows of a data payload."""
        return decode(self.payload)[0]

    def message(self) -> Message:
        """What another payload says."""
        return from_json(MESSAGES[self.kind], self.payload)


def note(shard: int, target: str, origin: str, message: Message) -> Envelope:
    """An envelope with a message."""
    return Envelope(shard, target, origin, message.kind, 0, to_json(message, ordered=True))


def to_arrow(envelopes: list[Envelope]) -> pa.RecordBatch:
    """Envelopes as rows."""
    columns = [[getattr(envelope, name) for envelope in envelopes] for name in ARROW.names]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


@attrs.frozen
class Topology:
    """Where envelopes go: the label of each shard, which shards a stage has, and the keys that place its rows.

    Labels are chosen so that Spark's hash puts each on a partition of its own. `operators` are those of the stages.
    """

    labels: tuple[int, ...]
    keys: Mapping[str, tuple[str, ...]]
    operators: Mapping[str, Operator] = attrs.field(factory=dict)

    @classmethod
    def of(cls, plan: Plan, labels: tuple[int, ...]) -> Topology:
        operators = {name: stage.stage.operator for name, stage in plan.stages.items()}
        keys = {name: operator.inputs[MAIN].keys for name, operator in operators.items()}
        return cls(labels, keys, operators)

    def shards(self, stage: str) -> tuple[int, ...]:
        """The shards of a stage: all of them, or one where there is no key to spread by."""
        if self.keys[stage]:
            return tuple(range(len(self.labels)))
        return (zlib.crc32(stage.encode()) % len(self.labels),)

    def origins(self, producer: str) -> tuple[str, ...]:
        """The names under which a source or a stage reports its watermark."""
        if producer not in self.keys:
            return (producer,)
        return tuple(shard_name(producer, shard) for shard in self.shards(producer))

    def label_of(self, origin: str) -> int:
        """A label for what may go anywhere, spread by where it comes from."""
        return self.labels[zlib.crc32(origin.encode()) % len(self.labels)]

    def lift(self, consumer: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows of a source's task, for a consumer: if that is a stage, the fewest that tell it the same."""
        return self.operators[consumer].shrunk(frame) if consumer in self.operators else frame

    def data(self, consumer: str, frame: pl.DataFrame, origin: str, sequence: int = 0) -> Iterator[Envelope]:
        """The rows on their way to a stage's shards or to a sink, in chunks, numbered from `sequence`."""
        for label, part in self._parts(consumer, frame, origin):
            for chunk in _chunks(part):
                yield Envelope(label, consumer, origin, Kind.DATA, sequence, encode(chunk))
                sequence += 1

    def _parts(self, consumer: str, frame: pl.DataFrame, origin: str) -> Iterator[tuple[int, pl.DataFrame]]:
        if frame.is_empty():
            return
        if consumer not in self.keys:
            yield self.label_of(origin), frame
        elif len(shards := self.shards(consumer)) == 1:
            yield self.labels[shards[0]], frame
        else:
            placed = frame.with_columns(shard_of(self.keys[consumer], len(self.labels)).alias("__shard"))
            parts = placed.partition_by("__shard", as_dict=True, include_key=False)
            for shard in sorted(parts):
                yield self.labels[shard[0]], parts[shard]

    def broadcast(self, consumer: str, origin: str, message: Message) -> Iterator[Envelope]:
        """The same message for every shard of a stage."""
        for shard in self.shards(consumer):
            yield note(self.labels[shard], consumer, origin, message)


def _chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    # Polars does not count the 16 bytes that a text or a binary takes beside its content.
    views = sum(isinstance(dtype, pl.String | pl.Binary) for dtype in frame.dtypes)
    size = int(frame.estimated_size()) + 16 * views * len(frame)
    pieces = -(-max(1, size) // CHUNK_BYTES)
    rows = -(-len(frame) // pieces)
    yield from frame.iter_slices(rows)
