"""Grouped collections, with the methods that declare an aggregation or a process per group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs

from beamlike.api.other_names import GROUPED, missing, public_names
from beamlike.api.recorded import records
from beamlike.api.sides import SideInput, side_arguments
from beamlike.api.unlike_frames import UnlikeFrames
from beamlike.errors import listed
from beamlike.expressions.describe import describe
from beamlike.logical.batches import batched, run_up
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped
from beamlike.logical.node import Node
from beamlike.logical.process import processed
from beamlike.logical.process_sides import require_attributes, with_sides
from beamlike.logical.registry import Registry
from beamlike.logical.sessions import in_sessions
from beamlike.logical.sides import SideArgument
from beamlike.rows.dtypes import SchemaLike
from beamlike.system.arguments import answering
from stages.aggregates.base import Aggregate
from stages.process.batches import Function, FunctionWithSides
from stages.process.cumulative import Previous
from stages.process.declarations import Process
from stages.process.keyed import Order
from stages.process.timer_fields import Timer
from windowing.time import Duration

CollectionT = TypeVar("CollectionT")
"""The class `Collection`, which imports this module."""


@answering
@records
@attrs.frozen(eq=False, repr=False)
class Grouped(UnlikeFrames, Generic[CollectionT]):
    """A collection grouped by keys; its methods declare what is computed for each group."""

    pipeline: Registry
    node: Node
    keys: tuple[str, ...]
    name: str | None
    _collection: Callable[[Node], CollectionT]

    def __repr__(self) -> str:
        windows = describe(self.node.windowing.windows)
        return f"<Grouped {self.node.name!r} by {listed(self.keys)}, in {windows}>"

    if not TYPE_CHECKING:  # hidden from type checkers, so that they still report unknown attributes

        def __getattr__(self, name: str) -> Any:
            """Raises `AttributeError`. For a method name of another library, the message names the method to use
            instead.
            """
            if name.startswith("_"):
                raise AttributeError(name)
            raise missing(self, "group_by(...)", name, GROUPED, public_names(type(self)))

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate) -> CollectionT:
        """Aggregates each group: one row per key, window and pane, with the keys and the aggregates.

        Args:
            **aggregates: Aggregates by the name of their column: `bl.count()`, `bl.sum("points")`, a `bl.combine(...)`
                of your own and so on.

        Raises:
            PlanError: There is no aggregate, one has no name, or a column does not exist or has a type that the
                aggregate cannot accept.

        Example, with the `plays` of `Collection`:
            >>> grouped = plays.window_into(bl.FixedWindows("1d")).group_by("user")
            >>> grouped.aggregate(points=bl.sum("points")).collect()[["user", "points"]].rows()
            [('ada', 7), ('bob', 5)]
        """
        step = self.pipeline.new_name(self.name, f"{self.node.base}.aggregate")
        require_event_time(self.node, step)
        before = in_sessions(self.node, self.keys, step, self.pipeline.free)
        return self._made(before, grouped(before, self.keys, unnamed, aggregates, step))

    def process(
        self,
        process: Process,
        schema: SchemaLike | None = None,
        *,
        order: Order = "time",
        retractions: bool = False,
        keep_forever: bool = False,
        side: Mapping[str, SideInput] | None = None,
    ) -> CollectionT:
        """Calls a `Process` of your own, with state and timers for each key and window, and emits what it returns.

        Its methods may receive and return objects of classes of rows, by their annotations, as in `Collection.map`.

        Args:
            process: The process. Its methods are called for rows and timers.
            schema: The columns and types of the dicts that its methods return, or a class. By default it is the class
                in the annotations of the methods, as in `-> Iterator[Alert]`.
            order: With "time", rows wait for the watermark and are processed in order of event time, so that the result
                does not depend on their arrival. With "arrival", they are processed at once.
            retractions: True accepts rows that retract earlier ones; `self.retracted` is true for them.
            keep_forever: True accepts an unbounded input whose state is never removed.
            side: Other collections that the methods read, by the name of their attribute: with `{"rules": ...}`, they
                read `self.rules`. See `bl.as_dict`, `bl.as_list` and `bl.as_singleton`. The rows of a key and window
                wait until its window of the side is complete, and hold the watermark at their time until then.

        Raises:
            PlanError: A timer has no method or a method no timer, a field has no type, or the windows merge.

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
        sides = {} if side is None else side_arguments(side, self.pipeline, step)
        require_attributes(process, sides, step)
        made = processed(self.node, self.keys, process, schema, step, **choices)
        return self._with_sides(made, sides, step)

    @overload
    def process_batches(
        self,
        function: Function,
        schema: SchemaLike,
        *,
        state: SchemaLike | None = None,
        timers: Mapping[str, Timer] | None = None,
        order: Order = "time",
        retractions: bool = False,
        keep_forever: bool = False,
        side: None = None,
    ) -> CollectionT: ...

    @overload
    def process_batches(
        self,
        function: FunctionWithSides,
        schema: SchemaLike,
        *,
        state: SchemaLike | None = None,
        timers: Mapping[str, Timer] | None = None,
        order: Order = "time",
        retractions: bool = False,
        keep_forever: bool = False,
        side: Mapping[str, SideInput],
    ) -> CollectionT: ...

    def process_batches(
        self,
        function: FunctionWithSides,
        schema: SchemaLike,
        *,
        state: SchemaLike | None = None,
        timers: Mapping[str, Timer] | None = None,
        order: Order = "time",
        retractions: bool = False,
        keep_forever: bool = False,
        side: Mapping[str, SideInput] | None = None,
    ) -> CollectionT:
        """Calls a function of polars frames, with state and timers for each key and window, and emits its rows.

        `function(rows, state, due)` is called once per shard and batch. If there are windows, each frame has the
        columns `window_start` and `window_end`.

        - `rows` has the rows, sorted by key and then by event time, with a Datetime column `event_time`.
        - `state` has a row for each key with rows or due timers: the key, the fields of `state=` by name (null if never
        written), and a Datetime column for each timer of `timers=` (null if not set).
        - `due` has the due timers: key, `timer`, `time`, and `event_time`, the event time for rows that the function
        emits for the timer. These timers are no longer set.

        The function returns two frames: the rows to emit, with the columns of `schema` and `event_time` (and of the
        window), and the new state; the state of keys that it omits is removed. If it raises an error, it is called
        again for fewer keys at a time, and only the rows of failing keys become dead letters.

        Args:
            function: The function.
            schema: The columns and types of the emitted rows.
            state: The fields of the state and their types.
            timers: Timers by name.
            order: As in `process`.
            retractions: True accepts rows that retract earlier ones. `rows` then has the column `pane_retracted`, which
                is true for them.
            keep_forever: As in `process`.
            side: Other collections that the function receives as keyword arguments, as in `Collection.map`. It is then
                called once for all keys whose window reads the same content.

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
        sides = {} if side is None else side_arguments(side, self.pipeline, step)
        made = batched(
            self.node,
            self.keys,
            function,
            schema,
            state=state or {},
            timers=timers or {},
            step=step,
            order=order,
            retractions=retractions,
            keep_forever=keep_forever,
            sides=tuple(sides),
        )
        return self._with_sides(made, sides, step)

    def running(
        self,
        *unnamed: Any,
        order: Order = "time",
        keep_forever: bool = False,
        **aggregates: Aggregate | Previous,
    ) -> CollectionT:
        """Adds to each row running aggregates: over the rows of its key and window up to the row, itself included.

        Args:
            order: As in `process`.
            keep_forever: As in `process`.
            **aggregates: `bl.count`, `bl.sum`, `bl.mean`, `bl.min`, `bl.max`, `bl.first` or `bl.last`, by the name of
                their column; or `bl.previous("at")`, the value of a column in the row before.

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
        """Collects the rows of each key and window in batches: the keys, and a list of structs, `rows`.

        Rows are in arrival order. A batch is emitted when it is full, when its first row has waited for `max_wait`,
        when its window is over, and when the input ends, so that no row is left. A batch has the time of its earliest
        row, and holds the watermark there until it is emitted.

        Args:
            size: The number of rows of a full batch.
            bytes: The size of a full batch: a row that would exceed it begins the next batch. A text or binary counts
                its length, a list or struct its length as JSON, and any other value 8. A larger single row is a batch
                of its own.
            max_wait: The longest wait, a duration of processing time.

        Raises:
            PlanError: Both `size` and `bytes` are missing, or rows of an unbounded input could wait for ever.

        Example, with the `plays` of `Collection`:
            >>> batches = plays.group_by("user").group_into_batches(size=2)
            >>> batches.map(lambda row: {"n": len(row["rows"])}, schema={"n": int}).collect()["n"].to_list()
            [2, 1]
        """
        from beamlike.logical.into_batches import collected, settled

        step = self.pipeline.new_name(self.name, f"{self.node.base}.group_into_batches")
        before = settled(self.node, self.keys, step, self.pipeline.free)
        made = collected(before, self.keys, size=size, bytes=bytes, max_wait=max_wait, step=step)
        return self._made(before, made)

    def _with_sides(self, made: Node, sides: Mapping[str, SideArgument], step: str) -> CollectionT:
        """Registers the node of a process, and the helper nodes of its sides, and returns its collection."""
        if not sides:
            return self._collection(made)
        parts = with_sides(made, sides, step, self.pipeline.free)
        for node in parts.others:
            self.pipeline.keep(node)
        return self._collection(parts.node)

    def _made(self, before: Node, made: Node) -> CollectionT:
        """Registers a node, and the node before it if that was created for it, and returns its collection."""
        collection = self._collection(made)
        if before is not self.node:
            self.pipeline.keep(before)
        return collection
