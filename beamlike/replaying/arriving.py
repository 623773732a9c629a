"""The windows of a stage in which rows arrive, and the rows of a producer that arrive there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import polars as pl

from beamlike.observe.waiting.window_query import Window
from beamlike.plan.model import Plan
from beamlike.plan.route import address, apply_routes
from beamlike.replaying.chunks import rows_of_key
from beamlike.runtime.batch.ingest import ingest
from windowing.columns import WINDOW_END, WINDOW_START
from windowing.lateness import collection

Sent = Callable[[pl.DataFrame], Mapping[str, pl.DataFrame]]
"""The rows by address that a producer sends for rows of its input or output."""


@attrs.frozen
class Wanted:
    """A part of the input of a stage: the rows of a key, in a window. An empty key is all keys, None all windows."""

    stage: str
    key: tuple[tuple[str, Any], ...] = ()
    window: Window | None = None


def sent_by(plan: Plan, producer: str, now: int) -> Sent:
    """Returns the function for a source, whose rows it ingests, or for a stage, whose panes it routes."""
    if producer in plan.sources:
        source = plan.sources[producer]
        return lambda rows: ingest(source, rows.lazy(), now).frames
    routes = plan.stages[producer].routes
    return lambda rows: apply_routes(rows, routes).frames


def arriving(plan: Plan, wanted: Wanted, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """Returns the windows in which rows arrive at a stage, a row for each; None if none arrives."""
    operator = plan.stages[wanted.stage].stage.operator
    for role, declared in operator.inputs.items():
        if (rows := frames.get(address(wanted.stage, role))) is None:
            continue
        key = {name: value for name, value in wanted.key if name in declared.keys}
        found = in_window(plan, wanted.stage, rows_of_key(rows, key), wanted.window)
        if len(found):
            return found
    return None


def in_window(plan: Plan, stage: str, rows: pl.DataFrame, window: Window | None) -> pl.DataFrame:
    """Assigns windows to arrivals of a stage, and returns those that are in a window, which may have merged several."""
    windowing = plan.stages[stage].stage.operator.panes
    if windowing is None:
        return rows
    found = rows if WINDOW_START in rows.columns else windowing.windows.assign(rows)
    if window is None:
        return found
    return found.filter(pl.col(WINDOW_START) >= window.start, pl.col(WINDOW_END) <= window.end)


def is_late(plan: Plan, stage: str, windows: pl.DataFrame, watermark: int | None) -> bool:
    """True if all windows were collected before the arrivals came. `watermark` is that of the stage before (us)."""
    windowing = plan.stages[stage].stage.operator.panes
    if windowing is None or watermark is None or windows.is_empty():
        return False
    last = windows[WINDOW_END].max()
    assert isinstance(last, int)
    return collection(last, windowing.allowed_lateness) <= watermark


def matching(rows: pl.DataFrame, arrives: Callable[[pl.DataFrame], bool]) -> Iterator[int]:
    """Yields the numbers of the rows that arrive, by halving."""

    def halve(first: int, count: int) -> Iterator[int]:
        if not count or not arrives(rows[first : first + count]):
            return
        if count == 1:
            yield first
            return
        half = count // 2
        yield from halve(first, half)
        yield from halve(first + half, count - half)

    yield from halve(0, len(rows))
