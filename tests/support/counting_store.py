"""A state store in memory that records which values are read and written."""

from __future__ import annotations

import attrs

from stages.state.store import DictStore


@attrs.define
class CountingStore(DictStore):
    """A store that records its reads and writes."""

    read: list[str] = attrs.field(factory=list)
    written: list[str] = attrs.field(factory=list)

    def get(self, stage: str, key: str) -> bytes | None:
        self.read.append(key)
        return super().get(stage, key)

    def put(self, stage: str, key: str, value: bytes) -> None:
        self.written.append(key)
        super().put(stage, key, value)

    def delete(self, stage: str, key: str) -> None:
        self.written.append(key)
        super().delete(stage, key)

    def reset(self) -> None:
        self.read.clear()
        self.written.clear()
