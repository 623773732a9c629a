"""The order of a stage's arrivals in a batch: the same on both runners, for any number of shards."""

from __future__ import annotations

from collections.abc import Container, Iterable

import polars as pl

from beamlike.plan.model import StagePlan
from windowing.columns import EVENT_TIME


def in_order(
    plan: StagePlan, sources: Container[str], arrived: Iterable[tuple[str, pl.DataFrame]], *, ordered: bool
) -> list[pl.DataFrame]:
    """Returns frames, given with the names of their senders, in the order of the stage's inputs.

    Rows of a source keep their order. Rows of a stage arrive from its shards, each with some of the keys; if `ordered`,
    they are sorted by event time, then by their other columns.
    """
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in plan.inputs}
    for name, frame in arrived:
        frames[name].append(frame)
    if ordered:
        frames = {
            name: found if name in sources or not found else [_sorted(found)]
            for name, found in frames.items()
        }
    return [frame for found in frames.values() for frame in found]


def _sorted(frames: list[pl.DataFrame]) -> pl.DataFrame:
    rows = pl.concat(frames)
    plain = [name for name, dtype in rows.schema.items() if name != EVENT_TIME and not dtype.is_nested()]
    return rows.sort(EVENT_TIME, *plain, maintain_order=True)
