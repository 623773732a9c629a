"""The pipeline: where collections begin, and what is done with all that was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs

from beamlike.api.collection import Collection
from beamlike.api.columns import with_columns
from beamlike.api.html import pipeline_html
from beamlike.logical.registry import Registry
from beamlike.logical.sources import source_node
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
    where they stand, such as `mobile.filter`.

    `on_error` says what becomes of a row that a source or step cannot use: it is set aside as one of its
    `"dead_letters"`, or the run is to `"fail"`. `max_dead_letters` fails the run when there are more of them in all: a
    count, or as a float a share of the rows that were read, when these are a thousand or all. Without it, a source or
    step fails the run that could use none of its first thousand rows, or of fewer at the end, but at least two. It is
    looked at after each batch.
    """

    def read(
        self,
        name: str,
        source: Source,
        *,
        timestamp: str | None = None,
        watermark: WatermarkStrategy | None = None,
        timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None,
        max_future: Duration | None = "1d",
    ) -> Collection:
        """The rows of a source, as a collection in the global window.

        `timestamp` names the column with the event time: a Datetime or Date (in UTC where it has no zone),
        text in ISO 8601, or a number since 1970 in `timestamp_unit`. Rows in which it is null or cannot be
        read go to `dead_letters()`. `watermark` says how far the source is complete; it is left out for a
        source that says so itself, as a `TestStream` does. With `bl.IngressTimestamps()` there is no `timestamp`.

        A time more than `max_future` after processing time, which would drive the watermark past everything, is a dead
        letter, too, unless that is None. It does not matter for test streams, whose processing time is their own.

        Without both, rows have no event time until a later `with_watermark(...)`, as where they must be parsed first.
        """
        self.new_name(name, "")
        node = source_node(name, with_columns(source), timestamp, timestamp_unit, watermark, max_future)
        self.register(name, "a source")
        return Collection(self, node)

    def plan(self) -> Plan:
        """What runners run: a pure function of what has been declared."""
        from beamlike.plan.compiler import compile_plan

        return compile_plan(self)

    def explain(self) -> str:
        """The plan as text, which is the same each time: stages, windowings, levels and Spark's operators."""
        from beamlike.plan.explain import explain

        return explain(self.plan())

    def plot(self) -> Picture:
        """The plan as a picture, which a notebook shows and `.save(path)` writes. Needs the extra `report`."""
        from beamlike.observe.charts.plot import plot

        return plot(self.plan())

    def _repr_html_(self) -> str:
        return pipeline_html(self.name, lambda: self.plot().svg(f"pipeline-{self.name}"), self.explain)

    def run(self, runner: Runner | None = None) -> Any:
        """Runs the pipeline: in this process, unless another runner is given. Gives what the runner gives."""
        if runner is None:
            from beamlike.local.runner import LocalRunner

            runner = LocalRunner()
        if isinstance(runner, type) or not hasattr(runner, "run"):
            raise TypeError(
                f"run takes a runner such as bl.LocalRunner() or bl.SparkRunner(checkpoint=...), not {runner!r}"
            )
        return runner.run(self.plan())
