"""Collections: what users build pipelines from. Each call adds one frozen node; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import narwhals as nw
import polars as pl

from beamlike.api.grouped import Grouped
from beamlike.api.html import collection_html
from beamlike.errors import PlanError, WrongType
from beamlike.logical.dead_letters import dead_letters
from beamlike.logical.event_time import event_time_column, require_event_time, require_no_windows
from beamlike.logical.grouping import late, require_keys
from beamlike.logical.node import Node
from beamlike.logical.origins import Configure, Read
from beamlike.logical.registry import Registry
from beamlike.logical.reread import reread
from beamlike.logical.windowing import rewindowed
from beamlike.rows.dtypes import SchemaLike, as_schema, schema_text
from beamlike.steps.base import Filter, Row, Select, Step, WindowInto, WithColumns
from beamlike.steps.columns import casts, renamed, without
from beamlike.steps.infer import batches_schema, expressions, outputs, predicates, run_empty
from beamlike.steps.python import FlatMap, Map, MapBatches, require_arrow
from beamlike.steps.timestamps import WithTimestamps, not_negative
from stages.aggregates.builtin import Aggregate
from windowing.columns import PANE_COLUMNS
from windowing.windowing import Windowing

if TYPE_CHECKING:
    import pyarrow as pa

    from beamlike.io.base import Sink
    from stages.strategies.base import WatermarkStrategy
    from windowing.panes import Accumulation
    from windowing.time import Duration
    from windowing.timestamp_combiners import TimestampCombiner, TimestampOf
    from windowing.triggers.base import Trigger
    from windowing.windows import WindowFn

IntoColumn = str | nw.Expr


@attrs.frozen(eq=False)
class Collection:
    """Rows with a schema, an event time and a windowing, that come from a source or from a step.

    It is a handle on a `node` of what is declared in its `pipeline`.
    """

    pipeline: Registry = attrs.field(repr=False)
    node: Node

    @property
    def name(self) -> str:
        """That of the source or step that makes it."""
        return self.node.name

    @property
    def schema(self) -> pl.Schema:
        """The user's columns and their polars types."""
        return self.node.schema

    @property
    def windowing(self) -> Windowing:
        """Into which windows its rows go, and when a grouping of them emits."""
        return self.node.windowing

    def __repr__(self) -> str:
        return f"<Collection {self.name!r}: {schema_text(self.schema)}>"

    def _repr_html_(self) -> str:
        node, title = self.node, f"Collection {self.name!r} of pipeline {self.pipeline.name!r}"
        inputs = [before.name for before in node.inputs]
        return collection_html(title, node.origin, inputs, node.schema, node.windowing)

    def named(self, name: str) -> Collection:
        """The same, with this name for its step: names appear in errors, metrics, plans and state.

        What has been made of it before, a sink among that, is made of the step of this name, too.
        """
        node = self.node
        if isinstance(node.origin, Read):
            raise PlanError(
                "the name of a source is given in read(...) or with_watermark(...)", step=self.name
            )
        origin = attrs.evolve(node.origin, name=name) if isinstance(node.origin, Step) else node.origin
        after: Node = attrs.evolve(node, name=name, base=name, origin=origin)
        self.pipeline.rename(node, after)
        return Collection(self.pipeline, after)

    def filter(self, *conditions: IntoColumn, name: str | None = None) -> Collection:
        """The rows for which all conditions are true."""
        name, base = self._new_name("filter", name)
        step = Filter(name, predicates(self.node.shape, conditions, step=name))
        # Who looks at what sort of pane a row is has chosen which to take of those that repeat each other.
        chosen = not step.needs(frozenset()).isdisjoint(PANE_COLUMNS)
        return self._step(step, base, repeats=self.node.repeats and not chosen)

    def select(self, *columns: IntoColumn, **named: Any) -> Collection:
        """Rows of only these columns: names or expressions. A keyword names its column; see also `named`."""
        step, base = self._new_name("select")
        return self._select(expressions(self.node.shape, columns, named, step=step), step, base)

    def drop(self, *columns: str) -> Collection:
        """The rows without these columns. Event time, window and pane stay: they are no columns of the user's."""
        step, base = self._new_name("drop")
        left = without(self.schema, columns, step)
        return self._select(expressions(self.node.shape, left, {}, step=step), step, base)

    def rename(self, names: Mapping[str, str]) -> Collection:
        """The rows with columns renamed: `rename({"old": "new"})`; the others stay, and all keep their places."""
        step, base = self._new_name("rename")
        chosen = renamed(self.schema, names, step)
        return self._select(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def with_columns(self, *columns: IntoColumn, **named: Any) -> Collection:
        """The rows with these columns added or replaced. A keyword names its column; see also `named`."""
        step, base = self._new_name("with_columns")
        return self._with_columns(expressions(self.node.shape, columns, named, step=step), step, base)

    def cast(self, types: SchemaLike) -> Collection:
        """The rows with columns of other types: `cast({"score": float})`. See `map` for how types are written.

        A row with a value that its new type cannot hold goes to `dead_letters()`.
        """
        step, base = self._new_name("cast")
        chosen = casts(self.schema, types, step)
        return self._with_columns(expressions(self.node.shape, chosen, {}, step=step), step, base)

    def map(
        self, fn: Callable[[Row], Row], schema: SchemaLike | None = None, *, name: str | None = None
    ) -> Collection:
        """`fn` gives a dict for the dict of each row; `schema` has its columns and types, if they change.

        Types are Python's (`{"user": str, "score": float}`), polars' or narwhals'. Rows keep their time. A row that
        `fn` raises on, or for which it gives something else, goes to `dead_letters()`.
        """
        name, base = self._new_name("map", name)
        return self._step(Map(name, *self._function(fn, schema, name)), base)

    def flat_map(
        self, fn: Callable[[Row], Iterable[Row]], schema: SchemaLike | None = None, *, name: str | None = None
    ) -> Collection:
        """`fn` gives any number of dicts for the dict of each row; they keep its event time and window.

        A row that `fn` raises on, or for which it gives something else, goes to `dead_letters()`, with all its dicts.
        """
        name, base = self._new_name("flat_map", name)
        return self._step(FlatMap(name, *self._function(fn, schema, name)), base)

    def map_batches(
        self, fn: Callable[[pa.Table], pa.Table], schema: SchemaLike | None = None, *, name: str | None = None
    ) -> Collection:
        """`fn` gives an Arrow table for an Arrow table of the same length, row for row.

        Without `schema`, `fn` is called with an empty table to find it. Where it raises, or gives something else, all
        rows of that batch go to `dead_letters()`.
        """
        name, base = self._new_name("map_batches", name)
        require_arrow(self.schema, name)
        step = MapBatches(name, *self._function(fn, schema, name))
        if schema is None:
            step = attrs.evolve(step, schema=batches_schema(self.node.shape, step))
        return self._step(step, base, infer=False)

    def with_timestamps(
        self,
        column: str,
        *,
        timestamp_unit: str | None = None,
        allowed_skew: Duration = "0s",
        name: str | None = None,
    ) -> Collection:
        """The rows with the event time that is in this column, which every row must have.

        An element may move forward, and back by `allowed_skew`: the watermark from here on is so much behind. One that
        moves back further goes to `dead_letters()`, as it could be late through no fault of its source.
        """
        name, base = self._new_name("with_timestamps", name)
        require_event_time(self.node, name)
        require_no_windows(self.node.shape, name)
        event_time_column(self.schema, column, timestamp_unit, name)
        skew = not_negative("allowed_skew", allowed_skew, name)
        return self._step(WithTimestamps(name, column, timestamp_unit, skew), base)

    def with_watermark(
        self,
        watermark: WatermarkStrategy,
        timestamp: str | None = None,
        timestamp_unit: str | None = None,
        name: str | None = None,
    ) -> Collection:
        """The rows as those of a source of their own, with this watermark, as after a parse.

        `timestamp` and `timestamp_unit` say where the event time is, as in `read`; without, rows keep the one that
        they have. Between the source and here are only steps that look at each row for itself, and no windows. What
        of the source is used elsewhere, too, is read twice.
        """
        name, base = self._new_name("with_watermark", name)
        again = reread(self.node, self.pipeline.latest, watermark, timestamp, timestamp_unit, name, base)
        return self._after(again)

    def window_into(
        self,
        windows: WindowFn | None = None,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation | str | None = None,
        timestamp_combiner: TimestampCombiner | TimestampOf | str | None = None,
        allowed_lateness: Duration | None = None,
        on_time: str | None = None,
        closing: str | None = None,
        allow_data_loss: bool | None = None,
        allow_repeats: bool | None = None,
        name: str | None = None,
    ) -> Collection:
        """The rows in these windows; what is not given stays as it is, and allowed lateness never shrinks.

        Without `windows` each row stays in the window that it is in. `on_time` and `closing` say whether the pane
        at the end of a window, and the last one, come even if they have nothing new: "always" or "if_non_empty".
        `allow_data_loss` takes a trigger that may drop elements; `allow_repeats` lets a later grouping count
        accumulating panes each time that they come.
        """
        name, base = self._new_name("window_into", name)
        require_event_time(self.node, name)
        changes = {
            "windows": windows,
            "trigger": trigger,
            "accumulation": accumulation,
            "timestamp_combiner": timestamp_combiner,
            "allowed_lateness": allowed_lateness,
            "on_time": on_time,
            "closing": closing,
            "allow_data_loss": allow_data_loss,
            "allow_repeats": allow_repeats,
        }
        windowing = rewindowed(self.node, changes, name)
        if windows is None:
            return self._next(name=name, base=base, origin=Configure(), windowing=windowing)
        shape = attrs.evolve(self.node.shape, system=self.node.shape.with_windows(windows))
        origin = WindowInto(name, windowing)
        return self._next(name=name, base=base, origin=origin, shape=shape, windowing=windowing, merged=False)

    def group_by(self, *keys: str, name: str | None = None) -> Grouped[Collection]:
        """Groups by these columns and by window: `.aggregate(...)` on the result says what to compute."""
        step, _ = self._new_name("aggregate", name)
        require_event_time(self.node, step)
        require_keys(self.schema, keys, step)
        return self._grouped(keys, name)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> Collection:
        """Aggregates over all rows of each window: `aggregate(plays=bl.count(), mean=bl.mean("length"))`."""
        return self._grouped((), None).aggregate(*unnamed, **aggregates)

    def dead_letters(self, *, name: str | None = None) -> Collection:
        """The rows that this source or step could not use: Strings `step`, `error`, `row` (its columns as JSON).

        Of a source (made by `read` or `with_watermark`): what its reader could not read, rows without a readable event
        time, and those that a step before `with_watermark` could not use. Of a step: rows that its function raised on,
        for which it gave something that does not fit, or for which an expression fails; the same of windows of your
        own, and of a grouping with a `CombineFn`. What no collection takes goes to a folder: beside the checkpoint, or
        `run.dead_letters` in process.
        """
        name, base = self._new_name("dead_letters", name)
        return self._after(dead_letters(self.node, name, base))

    def late(self, name: str | None = None) -> Collection:
        """The elements that this grouping dropped: the columns of its input, and a String column `reason`.

        The reason is "late" where the watermark had passed the window's end and the allowed lateness, and "closed"
        where the trigger had finished; it is "no window" for elements in gaps between windows, whose bounds are null.
        Each of the others is in the window that dropped it, and so would be dropped again:
        to group them, give them windows that are still open, such as `bl.GlobalWindows()` with a trigger.
        """
        name, base = self._new_name("late", name)
        return self._after(late(self.node, name, base))

    def head(self, n: int = 10, *, input_rows: int | None = 10_000) -> pl.DataFrame:
        """The first `n` rows, as a sink gets them, of a run in process on a part of the input; see `collect`."""
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "head", input_rows=input_rows, enough=n)

    def collect(self, *, input_rows: int | None = 100_000) -> pl.DataFrame:
        """The rows, as a sink gets them, of a run in process on the first `input_rows` rows of each source (None: all).

        Windows end where that ends; the log says so if there is more. Test streams are played whole. Nothing is
        written, recorded or declared: the pipeline stays as it is, and dead letters are only counted and logged.
        """
        from beamlike.api.sampling import sample

        return sample(self.pipeline, self.node, "collect", input_rows=input_rows)

    def write(self, name: str, sink: Sink) -> Collection:
        """Writes the rows to the sink, under this name; the collection again, for more steps."""
        self.pipeline.add_sink(name, sink, self.node)
        return self

    def _select(self, chosen: tuple[nw.Expr, ...], step: str, base: str) -> Collection:
        return self._step(Select(step, chosen, self._names(chosen, step), self.node.shape.system), base)

    def _with_columns(self, chosen: tuple[nw.Expr, ...], step: str, base: str) -> Collection:
        return self._step(WithColumns(step, chosen, self._names(chosen, step)), base)

    def _names(self, chosen: tuple[nw.Expr, ...], step: str) -> tuple[tuple[str, ...], ...]:
        """The columns that each expression gives."""
        return tuple(tuple(schema) for schema in outputs(self.node.shape, chosen, step=step))

    def _new_name(self, kind: str, name: str | None = None) -> tuple[str, str]:
        """The step's name, and the base for names after it, which a given name begins anew."""
        new = self.pipeline.new_name(name, f"{self.node.base}.{kind}")
        return new, self.node.base if name is None else new

    def _function(
        self, fn: Callable[..., Any], schema: SchemaLike | None, step: str
    ) -> tuple[Callable[..., Any], tuple[str, ...], pl.Schema]:
        if not callable(fn):
            raise WrongType(f"expected a function, got {fn!r}", step=step)
        declared = self.schema if schema is None else as_schema(schema, step)
        if not declared:
            raise PlanError("schema= has no columns; give at least one", step=step)
        return fn, tuple(self.schema), declared

    def _step(self, step: Step, base: str, *, infer: bool = True, **changes: Any) -> Collection:
        user = step.schema if isinstance(step, Map | FlatMap | MapBatches) else self.schema
        if infer:
            user = run_empty(self.node.shape, step)
        shape = attrs.evolve(self.node.shape, user=user)
        return self._next(name=step.name, base=base, origin=step, shape=shape, **changes)

    def _grouped(self, keys: tuple[str, ...], name: str | None) -> Grouped[Collection]:
        return Grouped(self.pipeline, self.node, keys, name, self._after)

    def _next(self, **changes: Any) -> Collection:
        """What a step makes of this one."""
        return self._after(attrs.evolve(self.node, inputs=(self.node,), **changes))

    def _after(self, node: Node) -> Collection:
        """A new collection; its name is taken from now on."""
        self.pipeline.register(node.name)
        return Collection(self.pipeline, node)
