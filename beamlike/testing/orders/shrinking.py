"""Search for the fewest rows, in the fewest bundles, that still show a difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from beamlike.testing.orders.arrivals import Bundle

Order = Mapping[str, Sequence[Bundle]]

_TRIES = 300


def fewest(order: Order, shows: Callable[[Order], bool]) -> Order:
    """Returns the least part of an order that `shows` the difference, which the whole order does.

    Rows are left out first; then bundles are joined. Without the package hypothesis the order is returned as it is.
    """
    try:
        from hypothesis import HealthCheck, Phase, find, settings
        from hypothesis import strategies as st
        from hypothesis.errors import NoSuchExample
    except ModuleNotFoundError:
        return order
    order = _fewer_rows(order, shows)
    batches = max(map(len, order.values()))
    tries = settings(
        max_examples=_TRIES,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    # For each batch, True if a new batch begins there. False is the simplest, so batches are joined.
    begins = st.lists(st.booleans(), min_size=batches, max_size=batches)
    try:
        found = find(begins, lambda new: shows(_joined(order, new)), settings=tries, random=Random(0))
    except NoSuchExample:
        return order
    return _joined(order, found)


def _fewer_rows(order: Order, shows: Callable[[Order], bool]) -> Order:
    """Leaves out rows, first many at once, then one by one, as long as the difference stays."""
    rows = [(name, number) for name, bundles in order.items() for bundle in bundles for number in bundle]
    size = len(rows) // 2
    while size:
        first = 0
        while first < len(rows):
            rest = rows[:first] + rows[first + size :]
            smaller = _only(order, set(rest))
            if rest and shows(smaller):
                order, rows = smaller, rest
            else:
                first += size
        size //= 2
    return order


def _only(order: Order, rows: set[tuple[str, int]]) -> Order:
    """Returns an order with these rows only, without batches in which nothing arrives."""
    kept = {
        name: [tuple(number for number in bundle if (name, number) in rows) for bundle in bundles]
        for name, bundles in order.items()
    }
    batches = range(max(map(len, kept.values())))
    full = [batch for batch in batches if any(bundles[batch] for bundles in kept.values())]
    return {name: [bundles[batch] for batch in full] for name, bundles in kept.items()}


def _joined(order: Order, begins: Sequence[bool]) -> Order:
    """Joins each batch to the one before, unless a new batch `begins` there."""
    joined: dict[str, list[Bundle]] = {}
    for name, bundles in order.items():
        made: list[Bundle] = []
        for bundle, new in zip(bundles, begins, strict=True):
            if new or not made:
                made.append(bundle)
            else:
                made[-1] = (*made[-1], *bundle)
        joined[name] = made
    return joined
