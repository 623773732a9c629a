"""The protocol of a state store, and the versioned encoding of frames as bytes.

The runner provides the store: a dict or SQLite in process, RocksDB on Spark.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import attrs
import polars as pl

from stages.frames import write_stream
from stages.state.memory import D, Memory

ENCODING: Final = 7
"""The version of the stored state of stages. A run refuses a checkpoint of another version."""

Compression = Literal["uncompressed", "zstd"]

_HEADER: Final = struct.Struct("<BI")


class StateStore(Protocol):
    """A key-value store for the state of stages. `get` returns the last value that was put, unless it was deleted."""

    @property
    def compress_from(self) -> int:
        """The size of rows in memory (bytes) from which they are stored compressed. Both kinds can always be read."""

    @property
    def remembers(self) -> bool:
        """True if decoded values are remembered. Then a large value costs little in a step that needs a part of it."""

    def get(self, stage: str, key: str) -> bytes | None:
        """Returns the value of a key; None if it has none."""

    def put(self, stage: str, key: str, value: bytes) -> None:
        """Sets the value of a key."""

    def delete(self, stage: str, key: str) -> None:
        """Removes a key, if it exists."""

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        """Returns the decoded value of a key; None if it has none. A store may remember it, so it must not change."""


@attrs.define
class DictStore:
    """A state store in memory."""

    values: dict[tuple[str, str], bytes] = attrs.field(factory=dict)
    _memory: Memory = attrs.field(factory=Memory, init=False, eq=False, repr=False)

    @property
    def compress_from(self) -> int:
        # For few rows, compression takes several times as long as all else that their encoding does.
        return 64_000

    @property
    def remembers(self) -> bool:
        return True

    def get(self, stage: str, key: str) -> bytes | None:
        return self.values.get((stage, key))

    def put(self, stage: str, key: str, value: bytes) -> None:
        self._memory.forget((stage, key))
        self.values[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        self._memory.forget((stage, key))
        self.values.pop((stage, key), None)

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        if (value := self.get(stage, key)) is None:
            return None
        return self._memory.get((stage, key), value, lambda: decode(value))


@attrs.frozen
class Within:
    """A view of a state store that adds a prefix to every key."""

    store: StateStore
    prefix: str

    @property
    def compress_from(self) -> int:
        return self.store.compress_from

    @property
    def remembers(self) -> bool:
        return self.store.remembers

    def get(self, stage: str, key: str) -> bytes | None:
        return self.store.get(stage, self.prefix + key)

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.store.put(stage, self.prefix + key, value)

    def delete(self, stage: str, key: str) -> None:
        self.store.delete(stage, self.prefix + key)

    def decoded(self, stage: str, key: str, decode: Callable[[bytes], D]) -> D | None:
        return self.store.decoded(stage, self.prefix + key, decode)


def encode(
    frame: pl.DataFrame,
    facts: dict[str, Any] | None = None,
    *,
    compression: Compression = "uncompressed",
    version: int = ENCODING,
) -> bytes:
    """Encodes a frame and metadata (`facts`): version, length of the metadata, metadata in JSON, frame in Arrow IPC."""
    head = json.dumps(facts or {}, separators=(",", ":"), sort_keys=True).encode()
    buffer = io.BytesIO()
    buffer.write(_HEADER.pack(version, len(head)))
    buffer.write(head)
    # If a frame has text in structs or lists, polars writes the whole frame from which it was sliced. It does not in
    # the oldest Arrow format.
    level = pl.CompatLevel.oldest() if any(map(_has_text_inside, frame.dtypes)) else None
    write_stream(frame, buffer, compression=compression, compat_level=level)
    return buffer.getvalue()


def _has_text_inside(dtype: Any) -> bool:
    if isinstance(dtype, pl.List | pl.Array):
        inner = [dtype.inner]
    elif isinstance(dtype, pl.Struct):
        inner = [field.dtype for field in dtype.fields]
    else:
        return False
    return any(isinstance(each, pl.String | pl.Binary) or _has_text_inside(each) for each in inner)


def decode(value: bytes) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Decodes a value of `encode` to its frame and metadata. Raises `ValueError` if its version is unknown."""
    version, length = _HEADER.unpack_from(value)
    if version != ENCODING:
        raise ValueError(f"state of encoding {version}; this version of beamlike reads encoding {ENCODING}")
    body = _HEADER.size + length
    return pl.read_ipc_stream(io.BytesIO(memoryview(value)[body:])), json.loads(value[_HEADER.size : body])
