"""Steps of a collection that remove duplicates, or that keep the newest row of each key."""

from __future__ import annotations

from typing import Self

import attrs

from beamlike.api.handle import Handle
from beamlike.logical.dedup import deduplicated, distinct, newest
from stages.process.dedup import By
from windowing.time import Duration


@attrs.frozen(eq=False, repr=False)
class OnceSteps(Handle):
    """The steps of a collection that remove duplicates, or that keep the newest row of each key."""

    def dedup(self, *ids: str, within: Duration, by: By = "event", name: str | None = None) -> Self:
        """Removes a row if an earlier row had the same id within a duration.

        Rows are compared in arrival order, and the first row of an id is emitted at once. After an emitted row with
        event time t, further rows of its id with a time in [t, t + within) are removed. The id is stored until the
        watermark, or processing time, shows that no row that is in time can fall into this interval. By event time, a
        row that arrives later than that is emitted. Each window has ids of its own.

        Args:
            *ids: The columns, at least one, that together are the id.
            within: The duration.
            by: "event" compares event times, "processing" the times of arrival.
            name: The name of the step.

        Raises:
            PlanError: A column does not exist, or `within` is no duration.

        Example, with the `plays` of `Collection`:
            >>> plays.dedup("user", within="1h").collect()["points"].to_list()
            [3, 5]
        """
        step, _ = self._new_name("dedup", name)
        return self._after(deduplicated(self.node, ids, within, by, step))

    def distinct(self, *, name: str | None = None) -> Self:
        """Removes rows that equal an earlier row of their window in all columns.

        The first of equal rows is emitted at once, with its event time. Rows are stored until their window and its
        allowed lateness are over, so an unbounded input needs windows.

        Raises:
            PlanError: An unbounded input has no windows, or a column has lists or structs.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").distinct().collect()["user"].to_list()
            ['ada', 'bob']
        """
        step, _ = self._new_name("distinct", name)
        return self._after(distinct(self.node, step))

    def latest(self, *keys: str, name: str | None = None) -> Self:
        """Keeps, for each key and window, the row with the greatest event time; of rows with equal times, the last to
        arrive.

        The row is emitted with the panes of its window, as an aggregate is. If a window may have several panes and
        accumulation is discarding, it is emitted once, when the window is collected.

        Args:
            *keys: The columns of the key, at least one.
            name: The name of the step.

        Raises:
            PlanError: A column does not exist, or cannot be a key.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> days.latest("user").collect()[["user", "points"]].rows()
            [('ada', 4), ('bob', 5)]
        """
        step, _ = self._new_name("latest", name)
        return self._made(newest(self.node, keys, step, self.pipeline.free))
