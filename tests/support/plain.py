"""Sizes of state values without compression, which is less effective on small values."""

from stages.frames import size_of
from stages.state.store import decode


def plain_bytes(value: bytes) -> int:
    """Returns the size of a value's rows and of the facts stored with them."""
    rows, facts = decode(value)
    return size_of(rows) + len(str(facts))
