"""The pipeline: where collections begin and end, and who knows which names are taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import attrs

from beamlike.api.collection import Collection
from beamlike.api.html import pipeline_html
from beamlike.errors import DuplicateName, WrongType
from beamlike.io.base import WrittenBySpark, WrittenInFrames
from beamlike.logical import checks
from beamlike.logical.origins import read
from beamlike.logical.overlaps import require_own_folder
from beamlike.logical.row_key import fitted
from beamlike.rows.dead_letters import OnError
from beamlike.steps.infer import Shape
from stages.strategies.base import WatermarkStrategy
from windowing.time import Duration
from windowing.windowing import Windowing

if TYPE_CHECKING:
    from beamlike.io.base import Sink, Source
    from beamlike.observe.charts.figure import Picture
    from beamlike.plan.compiler import Plan


class Runner(Protocol):
    """What carries a plan out."""

    def run(self, plan: Plan) -> Any:
        """Runs the plan to the end of its input, or begins to; the result says what happened."""


@attrs.frozen
class Write:
    """A collection that goes to a sink."""

    name: str
    sink: Sink
    collection: Collection


@attrs.define(eq=False)
class Pipeline:
    """A graph of collections from sources to sinks, declared step by step and run by a runner.

    Every source, step and sink has a name of its own; steps that are given none get one that is derived from
    where they stand, such as `mobile.filter`.

    `on_error` says what becomes of a row that a source or step cannot use: it is set aside as one of its
    `"dead_letters"`, or the run is to `"fail"`. `max_dead_letters` fails the run when there are more of them in all: a
    count, or as a float a share of the rows that were read, when these are a thousand or all. Without it, a source or
    step fails the run that could use none of its first thousand rows, or of fewer at the end, but at least two. It is
    looked at after each batch.
    """

    name: str = attrs.field()
    on_error: OnError = attrs.field(default="dead_letters", kw_only=True)
    max_dead_letters: int | float | None = attrs.field(default=None, kw_only=True)
    writes: list[Write] = attrs.field(factory=list, init=False, repr=False)
    _names: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _renamed: dict[Collection, Collection] = attrs.field(factory=dict, init=False, repr=False)

    @name.validator
    def _is_a_name(self, attribute: attrs.Attribute[str], value: object) -> None:
        checks.require_name(value, "pipeline")

    @on_error.validator
    def _is_a_choice(self, attribute: attrs.Attribute[OnError], value: object) -> None:
        checks.require_choice("on_error", value, get_args(OnError), f"pipeline {self.name!r}")

    @max_dead_letters.validator
    def _is_a_limit(self, attribute: attrs.Attribute[Any], value: object) -> None:
        checks.require_limit(value, self.on_error, f"pipeline {self.name!r}")

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
        schema = checks.require_source(source, name)
        if timestamp is not None and timestamp in schema:
            source = source.for_event_time(timestamp)
            schema = checks.require_source(source, name)
        origin = read(source, schema, timestamp, timestamp_unit, watermark, name, max_future)
        self.register(name, "a source")
        return Collection(
            self,
            name,
            origin,
            inputs=(),
            shape=Shape(schema, origin.system),
            windowing=Windowing(),
            base=name,
            bounded=bool(source.bounded),
        )

    def add_sink(self, name: str, sink: Sink, collection: Collection) -> None:
        """What `collection.write` calls."""
        self.new_name(name, "")
        if isinstance(sink, type) or not isinstance(sink, WrittenInFrames | WrittenBySpark):
            raise WrongType(f"expected a sink such as bl.Parquet('out/averages'), got {sink!r}", step=name)
        require_own_folder(sink, {write.name: write.sink for write in self.writes}, name)
        sink = fitted(sink, collection, name)
        self.register(name, "a sink")
        self.writes.append(Write(name, sink, collection))

    def new_name(self, name: str | None, derived: str) -> str:
        """A name that is free: the given one, else the derived one, with a number where that is taken."""
        if name is not None:
            checks.require_name(name, "step")
            if name in self._names:
                by = f"by {self._names[name]}"
                raise DuplicateName(
                    f"the name is taken in pipeline {self.name!r}, {by}; give another", step=name
                )
            return name
        number, free = 2, derived
        while free in self._names:
            number, free = number + 1, f"{derived}_{number}"
        return free

    def register(self, name: str, by: str = "a step") -> None:
        """The name is taken from now on, by something of this kind."""
        self._names[name] = by

    def rename(self, before: Collection, after: Collection) -> None:
        """A step gives up its name for another: `after` takes its place, also where it has been used already."""
        self.new_name(after.name, "")
        latest = self.latest(before)
        self.register(after.name, self._names.pop(latest.name, "a step"))
        self._renamed[latest] = after

    def latest(self, collection: Collection) -> Collection:
        """The collection as it is called now."""
        while collection in self._renamed:
            collection = self._renamed[collection]
        return collection

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
