"""The store protocol of state, and the encoding of frames as bytes, with a version.

The runner provides the store: a dict in process, RocksDB on Spark.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any, Final, Literal, Protocol

import attrs
import polars as pl

ENCODING: Final = 4
"""The version of the state of stages; a run cannot continue a checkpoint of another version."""

BROUGHT_ALONG: Final = (3,)
"""Earlier versions that differ only in the shard and bucket of a key; `stages.snapshot` converts them."""

PATCHED: Final = 5
"""The version of a value with deleted row numbers: code that does not know it must refuse the value.

The next `ENCODING` must be greater.
"""

Compression = Literal["uncompressed", "zstd"]

_HEADER: Final = struct.Struct("<BI")


class StateStore(Protocol):
    """Values by stage and key. `get` returns the value that was put last, unless it was deleted."""

    def get(self, stage: str, key: str) -> bytes | None:
        """The value, or None."""

    def put(self, stage: str, key: str, value: bytes) -> None:
        """Sets the value."""

    def delete(self, stage: str, key: str) -> None:
        """Removes the value, if there is one."""


@attrs.define
class DictStore:
    """A store in memory."""

    values: dict[tuple[str, str], bytes] = attrs.field(factory=dict)

    def get(self, stage: str, key: str) -> bytes | None:
        return self.values.get((stage, key))

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.values[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        self.values.pop((stage, key), None)


@attrs.frozen
class Within:
    """The values of a store whose keys begin with a prefix, under the keys without the prefix."""

    store: StateStore
    prefix: str

    def get(self, stage: str, key: str) -> bytes | None:
        return self.store.get(stage, self.prefix + key)

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.store.put(stage, self.prefix + key, value)

    def delete(self, stage: str, key: str) -> None:
        self.store.delete(stage, self.prefix + key)


def encode(
    frame: pl.DataFrame,
    facts: dict[str, Any] | None = None,
    *,
    compression: Compression = "uncompressed",
    version: int = ENCODING,
) -> bytes:
    """Encodes a frame and plain facts: version, length of the facts, the facts in JSON, the frame in Arrow IPC."""
    head = json.dumps(facts or {}, separators=(",", ":"), sort_keys=True).encode()
    buffer = io.BytesIO()
    buffer.write(_HEADER.pack(version, len(head)))
    buffer.write(head)
    # For text inside structs and lists, polars would write the whole frame from which these rows were sliced.
    level = pl.CompatLevel.oldest() if any(map(_has_text_inside, frame.dtypes)) else None
    frame.write_ipc_stream(buffer, compression=compression, compat_level=level)
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
    """Decodes the frame and facts of `encode`. Raises `ValueError` for an unknown version."""
    version, length = _HEADER.unpack_from(value)
    if version not in (ENCODING, PATCHED, *BROUGHT_ALONG):
        raise ValueError(f"state of encoding {version}; this version of beamlike reads encoding {ENCODING}")
    body = _HEADER.size + length
    return pl.read_ipc_stream(io.BytesIO(memoryview(value)[body:])), json.loads(value[_HEADER.size : body])
