"""The steps of a collection in which a row meets others: what matches it, and what has been there before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs

from beamlike.api.row_steps import RowSteps
from beamlike.errors import PlanError, WrongType
from beamlike.logical.joins import joined, made_for
from beamlike.steps.joins import How

Columns = str | Sequence[str]


@attrs.frozen(eq=False, repr=False)
class JoinSteps(RowSteps):
    """What can be done with rows that look at others, of the same collection or of another."""

    def join(
        self,
        right: Self,
        on: Columns | None = None,
        how: How = "inner",
        *,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        suffix: str = "_right",
        name: str | None = None,
    ) -> Self:
        """The rows of this collection, left, with those of `right` that have the same keys and are in the same window.

        `on` names one column or several that both have, of the same type; or `left_on` and `right_on` do, where their
        names differ. The result has the columns of the left side, with the keys once, under the names that they have
        there, and then the others of the right side; of those that have the name of a left column, with `suffix`.
        `how`: "inner" has the pairs that match; "left", "right" and "full" also the rows of one side, or both, that
        match nothing, with nulls for the other; "semi" has the left rows that match something, and "anti" those that
        match nothing, both without columns of the right side. Null matches nothing. `name` is that of the step.

        Both sides must be in the same windows, with the same choices; the result comes when a pane of the window does,
        as a rule at its end. Where a window may have several panes, accumulation is accumulating or retracting. Raises
        `PlanError` for what does not go together. A collection may be joined with itself.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> ages = days.filter(bl.col("points") > 4).select("user", "at")
            >>> days.join(ages, on="user", how="left").collect()[["user", "points", "at_right"]].rows()
            [('ada', 3, None), ('ada', 4, None), ('bob', 5, '2026-01-31T12:00:40Z')]
        """
        step, _ = self._new_name("join", name)
        if not isinstance(right, JoinSteps):
            raise WrongType(f"expected a collection to join with, got {right!r}", step=step)
        if right.pipeline is not self.pipeline:
            raise PlanError(
                f"these collections are of different pipelines: {self.pipeline.name}, {right.pipeline.name}",
                step=step,
            )
        choices: dict[str, Any] = {
            "on": on,
            "left_on": left_on,
            "right_on": right_on,
            "how": how,
            "suffix": suffix,
        }
        made = joined(self.node, right.node, **choices, step=step, free=self.pipeline.free)
        for node in made_for(made):
            self.pipeline.register(node.name)
        return type(self)(self.pipeline, made)
