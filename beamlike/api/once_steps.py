"""The steps of a collection after which rows are there once: no repetitions, or only the newest of each key."""

from __future__ import annotations

from typing import Self

import attrs

from beamlike.api.handle import Handle
from beamlike.logical.dedup import deduplicated, distinct, newest
from stages.process.dedup import By
from windowing.time import Duration


@attrs.frozen(eq=False, repr=False)
class OnceSteps(Handle):
    """What leaves out rows, as others of the same collection make up for them."""

    def dedup(self, *ids: str, within: Duration, by: By = "event", name: str | None = None) -> Self:
        """The rows without those that have the id of an earlier one, which has passed at most `within` ago.

        `ids` are names of columns, at least one, that together are the id. Rows are taken as they come, and the first
        of an id passes at once. One that has passed, with event time t, covers the times [t, t + within): a row of its
        id in there is left out. `by="processing"` goes by the times at which rows come. An id is forgotten when the
        watermark, or processing time, says that no row which is in time can be covered any more; what is later than
        that, by event time, passes. Where rows are in windows, each window has ids of its own. `name` is that of the
        step. Raises `PlanError` for a column that is not there and for a duration that is none.

        Example, with the `plays` of `Collection`:
            >>> plays.dedup("user", within="1h").collect()["points"].to_list()
            [3, 5]
        """
        step, _ = self._new_name("dedup", name)
        return self._after(deduplicated(self.node, ids, within, by, step))

    def distinct(self, *, name: str | None = None) -> Self:
        """The rows without those that are equal, in all columns, to an earlier one of their window.

        The first that comes passes at once, with its event time. Rows are remembered until their window is over, and
        the allowed lateness; so an input without end needs windows. `name` is that of the step. Raises `PlanError`
        where it has none, and for columns of lists and structs.

        Example, with the `plays` of `Collection`:
            >>> plays.select("user").distinct().collect()["user"].to_list()
            ['ada', 'bob']
        """
        step, _ = self._new_name("distinct", name)
        return self._after(distinct(self.node, step))

    def latest(self, *keys: str, name: str | None = None) -> Self:
        """The row with the greatest event time of each key and window; of several, the one that came last.

        `keys` are names of columns, at least one. It comes with the panes of its window, as an aggregate does. Where a
        window may have several panes, accumulation is accumulating or retracting. `name` is that of the step. Raises
        `PlanError` for a column that is not there or cannot be a key.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> days.latest("user").collect()[["user", "points"]].rows()
            [('ada', 4), ('bob', 5)]
        """
        step, _ = self._new_name("latest", name)
        return self._made(newest(self.node, keys, step, self.pipeline.free))
