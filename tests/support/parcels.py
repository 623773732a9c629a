"""A queue in a folder, as a source that announces its watermark: parcels of rows, and which of them were committed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import polars as pl

import beamlike as bl


@attrs.frozen
class Parcels(bl.AnnouncingSource):
    """Each file of the folder is a parcel, a batch; `complete` of the one that is put last is announced with it."""

    folder: str

    def schema(self) -> pl.Schema:
        return pl.Schema({"user": pl.String(), "at": pl.Int64()})

    def put(self, rows: Sequence[tuple[str, int]], complete: int | None = None) -> None:
        """Sends a parcel."""
        number = len(list(Path(self.folder).glob("*.json")))
        parcel = {"rows": rows, "complete": complete}
        Path(self.folder, f"{number:06d}.json").write_text(json.dumps(parcel))

    @property
    def acknowledged(self) -> list[str]:
        """Which were committed, in that order; some perhaps more than once."""
        told = Path(self.folder, "committed")
        return told.read_text().split() if told.exists() else []

    def plan(self, position: Mapping[str, Any], rows: int) -> bl.Taken | None:
        done = position.get("done", 0)
        assert done == len({*self.acknowledged}), "the batch before is committed"
        there = sorted(Path(self.folder).glob("*.json"))[done:]
        if not there:
            return None
        complete = json.loads(there[0].read_text())["complete"]
        watermark = None if complete is None else complete * 1_000_000
        return bl.Taken(there[0].name, {"done": done + 1}, len(there) > 1, watermark)

    def read(self, taken: bl.Taken) -> pl.DataFrame:
        rows = json.loads(Path(self.folder, taken.input).read_text())["rows"]
        return pl.DataFrame(rows, schema=self.schema(), orient="row")

    def committed(self, taken: bl.Taken) -> None:
        with Path(self.folder, "committed").open("a") as told:
            told.write(f"{taken.input}\n")
