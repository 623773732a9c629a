"""Routes: the way of rows from a source or stage, over stateless steps, to a stage or sink."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

import attrs
import polars as pl

from beamlike.steps import Step

Output = Literal["main", "dead_letters", "late"]


@attrs.frozen
class Route:
    """The steps on one way to a consumer, and exactly the columns that it gets, in this order.

    `output` is what the way begins with: the rows of the producer, those of a source whose event time could
    not be read, or those that a stage dropped. A consumer that is reached on several ways has several routes.
    """

    consumer: str
    steps: tuple[Step, ...]
    columns: tuple[str, ...]
    output: Output = "main"

    @cached_property
    def wanted(self) -> tuple[frozenset[str], ...]:
        """The columns that are needed before the first step, ..., after the last one."""
        wanted = [frozenset(self.columns)]
        for step in reversed(self.steps):
            wanted.insert(0, step.needs(wanted[0]))
        return tuple(wanted)

    @property
    def needed(self) -> frozenset[str]:
        """The columns that it must begin with to give its own."""
        return self.wanted[0]

    @property
    def skew(self) -> int:
        """By how many microseconds event times may be behind where they were at its beginning."""
        return sum(step.skew for step in self.steps)


def apply_routes(
    frame: pl.DataFrame | pl.LazyFrame, routes: Iterable[Route], *, output: Output = "main"
) -> dict[str, pl.DataFrame]:
    """What each consumer gets of a producer's rows, by its name; routes of another output are left out.

    Steps that routes share at their beginning run once. All is lazy up to a Python step and to the end,
    where the routes are collected together: of a scanned file, only the rows and columns that some route
    needs are read.
    """
    wanted = [route for route in routes if route.output == output]
    ends = sorted(_walk(frame.lazy(), list(enumerate(wanted)), depth=0), key=lambda end: end[0])
    frames = pl.collect_all([end for _, end in ends])
    parts: dict[str, list[pl.DataFrame]] = {}
    for route, part in zip(wanted, frames, strict=True):
        parts.setdefault(route.consumer, []).append(part)
    return {name: _whole(part) for name, part in parts.items()}


def join(parts: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """What each consumer gets of several outputs of a producer."""
    joined: dict[str, list[pl.DataFrame]] = {}
    for part in parts:
        for name, frame in part.items():
            joined.setdefault(name, []).append(frame)
    return {name: _whole(frames) for name, frames in joined.items()}


def _whole(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return parts[0] if len(parts) == 1 else pl.concat(parts)


def _walk(frame: pl.LazyFrame, routes: list[tuple[int, Route]], depth: int) -> list[tuple[int, pl.LazyFrame]]:
    """The lazy results of the routes, which all have taken the same first `depth` steps to `frame`."""
    branches: dict[str, list[tuple[int, Route]]] = {}
    arrived = []
    for index, route in routes:
        if len(route.steps) == depth:
            arrived.append((index, route))
        else:
            branches.setdefault(route.steps[depth].name, []).append((index, route))
    steps = {name: _step([route for _, route in branch], depth) for name, branch in branches.items()}
    if len(arrived) + len(branches) > 1 and any(step.python for step in steps.values()):
        # A Python step collects its input: without this, the rows before it would be computed once more.
        frame = frame.collect().lazy()
    ends = [(index, frame.select(route.columns)) for index, route in arrived]
    for name, branch in branches.items():
        ends += _walk(steps[name].apply(frame), branch, depth + 1)
    return ends


def _step(routes: list[Route], depth: int) -> Step:
    """The step that all these routes take next, without what none of them needs of it."""
    wanted = frozenset[str]().union(*(route.wanted[depth + 1] for route in routes))
    return routes[0].steps[depth].narrowed(wanted)
