"""The pipeline: where collections begin, and what is done with all that was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from beamlike.api.collection import Collection
from beamlike.api.columns import with_columns
from beamlike.api.html import pipeline_html
from beamlike.api.other_names import PIPELINE, missing, public_names
from beamlike.io.refreshed import Refreshed
from beamlike.logical.names import require_named
from beamlike.logical.registry import Registry
from beamlike.logical.sources import readings_node, source_node
from stages.strategies.base import WatermarkStrategy
from windowing.time import Duration

if TYPE_CHECKING:
    from beamlike.io.base import Source
    from beamlike.observe.charts.figure import Picture
    from beamlike.plan.model import Plan


class Runner(Protocol):
    """What carries a plan out."""

    def run(self, plan: Plan) -> Any:
        """Runs the plan to the end of its input, or begins to; the result says what happened."""


@attrs.define(eq=False)
class Pipeline(Registry):
    """A graph of collections from sources to sinks, declared step by step and run by a runner.

    Every source, step and sink has a name of its own; steps that are given none get one that is derived from
    where they stand, such as `mobile.filter`. `name` is that of the pipeline, for records, sinks and pictures.

    `on_error` says what becomes of a row that a source or step cannot use: it is set aside as one of its
    `"dead_letters"`, or the run is to `"fail"`. `max_dead_letters` fails the run when there are more of them in all:
    a count, or as a float a share of the rows that were read, when these are a thousand or all. Without it, a source
    or step fails the run that could use none of its first thousand rows, or of fewer at the end, but at least two. It
    is looked at after each batch. Raises `PlanError` for a name or a choice that cannot be.

    Example:
        >>> p = bl.Pipeline("plays", max_dead_letters=0.01)
        >>> p.read("scores", bl.Rows([{"points": 3}, {"points": 5}]))
        <Collection 'scores': points Int64>
    """

    if not TYPE_CHECKING:  # for a type checker, an attribute that is not declared stays an error

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError` with what there is here for a name of another library."""
            if name.startswith("_"):
                raise AttributeError(name)
            raise missing(self, "a pipeline", name, PIPELINE, public_names(type(self)))

    def read(
        self,
        name: str,
        source: Source = None,  # type: ignore[assignment]  # an error says more
        *,
        timestamp: str | None = None,
        watermark: WatermarkStrategy | None = None,
        timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None,
        max_future: Duration | None = "1d",
    ) -> Collection:
        """The rows of a source, as a collection in the global window. `name` is that of the source.

        `timestamp` names the column with the event time: a Datetime or Date (in UTC where it has no zone), text in
        ISO 8601, or a number since 1970 in `timestamp_unit` ("s", "ms", "us" or "ns"). Rows in which it is null or
        cannot be read go to `dead_letters()`. `watermark` says how far the source is complete; it is left out for a
        source that says so itself, as a `TestStream` does. With `bl.IngressTimestamps()` there is no `timestamp`.

        A time more than `max_future`, a duration, after processing time, which would drive the watermark past
        everything, is a dead letter, too, unless that is None. It does not matter for test streams, whose processing
        time is their own.

        Without `timestamp` and `watermark`, rows have no event time until a later `with_watermark(...)`, as where
        they must be parsed first. Raises `PlanError` where a column is not there or cannot be an event time, and
        where the name is taken.

        Example:
            >>> scores = bl.Rows([{"points": 3, "at": 10}, {"points": 5, "at": 70}])
            >>> bound = bl.BoundedOutOfOrderness("5s")
            >>> plays = bl.Pipeline("p").read("plays", scores, timestamp="at", timestamp_unit="s", watermark=bound)
            >>> plays.collect()["event_time"].dt.strftime("%H:%M:%S").to_list()
            ['00:00:10', '00:01:10']
        """
        require_named(name, source, "read", "bl.JSONLines('plays')")
        self.new_name(name, "")
        if isinstance(source, Refreshed):
            rows = readings_node(name, source, timestamp, timestamp_unit, watermark)
            self.register(name, "a source")
            self.register(rows.name)
            return Collection(self, rows)
        node = source_node(name, with_columns(source), timestamp, timestamp_unit, watermark, max_future)
        self.register(name, "a source")
        return Collection(self, node)

    def plan(self) -> Plan:
        """The plan: what runners run. It is a pure function of what has been declared.

        Raises `PlanError` where nothing is written to a sink, and for what only the whole shows to be wrong.

        Example, with the `plays` of `Collection`:
            >>> minutes = plays.window_into(bl.FixedWindows("1m"))
            >>> minutes.aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
            <Collection 'counts': n Int64>
            >>> list(p.plan().stages)
            ['counts']
        """
        from beamlike.plan.compiler import compile_plan

        return compile_plan(self)

    def explain(self) -> str:
        """The plan as text, which is the same each time: stages, windowings, levels and Spark's operators.

        Raises what `plan` raises.

        Example, with the `plays` of `Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> print(p.explain().splitlines()[2])
            │  └─ plays  Rows(<3 rows>, rows_per_batch=1)
        """
        from beamlike.plan.explain import explain

        return explain(self.plan())

    def plot(self) -> Picture:
        """The plan as a picture, which a notebook shows and `.save(path)` writes.

        Needs matplotlib, from the extra `report`: `ModuleNotFoundError` says so. Raises what `plan` raises.

        Example, with the `plays` of `Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> p.plot().save("plan.svg")
        """
        from beamlike.observe.charts.plot import plot

        return plot(self.plan())

    def _repr_html_(self) -> str:
        return pipeline_html(self.name, lambda: self.plot().svg(f"pipeline-{self.name}"), self.explain)

    def run(self, runner: Runner | None = None) -> Any:
        """Runs the pipeline: in this process, unless another runner is given. Gives what the runner gives.

        Raises `PlanError` before anything is run; `RunError` or its kinds, `StepError` and what a user's function
        raises where a run fails; and `TypeError` for what is no runner.

        Example, with the `plays` of `Collection`:
            >>> plays.write("out", bl.Callback(lambda frame, batch: print(batch, frame["user"].to_list())))
            <Collection 'plays': user String, points Int64, at String>
            >>> run = p.run(bl.LocalRunner(chunk_rows=1000))
            0 ['ada']
            1 ['bob']
            2 ['ada']
        """
        if runner is None:
            from beamlike.local.runner import LocalRunner

            runner = LocalRunner()
        if isinstance(runner, type) or not hasattr(runner, "run"):
            raise TypeError(
                f"run takes a runner such as bl.LocalRunner() or bl.SparkRunner(checkpoint=...), not {runner!r}"
            )
        return runner.run(self.plan())
