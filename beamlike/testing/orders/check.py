"""`check_orders`: plays a pipeline in many orders of arrival, and reports the first that changes a final result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs
from rich.console import Console
from rich.progress import track

from beamlike.api.pipeline import Collection, Pipeline
from beamlike.errors import PlanError, UnknownName, WrongType, listed, nearest
from beamlike.io import Memory, Rows
from beamlike.logical.node import inputs_first
from beamlike.logical.registry import Registry, Write
from beamlike.plan.compiler import compile_plan
from beamlike.plan.model import Plan
from beamlike.testing.orders.arrivals import Arrivals, Bundle, interleaved
from beamlike.testing.orders.courses import SHARDS, Course, can_shard
from beamlike.testing.orders.finals import Finality, Finals
from beamlike.testing.orders.report import Difference, impurity, report
from beamlike.testing.orders.shrinking import fewest

_LOG: Final = logging.getLogger("beamlike")

Order = Mapping[str, Sequence[Bundle]]
"""The bundles of each source, equally many."""

ONE_RUN: Final = Course()

Results = Mapping[str, Finals | None]
"""The final rows of each stage and sink; None if they are not known."""


def check_orders(pipeline: Pipeline | Collection, rows: Mapping[str, Any], *, seeds: int = 200) -> None:
    """Asserts that the final results of a pipeline do not depend on the order in which its rows arrive.

    The pipeline is played in process, with these rows in place of its sources, first by event time and then in `seeds`
    orders of arrival that the watermark of each source allows: rows are up to the bound late, arrive together or alone,
    a source is silent for a while, and some runs are stopped between two batches and continued. If PySpark is
    installed, half of the runs are on seven shards, without a start of Spark.

    The final result of a window is its last pane, or the sum of its changes if panes are retracted. Processing time
    stands still, so triggers that wait for processing time do not fire. Nothing is written to the sinks of the
    pipeline.

    Args:
        pipeline: A pipeline, or a collection.
        rows: The rows of each source by its name, as for `bl.Rows`. A few rows for each key and window are best.
        seeds: The number of orders.

    Raises:
        AssertionError: An order changes a final result, or two runs of the same order differ. The message has the
            first step that depends on the order, the fewest rows that show it, and a test to paste.
        UnknownName: `rows` names no source.
        PlanError: A source has no rows, or its event times are times of arrival.

    Example, with the `plays` of `bl.Collection`:
        >>> best = plays.window_into(bl.FixedWindows("1m")).group_by("user").aggregate(best=bl.max("points"))
        >>> given = [{"user": "ada", "points": 3, "at": "2026-01-31T12:00:10Z"}]
        >>> bl.testing.check_orders(best, {"plays": given}, seeds=5)
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise WrongType(f"check_orders: seeds must be a whole number of at least 1, not {seeds!r}")
    played = Played.of(pipeline, rows)
    by_time = played.by_time()
    expected = played.finals(by_time)
    if difference := played.difference(expected, played.finals(by_time)):
        raise AssertionError(impurity(difference))
    sharded = can_shard()
    if sharded and played.difference(expected, played.finals(by_time, Course(shards=SHARDS))):
        played.fail(by_time, Course(shards=SHARDS))
    told = Console(stderr=True)
    for seed in track(
        range(seeds), "orders of arrival", console=told, transient=True, disable=not told.is_terminal
    ):
        random = Random(seed)
        order = played.order(random)
        course = _course(seed, random, played.batches(order), sharded=sharded)
        if played.difference(expected, played.finals(order, course)):
            played.fail(order, course)
    for name, reason in played.unknown(expected).items():
        _LOG.warning("check_orders compared no rows of %r: %s", name, reason)


@attrs.frozen(eq=False)
class Played:
    """A pipeline with a sink for each of its stages, and the rows of its sources."""

    plan: Plan
    arrivals: Mapping[str, Arrivals]
    finality: Mapping[str, Finality]
    """The finality of each stage and sink, by name; stages are in topological order, before the sinks."""

    @classmethod
    def of(cls, pipeline: Pipeline | Collection, rows: Mapping[str, Any]) -> Played:
        """Compiles the pipeline. Raises `PlanError` or `UnknownName` if the rows do not fit its sources."""
        writes = _writes(pipeline)
        stages = compile_plan(_with(pipeline, writes)).stages
        between = {
            node.name: node for write in writes for node in inputs_first(write.node) if node.name in stages
        }
        inner = [Write(f"@{name}", Memory(), between[name]) for name in stages if name in between]
        plan = compile_plan(_with(pipeline, [*inner, *writes]))
        finality = {write.name: Finality.of(write.node) for write in [*inner, *writes]}
        return cls(plan, _arrivals(plan, rows), finality)

    def by_time(self) -> Order:
        """All rows in one batch, by event time."""
        return {name: [one.in_time] for name, one in self.arrivals.items()}

    def order(self, random: Random) -> Order:
        """Returns an order that the watermarks allow."""
        return interleaved(
            {name: one.order(random.randrange) for name, one in self.arrivals.items()}, random.randrange
        )

    def batches(self, order: Order) -> int:
        """Returns the number of batches of an order."""
        return max(map(len, order.values()))

    def finals(self, order: Order, course: Course = ONE_RUN) -> Results:
        """Plays an order, and returns the final rows of each stage and sink; None if they are not known."""
        frames = course.play(
            self.plan, {name: one.bundles(order[name]) for name, one in self.arrivals.items()}
        )
        return {
            name: None if one.unknown or one.partial(frames[name]) else one.rows(frames[name])
            for name, one in self.finality.items()
        }

    def difference(self, expected: Results, found: Results) -> Difference | None:
        """Returns the first stage or sink whose results differ; None if there is none."""
        for name, one in self.finality.items():
            by_time, other = expected[name], found[name]
            if by_time is not None and other is not None and by_time != other:
                return Difference(one.node, by_time, other)
        return None

    def differs(self, order: Order, course: Course) -> Difference | None:
        """Returns the difference between an order and the same rows by event time; None if there is none."""
        numbers = {
            name: {number for bundle in bundles for number in bundle} for name, bundles in order.items()
        }
        by_time = {
            name: [tuple(number for number in one.in_time if number in numbers[name])]
            for name, one in self.arrivals.items()
        }
        return self.difference(self.finals(by_time), self.finals(order, course))

    def unknown(self, results: Results) -> dict[str, str]:
        """For each stage or sink whose final rows are not known, the reason."""
        why = "its windows have several panes, each with a part of the rows"
        return {
            self.finality[name].node.name: self.finality[name].unknown or why
            for name, rows in results.items()
            if rows is None
        }

    def fail(self, order: Order, course: Course) -> None:
        """Raises `AssertionError` for an order that changes a final result, with the fewest rows that show it."""
        if course != ONE_RUN and self.differs(order, ONE_RUN):
            course = ONE_RUN
        least = fewest(order, lambda one: self.is_allowed(one) and self.differs(one, course) is not None)
        difference = self.differs(least, course)
        assert difference is not None
        raise AssertionError(report(difference, self.arrivals, least, str(course)))

    def is_allowed(self, order: Order) -> bool:
        """True if no row is behind the watermark of its source when it arrives."""
        return all(one.is_allowed(order[name]) for name, one in self.arrivals.items())


def _course(seed: int, random: Random, batches: int, *, sharded: bool) -> Course:
    """Chooses the way to play an order: one in ten is stopped, and half of the others are on several shards."""
    if seed % 10 == 9:
        return Course(stop=random.randrange(1, batches + 1))
    return Course(shards=SHARDS, seed=seed) if sharded and seed % 2 else ONE_RUN


def _writes(pipeline: Pipeline | Collection) -> list[Write]:
    if isinstance(pipeline, Collection):
        return [Write("result", Memory(), pipeline.node)]
    if not isinstance(pipeline, Pipeline):
        raise WrongType(f"check_orders takes a pipeline or a collection, not {pipeline!r}")
    return pipeline.written()


def _with(pipeline: Pipeline | Collection, writes: Sequence[Write]) -> Registry:
    """Returns the pipeline with these sinks only."""
    registry: Registry = attrs.evolve(pipeline.pipeline if isinstance(pipeline, Collection) else pipeline)
    registry.writes.extend(writes)
    return registry


def _arrivals(plan: Plan, rows: Mapping[str, Any]) -> dict[str, Arrivals]:
    for name in rows:
        if name not in plan.sources:
            known = f"the sources are {listed(plan.sources)}{nearest(name, plan.sources)}"
            raise UnknownName(f"check_orders: rows={{...}} names {name!r}; {known}")
    for name in plan.sources:
        if name not in rows:
            raise PlanError("check_orders: rows={...} has no rows for this source", step=name)
    return {
        name: Arrivals.of(source, Rows(rows[name], schema=source.raw).frame)
        for name, source in plan.sources.items()
    }
