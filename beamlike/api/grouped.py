"""A collection that is grouped: what is to be computed of each group comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped
from beamlike.logical.node import Node
from beamlike.logical.process import processed
from beamlike.logical.registry import Registry
from beamlike.rows.dtypes import SchemaLike
from stages.aggregates.base import Aggregate
from stages.process.declarations import Process
from stages.process.operator import Order

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
