"""Orders in which rows may arrive, so that no row is behind the watermark of its source.

rows by event time    1 2 3 4 5 6        the bound of the watermark is 3
an allowed order      4 1 | 2 6 3 | 5    after the second bundle the watermark is 3, and 5 is still to come
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import attrs
import polars as pl

from beamlike.errors import WrongType
from beamlike.plan.model import SourcePlan
from beamlike.runtime.batch.elements import read_elements
from beamlike.steps.step_runner import StepRunner
from stages.progress.splits import SourceState, SourceSummary, merge, summarize
from windowing.columns import EVENT_TIME
from windowing.time import MAX_TIME

Choose = Callable[[int], int]
"""Returns a whole number from 0 to below the given one."""

Bundle = tuple[int, ...]
"""The numbers of the rows of a source that arrive in one batch, in their order."""

NOW = 1
"""The processing time (us) of all batches. As time stands still, no source becomes idle."""


@attrs.frozen(eq=False)
class Arrivals:
    """The rows of a source, by their number, with the event time (us) and the summary of each.

    `times` has no entry for a row without an event time, such as one that a step filters.
    """

    source: SourcePlan
    rows: pl.DataFrame
    times: Mapping[int, int]
    summaries: Mapping[int, SourceSummary]

    @classmethod
    def of(cls, source: SourcePlan, rows: pl.DataFrame) -> Arrivals:
        """Reads the event time of each row. Raises `WrongType` if rows get their event time on arrival."""
        if source.watermark.assigns_event_time:
            raise WrongType(
                "its event time is the time of arrival, so each order has other results", step=source.name
            )
        read = [
            read_elements(source, row.lazy(), NOW, StepRunner(source.on_error, row_by_row=True))[0]
            for row in rows.iter_slices(1)
        ]
        timed = {
            number: found for number, found in enumerate(read) if len(found) and EVENT_TIME in found.columns
        }
        return cls(
            source,
            rows,
            {number: found[EVENT_TIME].min() for number, found in timed.items()},  # type: ignore[misc]
            {number: summarize(source.watermark, found) for number, found in timed.items()},
        )

    @property
    def in_time(self) -> Bundle:
        """All rows by event time; those without one are first."""
        return tuple(
            sorted(
                range(len(self.rows)),
                key=lambda number: (number in self.times, self.times.get(number, 0), number),
            )
        )

    def bundles(self, order: Sequence[Bundle]) -> tuple[pl.DataFrame, ...]:
        """Returns the rows of each bundle."""
        return tuple(self.rows[list(bundle)] for bundle in order)

    def after(self, state: SourceState, bundle: Bundle) -> SourceState:
        """Returns the state of the source after a batch with these rows."""
        known = [self.summaries[number] for number in bundle if number in self.summaries]
        summary = reduce(lambda one, other: merge(self.source.watermark, one, other), known, SourceSummary())
        return state.advance(self.source.watermark, summary, NOW)

    def is_allowed(self, order: Sequence[Bundle]) -> bool:
        """True if no row is behind the watermark when it arrives."""
        state = SourceState()
        for bundle in order:
            if any(self.times.get(number, state.watermark) < state.watermark for number in bundle):
                return False
            state = self.after(state, bundle)
        return True

    def order(self, choose: Choose) -> list[Bundle]:
        """Chooses an allowed order. A row is taken early if all earlier ones may still follow."""
        left, order, state = list(self.in_time), list[Bundle](), SourceState()
        while left:
            bundle, size = list[int](), 1 + choose(max(4, len(self.rows) // 4))
            while left and len(bundle) < size:
                bundle.append(left.pop(self._furthest(left, bundle, state, choose(len(left)))))
            state = self.after(state, tuple(bundle))
            order.append(tuple(bundle))
        return order

    def _furthest(self, left: Sequence[int], bundle: Sequence[int], state: SourceState, wanted: int) -> int:
        """Returns the place of a row that may be taken now: the wanted one, or the last allowed place before it.

        The earliest row is always allowed. A later row moves the watermark at least as far as an earlier one.
        """
        earliest = self.times.get(left[0], MAX_TIME)

        def is_too_far(place: int) -> bool:
            return place > 0 and self.after(state, (*bundle, left[place])).watermark > earliest

        return bisect_left(range(wanted + 1), True, key=is_too_far) - 1


def interleaved(orders: Mapping[str, list[Bundle]], choose: Choose) -> dict[str, list[Bundle]]:
    """Makes the orders of several sources equally long: a source may be silent in some batches."""
    batches = max(map(len, orders.values())) + (choose(3) if len(orders) > 1 else 0)
    return {name: [*_spread(order, batches, choose)] for name, order in orders.items()}


def _spread(order: list[Bundle], batches: int, choose: Choose) -> Iterator[Bundle]:
    left = list(order)
    for remaining in range(batches, 0, -1):
        silent = remaining > len(left) and choose(2) == 1
        yield () if silent or not left else left.pop(0)
