"""Routes: the paths of rows from a source or stage, over stateless steps, to a stage or sink."""

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
"""The separator between the parts of an internal name. No user's name contains it."""


def address(consumer: str, role: str = MAIN) -> str:
    """Returns the address of an input: the name of the sink or stage, and the role unless it is the main input."""
    return consumer if role == MAIN else f"{consumer}{UNIT}{role}"


def addressed(where: str) -> tuple[str, str]:
    """Splits an address into consumer and role."""
    consumer, _, role = where.partition(UNIT)
    return consumer, role or MAIN


@attrs.frozen
class Route:
    """A route to a consumer: the steps, and the columns that it delivers, in this order.

    Attributes:
        output: The rows that enter the route: the producer's main output, rows that a stage dropped, or dead letters.
        before: For dead letters of a step, the steps from the producer up to that step. Empty for dead letters of the
            producer itself.
        of: The output of the producer that enters the steps in `before`.
        shown: The columns that dead letters of the last step in `before` show.
        role: The input of the stage to which the route leads. A consumer may have several routes.
        dead_letters_only: True if it delivers only dead letters of its steps, because a lookup table already has its
            rows.
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
        """The address of the input to which the rows are sent."""
        return address(self.consumer, self.role)

    @property
    def carries_dead_letters(self) -> bool:
        """True if dead letters enter the route."""
        return self.output == "dead_letters"

    @property
    def path(self) -> tuple[Step, ...]:
        """The steps that the producer's rows pass."""
        return self.before if self.carries_dead_letters else self.steps

    @cached_property
    def wanted(self) -> tuple[frozenset[str], ...]:
        """The columns that are needed before each step of the path, and after the last one."""
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
        """True if rows of this output enter the route."""
        return (self.of if self.before else self.output) == output

    def from_dead_letters(self) -> Route:
        """Returns the part of the route that dead letters take, after the step that made them."""
        return Route(self.consumer, self.steps, self.columns, role=self.role)

    @property
    def skew(self) -> int:
        """The microseconds by which the steps may move event times back."""
        return sum(step.skew for step in self.steps)


@attrs.frozen
class Routed:
    """The rows for each consumer, by address, and the counts of dead letters."""

    frames: Mapping[str, pl.DataFrame]
    dead_letters: DeadLetterCounts = attrs.field(factory=DeadLetterCounts)


def apply_routes(
    frame: pl.DataFrame | pl.LazyFrame,
    routes: Iterable[Route],
    *,
    output: Output = "main",
    on_error: OnError = "dead_letters",
) -> Routed:
    """Applies the steps of all routes to one output of a producer, and returns the rows for each consumer.

    Leading steps that routes have in common run once. Frames are lazy up to a Python step or the end, where all routes
    are collected together. So a scanned file is read only for the rows and columns that some route needs. If an
    expression fails, all steps run again, one by one. Dead letters without a route are sent to `UNCLAIMED`. Raises
    `StepError` for rows that a step cannot use, if dead letters fail the run.
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
    """Applies the steps of all routes, and returns the rows by consumer. `runner` collects the dead letters."""
    wanted = [route for route in routes if route.takes(output)]
    if not (wanted or output == "dead_letters"):
        return {}
    if isinstance(frame, pl.DataFrame) and output != "dead_letters" and all(map(_is_plain, wanted)):
        # These are most routes between stages. Columns are selected in a tenth of the time of a query.
        return join({route.address: frame[:, list(route.columns)]} for route in wanted)
    walk = _Walk(runner)
    if output == "dead_letters":
        walk.deliver(frame, list(enumerate(wanted)))
    else:
        walk.begin(frame, list(enumerate(wanted)))
    # Results are in the order of the routes. Dead letters without a route are last.
    ends = sorted(walk.ends, key=lambda end: end[0])
    frames = [ends[0][1].collect()] if len(ends) == 1 else pl.collect_all([end for _, end in ends])
    parts: dict[str, list[pl.DataFrame]] = {}
    for (index, _), part in zip(ends, frames, strict=True):
        name = wanted[index].address if index < len(wanted) else UNCLAIMED
        if len(part) and index < len(wanted):
            # Rows at the end of a route show that each of its steps could use a row.
            runner.mark_used(wanted[index].steps)
        if index >= len(wanted) or not wanted[index].dead_letters_only:
            parts.setdefault(name, []).append(part)
    return {name: _whole(part) for name, part in parts.items()}


def join(parts: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Concatenates, for each consumer, the rows from several outputs of a producer."""
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
"""The index for rows without a route, which sorts last."""


@attrs.define
class _Walk:
    """A depth-first walk over the routes from a producer. `ends` has lazy results, with the indices of their routes."""

    runner: StepRunner
    ends: list[tuple[int, pl.LazyFrame]] = attrs.field(factory=list)

    def begin(self, frame: pl.DataFrame | pl.LazyFrame, routes: Numbered) -> None:
        """Starts the walk with rows of the producer, or with dead letters."""
        self.go(frame.lazy(), routes, depth=0)
        if isinstance(frame, pl.DataFrame) and len(frame):
            for _, route in routes:
                self.runner.mark_reached(route.path)

    def go(self, frame: pl.LazyFrame, routes: Numbered, depth: int) -> None:
        """Continues with routes that share their first `depth` steps. `frame` is the result of these steps."""
        # Routes that end here receive the rows. The others branch by their next step, which runs once per
        # branch.
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
            # A Python step collects its input. Without this, several of them would compute the rows before
            # them repeatedly.
            frame = frame.collect().lazy()
        self.ends += [(index, frame.select(route.columns)) for index, route in arrived]
        for name, branch in branches.items():
            takers = [(index, route) for index, route in branch if _made_by(route, depth)]
            rows, letters = self.runner.apply(steps[name], frame, asked=bool(takers))
            if letters is not None:
                self.deliver(letters, takers)
            self.go(rows, branch, depth + 1)

    def deliver(self, letters: pl.DataFrame | pl.LazyFrame, routes: Numbered) -> None:
        """Sends dead letters along the routes that carry them, or to the end if there are none."""
        if routes:
            self.begin(letters, [(index, route.from_dead_letters()) for index, route in routes])
        else:
            self.ends.append((_LAST, letters.lazy()))


def _is_plain(route: Route) -> bool:
    """True if the route delivers rows as they are."""
    return not (route.path or route.carries_dead_letters or route.dead_letters_only)


def _made_by(route: Route, depth: int) -> bool:
    """True if the route carries the dead letters of its step at this depth."""
    return route.carries_dead_letters and len(route.before) == depth + 1


def _step(routes: list[Route], depth: int) -> Step:
    """Returns the step that all these routes have at this depth, without columns that none of them needs."""
    wanted = frozenset[str]().union(*(route.wanted[depth + 1] for route in routes))
    return routes[0].path[depth].narrowed(wanted)
