"""A query as a pipeline from a folder of events to a folder with its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

import attrs
import polars as pl

import beamlike as bl
from beamlike.io.base import Part
from benchmarks.nexmark.events import KINDS
from benchmarks.nexmark.queries import QUERIES, Auction

_TIME: Final = pl.Datetime("us", "UTC")
SCHEMAS: Final = {
    "persons": {
        **dict.fromkeys(("id",), int),
        **dict.fromkeys(("name", "email", "credit_card", "city", "state"), str),
        "at": _TIME,
    },
    "auctions": {
        "id": int,
        "item": str,
        "description": str,
        "initial_bid": int,
        "reserve": int,
        "at": _TIME,
        "expires": _TIME,
        "seller": int,
        "category": int,
    },
    "bids": {"auction": int, "bidder": int, "price": int, "channel": str, "url": str, "at": _TIME},
}

TO_FILES: Final = 10
"""The query whose answer is files: a folder for each window."""
_FOLDER: Final = "%Y-%m-%dT%H:%M:%SZ"


@attrs.frozen
class Dropped:
    """A sink that tasks write, like files, and that keeps nothing."""

    distributed: ClassVar[bool] = True

    def write(self, frame: pl.DataFrame, part: Part) -> None:
        """Drops the rows."""

    def from_anywhere(self) -> Self:
        """Returns itself, because it has no place."""
        return self

    def prepare(self, frame: pl.DataFrame, part: Part) -> Mapping[str, str]:
        """Does nothing, because there are no files."""
        return {}

    def settle(self, run: str, batch: int, parts: Mapping[str, str], *, again: bool) -> None:
        """Does nothing, because there is nothing to publish."""

    def shown_early(self) -> None:
        """Does nothing, because no rows are published."""


def pipeline(
    query: int,
    data: Path,
    out: Path | None,
    *,
    out_of_orderness: str | None = None,
    files_per_batch: int | None = None,
) -> bl.Pipeline:
    """Declares the query over the events below `data`, in order of file names; rows are written below `out`.

    Without `out` rows are dropped, which excludes the cost of writing; the query about files needs one.

    `out_of_orderness` is the duration by which an event may be older than an earlier one of its kind. By default, it is
    measured in advance.
    """
    p = bl.Pipeline(f"nexmark-{query}")
    streams = {
        kind: p.read(
            kind,
            bl.Parquet(data / kind, SCHEMAS[kind], order="path", max_files_per_trigger=files_per_batch),
            timestamp="at",
            watermark=bl.BoundedOutOfOrderness(out_of_orderness or measured(data / kind)),
            max_future=None,
        )
        for kind in KINDS
    }
    side = p.read("side", bl.Parquet(data / "side.parquet", {"key": int, "value": str}))
    auction = Auction(**streams, side=side)
    answer = QUERIES[query](auction)
    if query == TO_FILES:
        if out is None:
            raise ValueError(f"query {TO_FILES} is about files: it needs a folder for them")
        _write_files(answer, out)
    else:
        answer.write("answer", Dropped() if out is None else bl.Parquet(out))
    return p


def _write_files(events: bl.Collection, out: Path) -> None:
    """Writes a folder of files for each window, and once, when it is complete, the number of its events."""
    folder = bl.window_start().dt.to_string(_FOLDER)
    events.with_columns(folder=folder).write("answer", bl.Parquet(out, partition_by=["folder"]))
    counts = events.aggregate(
        events=bl.count(),
        **{kind: bl.count(where=bl.col("kind") == kind) for kind in ("person", "auction", "bid")},
    )
    counts.with_columns(folder=folder).write("index", bl.JSONLines(out / "_index"))


def measured(folder: Path) -> str:
    """Returns the greatest difference by which an event of these files is older than an earlier one, as a duration."""
    names = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_")))
    if not names:
        return "0s"
    newest, most = None, 0
    for name in bl.Parquet(folder, order="path").files():
        times = pl.scan_parquet(name).select(pl.col("at").cast(pl.Int64)).collect()["at"]
        if len(times):
            so_far = times.cum_max() if newest is None else times.cum_max().clip(lower_bound=newest)
            most, newest = max(most, (so_far - times).max()), so_far[-1]
    return f"{most}us"
