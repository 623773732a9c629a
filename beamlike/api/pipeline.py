"""The pipeline: sources, and the plan and run of all declarations; and its collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import attrs

from beamlike.api.collection import Steps
from beamlike.api.html import pipeline_html
from beamlike.api.other_names import PIPELINE, missing, public_names
from beamlike.api.recorded import recorded, records
from beamlike.errors import WrongType, naming_step
from beamlike.io.refreshed import Refreshed
from beamlike.io.sources import SchemaFromSpark
from beamlike.logical.names import require_named
from beamlike.logical.registry import Registry
from beamlike.logical.sources import readings_node, source_node
from beamlike.rows.event_time import TimeUnit
from beamlike.system.arguments import answering
from stages.strategies.base import WatermarkStrategy
from windowing.time import Duration

if TYPE_CHECKING:
    from beamlike.io.base import Source
    from beamlike.local.run import LocalRun
    from beamlike.observe.charts.figure import Picture
    from beamlike.plan.model import Plan


RunT = TypeVar("RunT", covariant=True)
"""The class of the runs that a runner returns."""


class Runner(Protocol[RunT]):
    """A runner, which executes a plan."""

    def run(self, plan: Plan) -> RunT:
        """Runs a plan to the end of its input, or starts it. Returns the run."""


@answering
@records
@attrs.frozen(eq=False, repr=False)
class Collection(Steps):
    """Rows with a schema, an event time and a windowing, from a source or a step.

    A collection is a handle on a `node` of the declarations in its `pipeline`. Each method returns a new collection and
    changes nothing, so several steps may begin with the same collection. For a declaration that cannot run, such as a
    column that does not exist or a type that does not fit, a method raises `PlanError` with the name of the step.

    Example:
        >>> scores = [
        ...     {"user": "ada", "points": 3, "at": "2026-01-31T12:00:10Z"},
        ...     {"user": "bob", "points": 5, "at": "2026-01-31T12:00:40Z"},
        ...     {"user": "ada", "points": 4, "at": "2026-01-31T12:01:20Z"},
        ... ]
        >>> p = bl.Pipeline("scores")
        >>> rows = bl.Rows(scores, rows_per_batch=1)
        >>> plays = p.read("plays", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
        >>> plays
        <Collection 'plays': user String, points Int64, at String>
        >>> minutes = plays.window_into(bl.FixedWindows("1m"))
        >>> minutes.aggregate(points=bl.sum("points")).collect()["points"].to_list()
        [8, 4]

    Examples of other methods use this `plays`.
    """

    if TYPE_CHECKING:

        @property
        def pipeline(self) -> Pipeline:
            """The pipeline of the collection."""


@answering
@attrs.define(eq=False)
class Pipeline(Registry):
    """A graph of collections from sources to sinks, declared step by step and executed by a runner.

    Every source, step and sink has a unique name; a step without a given name has a derived one, such as
    `mobile.filter`.

    Args:
        name: The name of the pipeline in records, sinks and pictures.
        on_error: "dead_letters" (the default) collects rows that a source or step cannot use; "fail" fails the run at
            the first such row.
        max_dead_letters: The limit of dead letters over the whole run: a count, or as a float a share of the rows read,
            checked from 1,000 rows on or at the end. Above it the run fails. Without it, the run fails if a source or
            step could use none of its first 1,000 rows; or at the end, if it received at least two rows and could use
            none. Limits are checked after each batch.

    Raises:
        PlanError: The name or a choice is invalid.

    Example:
        >>> p = bl.Pipeline("plays", max_dead_letters=0.01)
        >>> p.read("scores", bl.Rows([{"points": 3}, {"points": 5}]))
        <Collection 'scores': points Int64>
    """

    if not TYPE_CHECKING:  # hidden from type checkers, so that they still report unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError`. For a method name of another library, the message names the method to use
            instead.
            """
            if name.startswith("_"):
                raise AttributeError(name)
            raise missing(self, "a pipeline", name, PIPELINE, public_names(type(self)))

    @recorded
    def read(
        self,
        name: str,
        source: Source = None,  # type: ignore[assignment]  # an error says more
        *,
        timestamp: str | None = None,
        watermark: WatermarkStrategy | None = None,
        timestamp_unit: TimeUnit | None = None,
        max_future: Duration | None = "1d",
    ) -> Collection:
        """Reads a source, and returns its rows as a collection in the global window.

        Without `timestamp` and `watermark`, rows have no event time until a later `with_watermark(...)`, for example
        because they must be parsed first.

        Args:
            name: The name of the source.
            source: The source, such as `bl.JSONLines("plays")`.
            timestamp: The column with the event time: a Datetime or Date (in UTC if it has no zone), text in ISO 8601,
                or a number since 1970. Rows in which it is null or unreadable go to `dead_letters()`.
                `bl.IngressTimestamps()` needs none.
            watermark: The strategy that estimates how complete the source is. A source that announces its own
                watermark, such as a `TestStream`, needs none.
            timestamp_unit: The unit of numbers in `timestamp`: "s", "ms", "us" or "ns".
            max_future: A duration. A row whose time is further ahead of processing time than this becomes a dead
                letter, as it would move the watermark past all other rows. None accepts such rows. Test streams ignore
                it, because they set processing time themselves.

        Raises:
            PlanError: A column does not exist or cannot be an event time, or the name is taken.

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
            node = readings_node(name, source, timestamp, timestamp_unit, watermark)
            self.register(node.name)
        else:
            with naming_step(name):
                source = _with_known_columns(source)
            node = source_node(
                name, source, timestamp, timestamp_unit, watermark=watermark, max_future=max_future
            )
        self.register(name, "a source")
        return Collection(self, node)

    def plan(self) -> Plan:
        """Compiles the declarations to a plan, which runners execute. Equal declarations give equal plans.

        Raises:
            PlanError: Nothing is written to a sink, or the declarations do not fit together.

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
        """Describes the plan as text: stages, windowings, levels and Spark's operators. Equal plans have equal texts.

        Raises the errors of `plan`.

        Example, with the `plays` of `Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> print(p.explain().splitlines()[2])
            │  └─ plays  Rows(<3 rows>, rows_per_batch=1)
        """
        from beamlike.plan.explain import explain

        return explain(self.plan())

    def to_yaml(self) -> str:
        """Returns the text of a file that declares the same pipeline, for `bl.from_yaml` and `beamlike run`.

        Functions are written as `module:name`. PyYAML is needed: `pip install 'beamlike[yaml]'`.

        Raises:
            PlanError: A step has a value that a file cannot have, such as a lambda.

        Example, with the `plays` of `Collection`:
            >>> plays.filter(bl.col("points") > 3).write("out", bl.Parquet("out"))
            <Collection 'plays.filter': user String, points Int64, at String>
            >>> p.to_yaml().splitlines()[-4].strip()
            '- {filter: points > 3}'
        """
        from beamlike.api.as_file import to_yaml

        return to_yaml(self)

    def plot(self) -> Picture:
        """Draws the plan. Notebooks show the picture, and its `.save(path)` writes it.

        Raises the errors of `plan`, and `ModuleNotFoundError` without matplotlib, which the extra `report` installs.

        Example, with the `plays` of `Collection`:
            >>> plays.write("out", bl.Memory())
            <Collection 'plays': user String, points Int64, at String>
            >>> p.plot().save("plan.svg")
        """
        from beamlike.observe.charts.plot import plot

        return plot(self.plan())

    def _repr_html_(self) -> str:
        return pipeline_html(self.name, lambda: self.plot().svg(f"pipeline-{self.name}"), self.explain)

    @overload
    def run(self, runner: None = None) -> LocalRun: ...

    @overload
    def run(self, runner: Runner[RunT]) -> RunT: ...

    @overload
    def run(self, runner: Runner[RunT] | None) -> RunT | LocalRun: ...

    def run(self, runner: Runner[Any] | None = None) -> Any:
        """Runs the pipeline.

        Args:
            runner: The runner; by default `bl.LocalRunner()`, in this process.

        Returns:
            The result of `runner.run`.

        Raises:
            PlanError: The declarations cannot run; nothing was run.
            RunError: The run failed; also its subclasses, `StepError`, and what a user's function raises.
            TypeError: `runner` is no runner.

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
            raise WrongType(
                f"run takes a runner such as bl.LocalRunner() or bl.SparkRunner(checkpoint=...), not {runner!r}"
            )
        return runner.run(self.plan())


def _with_known_columns(source: Any) -> Any:
    """Returns the source with a schema. A `SparkSource` without a declared schema starts Spark to infer one."""
    if isinstance(source, type) or not isinstance(source, SchemaFromSpark) or not source.is_open:
        return source
    from beamlike.spark.query.ingest import schema_of
    from beamlike.spark.session.session import open_to_ask

    return source.with_schema(schema_of(source.read_by_spark, open_to_ask()))
