"""Routes of rows from a source or stage, over stateless steps, to a stage or sink."""

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
"""The separator of the parts of an internal name; no user's name contains it."""


def address(consumer: str, role: str = MAIN) -> str:
    """Returns the address of an input: the name of the sink or stage, with the role unless it is the main input."""
    return consumer if role == MAIN else f"{consumer}{UNIT}{role}"


def addressed(where: str) -> tuple[str, str]:
    """Returns the consumer and the role of an address."""
    consumer, _, role = where.partition(UNIT)
    return consumer, role or MAIN


@attrs.frozen
class Route:
    """The steps of one way to a consumer, and the columns that it receives, in this order.

    Attributes:
        output: The rows at the beginning: those of the producer, those that a stage dropped, or dead letters.
        before: For dead letters of a step, the steps from the producer up to it; empty for those of the producer.
        of: The output of the producer that goes through the steps `before`.
        shown: The columns of the rows of the last step in `before`, which its dead letters have.
        role: The input of the stage at which the route ends. Several routes may lead to one consumer.
        dead_letters_only: True if it delivers only dead letters of its steps, as its rows are in a table already.
    """

    consumer: str
    steps: tuple[Step, ...]
    columns: tuple[str, ...]
    output: Output = "main"
    before: tuple[Step, ...] = ()
    of: Output = "main"
    shown: tuple[str, ...] = ()
    role: str = MAIN
    dead_letters_only: bool = False

    @property
    def address(self) -> str:
        """The address to which the rows are sent."""
        return address(self.consumer, self.role)

    @property
    def carries_dead_letters(self) -> bool:
        """True if it begins with dead letters."""
        return self.output == "dead_letters"

    @property
    def path(self) -> tuple[Step, ...]:
        """The steps that the rows of the producer go through."""
        return self.before if self.carries_dead_letters else self.steps

    @cached_property
    def wanted(self) -> tuple[frozenset[str], ...]:
        """The columns that are needed before the first step of the path, ..., and after the last one."""
        path = list(self.path)
        wanted = [frozenset() if self.carries_dead_letters else frozenset(self.columns)]
        if self.before:
            last = path.pop()
            wanted = [last.needs(last.everything) | {*self.shown}, last.everything]
        for step in reversed(path):
            wanted.insert(0, step.needs(wanted[0]))
        return tuple(wanted)

    @property
    def needed(self) -> frozenset[str]:
        """The columns that the producer's rows must have."""
        return self.wanted[0]

    def takes(self, output: Output) -> bool:
        """True if rows of this output go on the path."""
        return (self.of if self.before else self.output) == output

    def from_dead_letters(self) -> Route:
        """Returns the route of the dead letters, from the step that makes them."""
        return Route(self.consumer, self.steps, self.columns, role=self.role)

    @property
    def skew(self) -> int:
        """The microseconds by which steps may set event times back."""
        return sum(step.skew for step in self.steps)


@attrs.frozen
class Routed:
    """The rows for each consumer, by address, with dead letters; and the counts of dead letters."""

    frames: Mapping[str, pl.DataFrame]
    letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)


def apply_routes(
    frame: pl.DataFrame | pl.LazyFrame,
    routes: Iterable[Route],
    *,
    output: Output = "main",
    on_error: OnError = "dead_letters",
) -> Routed:
    """Returns the rows for each consumer of one output of a producer.

    Steps that routes share at their beginning run once. Frames are lazy up to a Python step and to the end, where all
    routes are collected together, so only the rows and columns that some route needs are read from a scanned file. If
    an expression fails, all steps run again one by one. Dead letters without a route go to `UNCLAIMED`. Raises
    `StepError` for rows that a step cannot use, if they fail the run.
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
    """Applies the steps of all routes, and returns the rows by consumer; `runner` collects the dead letters."""
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
        if index >= len(wanted) or not wanted[index].dead_letters_only:
            parts.setdefault(name, []).append(part)
    return {name: _whole(part) for name, part in parts.items()}


def join(parts: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Concatenates the rows of each consumer from several outputs of a producer."""
    joined: dict[str, list[pl.DataFrame]] = {}
    for part in parts:
        for name, frame in part.items():
            joined.setdefault(name, []).append(frame)
    return {name: _whole(frames) for name, frames in joined.items()}


def _whole(parts: list[pl.DataFrame]) -> pl.DataFrame:
    return parts[0] if len(parts) == 1 else pl.concat(parts)


Numbered = list[tuple[int, Route]]
"""Routes, each with its index among the routes of the producer."""

_LAST: Final = sys.maxsize
"""The index of rows without a route."""


@attrs.define
class _Walk:
    """A walk from the producer to the ends of its routes; `ends` has lazy results with the indices of their routes."""

    runner: StepRunner
    ends: list[tuple[int, pl.LazyFrame]] = attrs.field(factory=list)

    def begin(self, frame: pl.DataFrame | pl.LazyFrame, routes: Numbered) -> None:
        """Begins with the producer's rows, or with dead letters."""
        self.go(frame.lazy(), routes, depth=0)
        if isinstance(frame, pl.DataFrame) and len(frame):
            for _, route in routes:
                self.runner.mark_reached(route.path)

    def go(self, frame: pl.LazyFrame, routes: Numbered, depth: int) -> None:
        """Continues along routes that share the first `depth` steps, which lead to `frame`."""
        arrived = [
            (index, route)
            for index, route in routes
            if len(route.path) == depth and not route.carries_dead_letters
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
        """Sends dead letters along the routes that carry them, if there are any."""
        if routes:
            self.begin(letters, [(index, route.from_dead_letters()) for index, route in routes])
        else:
            self.ends.append((_LAST, letters.lazy()))


def _made_by(route: Route, depth: int) -> bool:
    """True if the route carries the dead letters of its step at this depth."""
    return route.carries_dead_letters and len(route.before) == depth + 1


def _step(routes: list[Route], depth: int) -> Step:
    """Returns the next step of all these routes, without columns that none of them needs."""
    wanted = frozenset[str]().union(*(route.wanted[depth + 1] for route in routes))
    return routes[0].path[depth].narrowed(wanted)
