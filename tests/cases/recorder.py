"""A sink that keeps what comes, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import attrs
import polars as pl

from beamlike.io.base import Part


@attrs.define
class Recorder:
    """In this process, for a run that nothing interrupts."""

    frames: dict[int, list[pl.DataFrame]] = attrs.field(factory=dict)

    distributed: ClassVar[bool] = False

    def start(self, run: str) -> None:
        """A run begins with nothing."""
        self.frames.clear()

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Keeps a part."""
        self.frames.setdefault(part.batch, []).append(frame)

    def rows(self, batches: Iterable[int]) -> list[dict[str, Any]]:
        """Those of these batches, in order."""
        frames = [frame for batch in batches for frame in self.frames.get(batch, [])]
        return [row for frame in frames for row in frame.to_dicts()]
