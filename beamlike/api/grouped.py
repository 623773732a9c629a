"""A collection that is grouped: what is to be computed of each group comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped
from beamlike.logical.node import Node
from beamlike.logical.registry import Registry
from stages.aggregates.base import Aggregate

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
