"""State as bytes: a small store protocol, and an encoding of frames that carries its own version.

Where the bytes live is the runner's business: a dict in process, RocksDB on Spark.
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any, Final, Literal, Protocol

import attrs
import polars as pl

ENCODING: Final = 4
"""Version of all that is kept of stages; a checkpoint of another one cannot go on as it is."""

BROUGHT_ALONG: Final = (3,)
"""Earlier versions that differ only in the shard and bucket of a key: `stages.snapshot` makes present state of them."""

PATCHED: Final = 5
"""Version of a value that says of rows before it that they are gone: who does not know that must not go on.

The next version of all that is kept comes after it.
"""

Compression = Literal["uncompressed", "zstd"]

_HEADER: Final = struct.Struct("<BI")


class StateStore(Protocol):
    """Values by stage and key. A value that was put is what `get` gives, until it is put again or deleted."""

    def get(self, stage: str, key: str) -> bytes | None:
        """The value, or None."""

    def put(self, stage: str, key: str, value: bytes) -> None:
        """Sets the value."""

    def delete(self, stage: str, key: str) -> None:
        """Removes the value, if there is one."""


@attrs.define
class DictStore:
    """State in this process."""

    values: dict[tuple[str, str], bytes] = attrs.field(factory=dict)

    def get(self, stage: str, key: str) -> bytes | None:
        return self.values.get((stage, key))

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.values[stage, key] = value

    def delete(self, stage: str, key: str) -> None:
        self.values.pop((stage, key), None)


@attrs.frozen
class Within:
    """The values of a store whose keys begin with a prefix, without it."""

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
    """A frame and a few plain facts as bytes: version, length of the facts, the facts in JSON, Arrow IPC."""
    head = json.dumps(facts or {}, separators=(",", ":"), sort_keys=True).encode()
    buffer = io.BytesIO()
    buffer.write(_HEADER.pack(version, len(head)))
    buffer.write(head)
    # Of text inside of structs and lists, polars would write all that the rows were once cut from, for each slice anew.
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
    """What `encode` was given. Raises `ValueError` for a version that is not known."""
    version, length = _HEADER.unpack_from(value)
    if version not in (ENCODING, PATCHED, *BROUGHT_ALONG):
        raise ValueError(f"state of encoding {version}; this version of beamlike reads encoding {ENCODING}")
    body = _HEADER.size + length
    return pl.read_ipc_stream(io.BytesIO(memoryview(value)[body:])), json.loads(value[_HEADER.size : body])
