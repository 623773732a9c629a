"""Queues in a folder, as sources that announce their watermark: parcels of rows, and a log of the committed ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import polars as pl

import beamlike as bl


@attrs.frozen
class Parcels(bl.AnnouncingSource):
    """A source that reads each file of the folder as a batch and announces the `complete` time of the last parcel."""

    folder: str

    def schema(self) -> pl.Schema:
        return pl.Schema({"user": pl.String(), "at": pl.Int64()})

    def put(self, rows: Sequence[tuple[str, int]], complete: int | None = None) -> None:
        """Adds a parcel to the queue."""
        number = len(list(Path(self.folder).glob("*.json")))
        parcel = {"rows": rows, "complete": complete}
        Path(self.folder, f"{number:06d}.json").write_text(json.dumps(parcel))

    @property
    def acknowledged(self) -> list[str]:
        """The committed parcels, in order; some may be repeated."""
        told = Path(self.folder, "committed")
        return told.read_text().split() if told.exists() else []

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        done = position.get("done", 0)
        assert done == len({*self.acknowledged}), "the batch before is committed"
        there = sorted(Path(self.folder).glob("*.json"))[done:]
        if not there:
            return None
        complete = json.loads(there[0].read_text())["complete"]
        watermark = None if complete is None else complete * 1_000_000
        return bl.PlannedBatch(there[0].name, {"done": done + 1}, len(there) > 1, watermark)

    def read(self, taken: bl.PlannedBatch) -> pl.DataFrame:
        rows = json.loads(Path(self.folder, taken.input).read_text())["rows"]
        return pl.DataFrame(rows, schema=self.schema(), orient="row")

    def committed(self, taken: bl.PlannedBatch) -> None:
        with Path(self.folder, "committed").open("a") as told:
            told.write(f"{taken.input}\n")


class Crates:
    """A source of the same parcels, of which a batch reads up to two as its parts; a class without a base."""

    bounded = False
    watermark = bl.AnnouncedWatermark()

    def __init__(self, parcels: Parcels) -> None:
        self.parcels = parcels

    def schema(self) -> pl.Schema:
        return self.parcels.schema()

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.PlannedBatch | None:
        """Plans two parcels, which together are as complete as the second one."""
        first = self.parcels.plan(position, rows)
        if first is None:
            return None
        names = [path.name for path in sorted(Path(self.parcels.folder).glob("*.json"))]
        taken = names[position.get("done", 0) :][:2]
        complete = json.loads(Path(self.parcels.folder, taken[-1]).read_text())["complete"]
        done = position.get("done", 0) + len(taken)
        return bl.PlannedBatch(
            taken, {"done": done}, done < len(names), None if complete is None else complete * 1_000_000
        )

    def read_part(self, part: str, rows: int) -> Iterator[pl.DataFrame]:
        yield self.parcels.read(bl.PlannedBatch(part, {}))

    def committed(self, taken: bl.PlannedBatch) -> None:
        for name in taken.input:
            self.parcels.committed(bl.PlannedBatch(name, {}))
