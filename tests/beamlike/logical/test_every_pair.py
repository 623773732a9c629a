"""Pairs of operators: every pair is declared, and each refused pair is listed with its reason."""

from __future__ import annotations

from typing import Final

import pytest

import beamlike as bl
from tests.support.every_operator import OPERATORS, source

_STATELESS: Final = {"filter", "with_columns", "map", "flat_map", "with_timestamps", "changes"}
_UNITED: Final = {"flatten", "flatten self"}
_IN_WINDOWS: Final = {
    "retracting",
    "fixed",
    "sliding",
    "sessions",
    "without key",
    "discarding",
    "window join",
    "cogroup",
    "latest",
    "arg_max",
}
_SUBTRACTS: Final = {
    "retracting",
    "without key",
    "max again",
    "window join",
    "cogroup",
    "latest",
    "dedup",
    "distinct",
    "arg_max",
    "as side",
    "lookup",
    "side",
    "batches",
    "fixed",
    "sliding",
    "sessions",
    "global count",
    "with_timestamps",
    "with_watermark",
    "global",
    "interval left",
    "interval right",
    "interval self",
    "forever",
    "running",
    "process",
    "asof left",
    "asof right",
    *_UNITED,
}

REFUSED: Final = {
    # Rows in the global window see no window of a side that ends.
    **{(one, "as side"): r"call window_into\(...\) on the rows, too" for one in _IN_WINDOWS - {"sessions"}},
    ("sessions", "as side"): "merge, each key having its own",
    # Operators that do not retract so far.
    **{
        ("retracting", one): "may retract earlier ones"
        for one in OPERATORS.keys() - _STATELESS - _SUBTRACTS - {"discarding"}
    },
    **{
        ("changes", one): "may retract earlier ones"
        for one in OPERATORS.keys() - _STATELESS - _SUBTRACTS - {"process side", "process_batches", "discarding"}
    },
    # A growing side cannot lose rows.
    **{(one, "as growing side"): "its rows may be retracted; leave growing= out" for one in ("retracting", "changes")},
    # A log of changes counts each of its rows.
    **{(one, "changes"): "rows of a log must not retract or repeat" for one in ("retracting", "changes")},
    ("retracting", "discarding"): r"AfterWatermark\(early=AfterCount\(2\)\) may lose data",
}  # fmt: skip
"""Part of the message, by the first and the second operator."""


@pytest.mark.parametrize("first", OPERATORS)
def test_every_operator_may_follow_every_other_but_these(first: str) -> None:
    p = bl.Pipeline("pairs")
    rows = OPERATORS[first](p, source(p, "s"))
    for second, operator in OPERATORS.items():
        reason = REFUSED.get((first, second))
        if reason is None:
            operator(p, rows)
            continue
        with pytest.raises(bl.PlanError, match=reason):
            operator(p, rows)


@pytest.mark.slow
@pytest.mark.parametrize("first", [*OPERATORS][::6])  # all of them take some minutes
def test_every_pair_that_is_accepted_runs(first: str) -> None:
    p = bl.Pipeline("pairs")
    for number, (second, operator) in enumerate(OPERATORS.items()):
        if (first, second) not in REFUSED:
            operator(p, OPERATORS[first](p, source(p, "s"))).write(f"out {number}", bl.Memory())
    p.run()
