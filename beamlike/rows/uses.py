"""Counts of rows that steps could use. If a function fails on every row, the function is wrong, not the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from stages.facts import SPARSE


@attrs.frozen
class UnusedRows:
    """The rows of a step that could use none of them: their number, and the error of the first row."""

    rows: int
    error: str

    def plus(self, later: UnusedRows) -> UnusedRows:
        """Adds rows that the step received later."""
        return UnusedRows(self.rows + later.rows, self.error)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*given}))


@attrs.frozen
class StepUsage:
    """The names of sources and steps that could use a row (`some`), and of those that received rows and could use none
    (`none`). `retractions` are the numbers of retractions for which a step failed.

    Law: `then` is associative, so the division of the rows into bundles and shards does not matter.
    """

    some: tuple[str, ...] = attrs.field(default=(), converter=_names)
    none: Mapping[str, UnusedRows] = attrs.field(factory=dict)
    retractions: Mapping[str, int] = attrs.field(factory=dict, metadata=SPARSE)

    def then(self, later: StepUsage) -> StepUsage:
        """Adds a later usage. A step that could use a row in one of the two is in `some`."""
        some, none = {*self.some, *later.some}, dict(self.none)
        for name, unused in later.none.items():
            none[name] = none[name].plus(unused) if name in none else unused
        return StepUsage(
            some,
            {name: unused for name, unused in none.items() if name not in some},
            dict(Counter(self.retractions) + Counter(later.retractions)),
        )
