"""The final results of a run: what its panes come to when all of them have fired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import polars as pl

from beamlike.errors import PlanError
from beamlike.io.sinks import RowKey
from beamlike.logical.node import Node
from beamlike.logical.row_key import row_key

Finals = Counter[tuple[tuple[str, Any], ...]]
"""The number of each final row, which is a tuple of pairs of column and value."""

_PANE: Final = "pane_"
_RETRACTED: Final = "pane_retracted"
_DIGITS: Final = 9


@attrs.frozen(eq=False)
class Finality:
    """The rule by which the final rows of a collection follow from all rows that it emits.

    Args:
        node: The node of the collection.
        key: The columns that identify a row, if a row replaces the earlier rows with its key.
        unknown: The reason why final rows are not known; empty if they are.
    """

    node: Node
    key: RowKey | None = None
    unknown: str = ""

    @classmethod
    def of(cls, node: Node) -> Finality:
        """Finds out how the rows of a node relate to earlier ones."""
        if node.kind != "repeats":
            return cls(node)
        try:
            return cls(node, row_key(node, node.name, per_pane=False))
        except PlanError as error:
            return cls(node, unknown=f"its panes repeat earlier ones in an unknown way: {error}")

    def rows(self, frame: pl.DataFrame) -> Finals:
        """Returns the final rows, without the columns that describe a pane.

        Args:
            frame: All rows, as a sink receives them, in the order in which they were emitted.
        """
        if self.key is not None:
            frame = frame.unique(subset=list(self.key.groups), keep="last", maintain_order=True)
        shown = [name for name in frame.columns if name in self.node.schema or not name.startswith(_PANE)]
        signs = frame[_RETRACTED].to_list() if self.node.retracting else [False] * len(frame)
        found: Finals = Counter()
        for row, retracted in zip(frame.select(shown).iter_rows(named=True), signs, strict=True):
            found[tuple((name, _comparable(value)) for name, value in row.items())] += -1 if retracted else 1
        return Counter({row: count for row, count in found.items() if count})

    def partial(self, frame: pl.DataFrame) -> bool:
        """True if a window has several panes, of which each has only a part of its rows."""
        splits = (
            self.node.kind == "rows"
            and "pane_index" in frame.columns
            and "pane_index" not in self.node.schema
        )
        return splits and bool((frame["pane_index"] > 0).any())


def _comparable(value: Any) -> Any:
    """Returns a value that can be counted. A sum of floats depends on their order in its last digits."""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, Mapping):
        return tuple((name, _comparable(one)) for name, one in value.items())
    return (
        tuple(map(_comparable, value))
        if isinstance(value, Sequence) and not isinstance(value, str | bytes)
        else value
    )
