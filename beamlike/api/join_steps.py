"""Steps of a collection that join its rows with the rows of another collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs

from beamlike.api.handle import Handle
from beamlike.errors import PlanError, WrongType
from beamlike.logical.joins import joined
from beamlike.logical.time_joins import Sides, Within, as_of, lasting
from beamlike.logical.time_joins import within as within_interval
from beamlike.steps.joins import How
from stages.joins.asof import How as HowAsOf
from stages.joins.interval import TimeOf
from windowing.time import Duration

Columns = str | Sequence[str]


@attrs.frozen(eq=False, repr=False)
class JoinSteps(Handle):
    """The steps of a collection that join its rows with the rows of another collection."""

    def join(
        self,
        right: Self,
        on: Columns | None = None,
        how: How = "inner",
        *,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        suffix: str = "_right",
        within: Within | None = None,
        event_time: TimeOf | None = None,
        keep_forever: bool = False,
        name: str | None = None,
    ) -> Self:
        """Joins rows of this collection (the left side) with rows of `right` that have the same keys and the same
        window.

        Both sides must have the same windowing; a result is emitted with the panes of its window, by default at the
        window's end. If a window has several panes, a retracting pane has the difference to the one before, and a
        discarding one has new results. A null key matches nothing. A collection may be joined with itself.

        The result has the columns of the left side, with the keys once under their left names, then the other columns
        of the right side.

        Args:
            right: The other collection.
            on: One key column or several, of the same name and type on both sides.
            how: "inner" emits the pairs that match; "left", "right" and "full" also the unmatched rows of one side, or
                of both, with nulls for the other; "semi" the left rows that match, and "anti" those that do not, both
                without columns of the right side.
            left_on: The key columns of the left side, if the names differ.
            right_on: The key columns of the right side, if the names differ.
            suffix: Appended to the name of a right column that is also a left column.
            within: Two durations `(low, high)`. Rows match if their event times are close, whatever their windows:
                `left time + low <= right time <= left time + high`. `high` may be an expression over the left row that
                computes a duration, such as `bl.col("expires") - bl.col("at")`. Pairs are emitted at once, unmatched
                rows when a match can no longer arrive; a row is stored until then. Rows leave their windows, and
                `how` is not "semi" or "anti".
            event_time: The event time of results, with `within` only. "latest" (the default): for a pair the later of
                both times, for an unmatched row the time from which a match can no longer arrive, or its own time if
                that is later. "left" or "right": for a pair the time of its row of that side, for an unmatched row its
                own; rows of that side hold the watermark at their time while a match may still arrive.
            keep_forever: True matches rows at any distance in time: each pair is emitted once, at once, with the later
                of both times, and no row is late or ever removed from state. Rows leave their windows, and `how` is
                "inner".
            name: The name of the step.

        Raises:
            PlanError: The sides or the choices do not fit together.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> ages = days.filter(bl.col("points") > 4).select("user", "at")
            >>> days.join(ages, on="user", how="left").collect()[["user", "points", "at_right"]].rows()
            [('ada', 3, None), ('ada', 4, None), ('bob', 5, '2026-01-31T12:00:40Z')]
            >>> soon = plays.join(plays, on="user", within=("1s", "1h"))
            >>> soon.collect()[["user", "points", "points_right"]].rows()
            [('ada', 3, 4)]
        """
        step, _ = self._new_name("join", name)
        self._require_other(right, step)
        choices: dict[str, Any] = {
            "on": on,
            "left_on": left_on,
            "right_on": right_on,
            "how": how,
            "suffix": suffix,
        }
        if keep_forever and within is not None:
            raise PlanError("give within=(low, high) or keep_forever=True, not both", step=step)
        if event_time is not None and within is None:
            raise PlanError(f"event_time={event_time!r} is for joins within=(low, high)", step=step)
        # `Sides` checks both sides of a join by time; a join in windows has checks of its own.
        if keep_forever or within is not None:
            sides = Sides.of(
                self.node, right.node, on=on, left_on=left_on, right_on=right_on, suffix=suffix, step=step
            )
        if keep_forever:
            made = lasting(sides, how, step, self.pipeline.free)
        elif within is None:
            made = joined(self.node, right.node, **choices, step=step, free=self.pipeline.free)
        else:
            made = within_interval(
                sides, within, how, time_of=event_time or "latest", step=step, free=self.pipeline.free
            )
        return self._made(made)

    def join_asof(
        self,
        right: Self,
        on: Columns | None = None,
        how: HowAsOf = "left",
        *,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        suffix: str = "_right",
        tolerance: Duration | None = None,
        name: str | None = None,
    ) -> Self:
        """Joins each row with the newest row of `right` that has its keys and no later event time.

        A row waits until all rows up to its time have arrived, and holds the watermark at its time until then. A right
        row that arrives later is used for later rows only. State keeps the newest right row of each key, and those
        after the watermark. Rows leave their windows, if they are in some.

        Args:
            right: The other collection.
            on: The key columns, as in `join`; also `left_on`, `right_on` and `suffix`.
            how: "left" emits unmatched rows with nulls, "inner" does not.
            tolerance: The greatest age, a duration, at which a right row still matches; unlimited by default.
            name: The name of the step.

        Example, with the `plays` of `Collection`:
            >>> before = plays.join_asof(plays.filter(bl.col("points") < 4), on="user")
            >>> before.collect()[["user", "points", "points_right"]].sort("user", "points").rows()
            [('ada', 3, 3), ('ada', 4, 3), ('bob', 5, None)]
        """
        step, _ = self._new_name("join_asof", name)
        self._require_other(right, step)
        sides = Sides.of(
            self.node,
            right.node,
            on=on,
            left_on=left_on,
            right_on=right_on,
            suffix=suffix,
            step=step,
            versions=True,
        )
        return self._made(as_of(sides, tolerance, how, step, self.pipeline.free))

    def _require_other(self, right: object, step: str) -> None:
        if not isinstance(right, JoinSteps):
            what = (
                f"a {type(right).__name__}; read it with bl.Rows(...)"
                if hasattr(right, "columns")
                else repr(right)
            )
            raise WrongType(f"expected a collection to join with, got {what}", step=step)
        if right.pipeline is not self.pipeline:
            raise PlanError(
                f"{self.name!r} and {right.name!r} are of different pipelines, {self.pipeline.name!r} and "
                f"{right.pipeline.name!r}: read both in the same pipeline, which is one object bl.Pipeline(...)",
                step=step,
            )
