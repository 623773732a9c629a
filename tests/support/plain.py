"""How large a value of state is, whatever compresses it: what is small is compressed less well than what is large."""

from stages.frames import size_of
from stages.state.store import decode


def plain_bytes(value: bytes) -> int:
    """Of the rows in it, and of the facts beside them."""
    rows, facts = decode(value)
    return size_of(rows) + len(str(facts))
