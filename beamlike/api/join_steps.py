"""The steps of a collection in which a row meets those of another: what matches it."""

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
    """What can be done with rows that look at those of another collection."""

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
        """The rows of this collection, left, with those of `right` that have the same keys and are in the same window.

        `on` names one column or several that both have, of the same type; or `left_on` and `right_on` do, where their
        names differ. The result has the columns of the left side, with the keys once, under the names that they have
        there, and then the others of the right side; of those that have the name of a left column, with `suffix`.
        `how`: "inner" has the pairs that match; "left", "right" and "full" also the rows of one side, or both, that
        match nothing, with nulls for the other; "semi" has the left rows that match something, and "anti" those that
        match nothing, both without columns of the right side. Null matches nothing. `name` is that of the step.

        With `within=(low, high)`, two durations, rows match whose event times are that near to each other, whatever
        windows there are: `left time + low <= right time <= left time + high`. `high` may be an expression on the left
        row that gives a duration, such as `bl.col("expires") - bl.col("at")`. Pairs come at once, and what
        matches nothing when that is certain. `event_time` is the time that the result has. "latest" (the default): a
        pair has the later of the two times, and a row that matches nothing the moment when that is certain, or its own
        time if that is later. "left" or "right": a pair has the time of its row of that side, and a row that matches
        nothing its own; rows of that side hold the watermark at their time for as long as a match may come. A row is
        kept for that long. Neither side has windows yet, and `how` is not "semi" or "anti".

        With `keep_forever=True`, rows match whenever they come: each pair comes once, at once, with the later of the
        two times, and no row is too late or ever forgotten. Neither side has windows yet, and `how` is "inner".

        Otherwise both sides must be in the same windows, with the same choices; the result comes when a pane of
        the window does, as a rule at its end. Where a window may have several panes, accumulation is accumulating or
        retracting. Raises `PlanError` for what does not go together. A collection may be joined with itself.

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
        if keep_forever or within is not None:
            sides = Sides.of(self.node, right.node, on, left_on, right_on, suffix, step)
        if keep_forever:
            made = lasting(sides, how, step, self.pipeline.free)
        elif within is None:
            made = joined(self.node, right.node, **choices, step=step, free=self.pipeline.free)
        else:
            made = within_interval(sides, within, how, event_time or "latest", step, self.pipeline.free)
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
        """The rows of this collection, each with the row of `right` that was the newest of its keys at its event time.

        One of exactly that time counts. `how` is "left", with nulls where there is none, or "inner". A version that is
        more than `tolerance` older than the row does not count. `on`, `left_on`, `right_on`, `suffix` and `name` are as
        in `join`. A row waits until all that is not after it has come, and holds the watermark at its time until then;
        a version that comes later than that counts for the rows to come. Neither side has windows yet. Of each key the
        newest version is kept, and those after the watermark.

        Example, with the `plays` of `Collection`:
            >>> before = plays.join_asof(plays.filter(bl.col("points") < 4), on="user")
            >>> before.collect()[["user", "points", "points_right"]].sort("user", "points").rows()
            [('ada', 3, 3), ('ada', 4, 3), ('bob', 5, None)]
        """
        step, _ = self._new_name("join_asof", name)
        self._require_other(right, step)
        sides = Sides.of(self.node, right.node, on, left_on, right_on, suffix, step)
        return self._made(as_of(sides, tolerance, how, step, self.pipeline.free))

    def _require_other(self, right: object, step: str) -> None:
        if not isinstance(right, JoinSteps):
            raise WrongType(f"expected a collection to join with, got {right!r}", step=step)
        if right.pipeline is not self.pipeline:
            raise PlanError(
                f"these collections are of different pipelines: {self.pipeline.name}, {right.pipeline.name}",
                step=step,
            )
