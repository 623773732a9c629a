"""The use of rows by steps: a function that fails on every row is at fault, not the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs


@attrs.frozen
class UnusedRows:
    """Rows of a step that could use none of them: their number, and the error of the first one."""

    rows: int
    error: str

    def plus(self, later: UnusedRows) -> UnusedRows:
        """Adds later rows."""
        return UnusedRows(self.rows + later.rows, self.error)


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*given}))


@attrs.frozen
class StepUsage:
    """The sources and steps that could use `some` of their rows, and those that had rows and could use `none`.

    Law: `then` is associative, so neither bundles nor shards matter for what is known at the end.
    """

    some: tuple[str, ...] = attrs.field(default=(), converter=_names)
    none: Mapping[str, UnusedRows] = attrs.field(factory=dict)

    def then(self, later: StepUsage) -> StepUsage:
        """Combines the usage with a later one: a step that could use a row in either one could use some."""
        some, none = {*self.some, *later.some}, dict(self.none)
        for name, unused in later.none.items():
            none[name] = none[name].plus(unused) if name in none else unused
        return StepUsage(some, {name: unused for name, unused in none.items() if name not in some})
