"""Routes: the way of rows from a source or stage, over stateless steps, to a stage or sink."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, Literal

import attrs
import polars as pl

from beamlike.rows.dead_letters import UNCLAIMED, DeadLetterCounts, OnError
from beamlike.steps.base import Step
from beamlike.steps.step_runner import StepRunner
from stages.operator import MAIN

Output = Literal["main", "dead_letters", "late"]

UNIT: Final = "\x1f"
"""Between the parts of a name of ours; no name of a user's has it."""


def address(consumer: str, role: str = MAIN) -> str:
    """Where rows go: to a sink or to the main input of a stage by its name, to another input with its role."""
    return consumer if role == MAIN else f"{consumer}{UNIT}{role}"


def addressed(where: str) -> tuple[str, str]:
    """The consumer of an address, and the role."""
    consumer, _, role = where.partition(UNIT)
    return consumer, role or MAIN


@attrs.frozen
class Route:
    """The steps on one way to a consumer, and exactly the columns that it gets, in this order.

    `output` is what the way begins with: the rows of the producer, those that a stage dropped, or dead letters. Those
    are what the producer could not use; or, where rows of its output `of` go through the steps `before`, what the last
    of these could not use of its rows, whose columns are `shown`. A consumer may be reached on several ways. `role`
    says at which of its inputs, if that is a stage. A `silent` one delivers only dead letters of its
    steps: its rows are there already, in a table.
    """

    consumer: str
    steps: tuple[Step, ...]
    columns: tuple[str, ...]
    output: Output = "main"
    before: tuple[Step, ...] = ()
    of: Output = "main"
    shown: tuple[str, ...] = ()
    role: str = MAIN
    silent: bool = False

    @property
    def address(self) -> str:
        """Where its rows go."""
        return address(self.consumer, self.role)

    @property
    def carries_letters(self) -> bool:
        """Whether it begins with dead letters."""
        return self.output == "dead_letters"

    @property
    def path(self) -> tuple[Step, ...]:
        """The steps that the rows of the producer go through."""
        return self.before if self.carries_letters else self.steps

    @cached_property
    def wanted(self) -> tuple[frozenset[str], ...]:
        """The columns that are needed before the first step of the path, ..., after the last one."""
        path = list(self.path)
        wanted = [frozenset() if self.carries_letters else frozenset(self.columns)]
        if self.before:
            last = path.pop()
            wanted = [last.needs(last.everything) | {*self.shown}, last.everything]
        for step in reversed(path):
            wanted.insert(0, step.needs(wanted[0]))
        return tuple(wanted)

    @property
    def needed(self) -> frozenset[str]:
        """The columns of the producer's rows that it must begin with to give its own."""
        return self.wanted[0]

    def takes(self, output: Output) -> bool:
        """Whether rows of this output go on its path."""
        return (self.of if self.before else self.output) == output

    def of_letters(self) -> Route:
        """The route as the dead letters see it, from where they are made."""
        return Route(self.consumer, self.steps, self.columns, role=self.role)

    @property
    def skew(self) -> int:
        """By how many microseconds event times may be behind where they were at its beginning."""
        return sum(step.skew for step in self.steps)


@attrs.frozen
class Routed:
    """What each consumer gets, by address, with dead letters among it; and how many of these there were."""

    frames: Mapping[str, pl.DataFrame]
    letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)


def apply_routes(
    frame: pl.DataFrame | pl.LazyFrame,
    routes: Iterable[Route],
    *,
    output: Output = "main",
    on_error: OnError = "dead_letters",
) -> Routed:
    """What each consumer gets of a producer's rows; routes of another output are left out.

    Steps that routes share at their beginning run once. All is lazy up to a Python step and to the end,
    where the routes are collected together: of a scanned file, only the rows and columns that some route
    needs are read. Where an expression fails, all of it is done again, step by step. Dead letters that no
    route takes go to `UNCLAIMED`. Raises `StepError` for what a step cannot use, if that fails the run.
    """
    routes = list(routes)
    try:
        runner = StepRunner(on_error)
        return Routed(follow(frame, routes, runner, output=output), runner.dead_letters)
    except pl.exceptions.PolarsError:
        runner = StepRunner(on_error, row_by_row=True)
        return Routed(follow(frame, routes, runner, output=output), runner.dead_letters)


def follow(
    frame: pl.DataFrame | pl.LazyFrame,
    routes: Iterable[Route],
    runner: StepRunner,
    *,
    output: Output = "main",
) -> dict[str, pl.DataFrame]:
    """What each consumer gets, in one attempt; `runner` has the dead letters."""
    wanted = [route for route in routes if route.takes(output)]
    if not (wanted or output == "dead_letters"):
        return {}
    walk = _Walk(runner)
    if output == "dead_letters":
        walk.deliver(frame, list(enumerate(wanted)))
    else:
        walk.begin(frame, list(enumerate(wanted)))
    ends = sorted(walk.ends, key=lambda end: end[0])
    frames = [ends[0][1].collect()] if len(ends) == 1 else pl.collect_all([end for _, end in ends])
    parts: dict[str, list[pl.DataFrame]] = {}
    for (index, _), part in zip(ends, frames, strict=True):
        name = wanted[index].address if index < len(wanted) else UNCLAIMED
        if len(part) and index < len(wanted):
            runner.mark_used(wanted[index].steps)
        if index >= len(wanted) or not wanted[index].silent:
            parts.setdefault(name, []).append(part)
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


Numbered = list[tuple[int, Route]]
"""Routes, each with its place among those of the producer."""

_LAST: Final = sys.maxsize
"""The place of what no route takes."""


@attrs.define
class _Walk:
    """From the producer to the ends of its routes; `ends` has the lazy results, each with the number of its route."""

    runner: StepRunner
    ends: list[tuple[int, pl.LazyFrame]] = attrs.field(factory=list)

    def begin(self, frame: pl.DataFrame | pl.LazyFrame, routes: Numbered) -> None:
        """From the producer's rows, or from dead letters that are made."""
        self.go(frame.lazy(), routes, depth=0)
        if isinstance(frame, pl.DataFrame) and len(frame):
            for _, route in routes:
                self.runner.mark_reached(route.path)

    def go(self, frame: pl.LazyFrame, routes: Numbered, depth: int) -> None:
        """On along these routes, which all have taken the same first `depth` steps to `frame`."""
        arrived = [
            (index, route)
            for index, route in routes
            if len(route.path) == depth and not route.carries_letters
        ]
        branches: dict[str, Numbered] = {}
        for index, route in routes:
            if len(route.path) > depth:
                branches.setdefault(route.path[depth].name, []).append((index, route))
        steps = {name: _step([route for _, route in branch], depth) for name, branch in branches.items()}
        if len(arrived) + len(branches) > 1 and any(step.python for step in steps.values()):
            # A Python step collects its input: without this, the rows before it would be computed once more.
            frame = frame.collect().lazy()
        self.ends += [(index, frame.select(route.columns)) for index, route in arrived]
        for name, branch in branches.items():
            takers = [(index, route) for index, route in branch if _made_by(route, depth)]
            rows, letters = self.runner.apply(steps[name], frame, asked=bool(takers))
            if letters is not None:
                self.deliver(letters, takers)
            self.go(rows, branch, depth + 1)

    def deliver(self, letters: pl.DataFrame | pl.LazyFrame, routes: Numbered) -> None:
        """Dead letters to the routes that take them, if there are any."""
        if routes:
            self.begin(letters, [(index, route.of_letters()) for index, route in routes])
        else:
            self.ends.append((_LAST, letters.lazy()))


def _made_by(route: Route, depth: int) -> bool:
    """Whether it carries the dead letters of its step at this depth."""
    return route.carries_letters and len(route.before) == depth + 1


def _step(routes: list[Route], depth: int) -> Step:
    """The step that all these routes take next, without what none of them needs of it."""
    wanted = frozenset[str]().union(*(route.wanted[depth + 1] for route in routes))
    return routes[0].path[depth].narrowed(wanted)
