"""A collection that is grouped: what is to be computed of each group comes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from beamlike.api.other_names import GROUPED, missing, public_names
from beamlike.logical.batches import batched, run_up
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped
from beamlike.logical.into_batches import collected
from beamlike.logical.node import Node
from beamlike.logical.process import processed
from beamlike.logical.registry import Registry
from beamlike.rows.dtypes import SchemaLike
from stages.aggregates.base import Aggregate
from stages.process.batches import Function
from stages.process.cumulative import Previous
from stages.process.declarations import Process, Timer
from stages.process.keyed import Order
from windowing.time import Duration

CollectionT = TypeVar("CollectionT")
"""The class of collections, which is made of nodes and so comes after this one."""


@attrs.frozen(eq=False)
class Grouped(Generic[CollectionT]):
    """A collection grouped by keys, waiting for its aggregates."""

    pipeline: Registry = attrs.field(repr=False)
    node: Node
    keys: tuple[str, ...]
    name: str | None
    _collection: Callable[[Node], CollectionT] = attrs.field(repr=False)

    if not TYPE_CHECKING:  # for a type checker, an attribute that is not declared stays an error

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError` with what there is here for a name of another library."""
            if name.startswith("_"):
                raise AttributeError(name)
            raise missing(self, "group_by(...)", name, GROUPED, public_names(type(self)))

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> CollectionT:
        """One row per key, window and pane: the keys, then these aggregates, each named by its keyword.

        An aggregate is `bl.count()`, `bl.sum("points")`, a `bl.combine(...)` of your own and the like. Raises
        `PlanError` where none is given, one has no name, or a column is not there or of a type that the aggregate
        cannot take.

        Example, with the `plays` of `Collection`:
            >>> grouped = plays.window_into(bl.FixedWindows("1d")).group_by("user")
            >>> grouped.aggregate(points=bl.sum("points")).collect()[["user", "points"]].rows()
            [('ada', 7), ('bob', 5)]
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.aggregate")
        require_event_time(self.node, step)
        return self._collection(grouped(self.node, self.keys, unnamed, aggregates, step))

    def process(
        self,
        process: Process,
        schema: SchemaLike,
        *,
        order: Order = "time",
        retractions: bool = False,
        keep_forever: bool = False,
    ) -> CollectionT:
        """What a `Process` of your own, with state and timers for each key and window, makes of the rows.

        `schema` has the columns and types of what its methods give. With `order="time"` rows wait for the watermark
        and are played in order of time, so that the result does not depend on when they came; with "arrival" they are
        played at once. `retractions=True` takes rows that take back earlier ones, for which `self.retracted` is true.
        `keep_forever=True` takes an input without end of which state is never forgotten.

        Raises `PlanError` where a timer has no method or a method no timer, a field no type, or the windows merge.

        Example, with the `plays` of `Collection`:
            >>> class Totals(bl.Process):
            ...     points = bl.Value(int, default=0)
            ...     def element(self, row):
            ...         self.points += row["points"]
            ...         yield {"user": self.key.user, "so_far": self.points}
            >>> plays.group_by("user").process(Totals(), {"user": str, "so_far": int}).collect().rows()[-1][:2]
            ('ada', 7)
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.process")
        choices: dict[str, Any] = {"order": order, "retractions": retractions, "keep_forever": keep_forever}
        return self._collection(processed(self.node, self.keys, process, schema, step, **choices))

    def process_batches(
        self,
        function: Function,
        schema: SchemaLike,
        *,
        state: SchemaLike | None = None,
        timers: Mapping[str, Timer] | None = None,
        order: Order = "time",
        keep_forever: bool = False,
    ) -> CollectionT:
        """What a function of frames, with state and timers for each key and window, makes of the rows.

        `function(rows, state, due)` is called once per shard and batch, with three polars frames. `rows` has the rows,
        those of a key together and in the order of time, and a Datetime `event_time`. `state` has a row for each key
        that rows have come for or of which a timer is due: the key, the fields of `state=` by name, null where nothing
        was written, and a Datetime column for each of `timers=`, null where it is not set. `due` has the timers that
        are due: key, `timer`, `time`, and `event_time`, with which to stamp what is emitted; they are not set any
        more. Where there are windows, all three have `window_start` and `window_end`.

        It gives two frames: what is emitted, with the columns of `schema` and `event_time` (and those of the window),
        and the state as it is now; a key that it leaves out has none. Where it raises, it is called for fewer keys at a
        time, and only the rows of keys on which it raises are dead letters. `order` and `keep_forever` as in `process`.

        Example, with the `plays` of `Collection`:
            >>> import polars as pl
            >>> def best(rows, state, due):
            ...     top = rows.group_by("user").agg(pl.col("points").max(), pl.col("event_time").last())
            ...     both = top.join(state, on="user").with_columns(best=pl.max_horizontal("points", "best"))
            ...     return both.select("user", "best", "event_time"), both.select("user", "best")
            >>> records = plays.group_by("user").process_batches(best, {"user": str, "best": int}, state={"best": int})
            >>> records.collect()["best"].max()
            5
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.process_batches")
        made = batched(
            self.node,
            self.keys,
            function,
            schema,
            state or {},
            timers or {},
            step,
            order=order,
            keep_forever=keep_forever,
        )
        return self._collection(made)

    def running(
        self,
        *unnamed: Any,
        order: Order = "time",
        keep_forever: bool = False,
        **aggregates: Aggregate | Previous,
    ) -> CollectionT:
        """The rows, each with these aggregates of its key and window up to it, itself included.

        `bl.count`, `bl.sum`, `bl.mean`, `bl.min`, `bl.max`, `bl.first` and `bl.last` have a running form, and
        `bl.previous("at")` is the value of a column in the row before. `order` and `keep_forever` as in `process`.

        Example, with the `plays` of `Collection`:
            >>> so_far = plays.group_by("user").running(total=bl.sum("points"), before=bl.previous("points"))
            >>> so_far.collect()[["user", "points", "total", "before"]].sort("user", "total").rows()[:2]
            [('ada', 3, 3, None), ('ada', 4, 7, 3)]
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.running")
        made = run_up(self.node, self.keys, unnamed, aggregates, step, order=order, keep_forever=keep_forever)
        return self._collection(made)

    def group_into_batches(
        self, *, size: int | None = None, bytes: int | None = None, max_wait: Duration | None = None
    ) -> CollectionT:
        """The rows of each key and window in batches: the keys, and `rows`, a list of structs in order of arrival.

        A batch is given when it has `size` rows; when one more row would make it larger than `bytes`, of which a text
        or a binary has its length, a list or a struct its length as JSON, and any other value 8; when its first row has
        waited for `max_wait` of processing time; and when its window is over or the input ends, so that no row is left.
        A single row that is larger than `bytes` is a batch of its own. A batch has the time of its earliest row, and
        holds the watermark there until it is given. Raises `PlanError` without `size` and `bytes`, and where rows of an
        input without end could wait for ever.

        Example, with the `plays` of `Collection`:
            >>> batches = plays.group_by("user").group_into_batches(size=2)
            >>> batches.map(lambda row: {"n": len(row["rows"])}, schema={"n": int}).collect()["n"].to_list()
            [2, 1]
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.group_into_batches")
        return self._collection(collected(self.node, self.keys, size, bytes, max_wait, step))
