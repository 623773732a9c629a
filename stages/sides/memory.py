"""What was made of the content of a side, kept in this process for the steps to come.

It is found by a digest of that content, so it makes no difference to any result whether it is still there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

import attrs

T = TypeVar("T")

MOST_BYTES: Final = 1 << 30
"""What was used least lately goes where all of it is made of more than this."""


@attrs.define
class Memory:
    """Things by what they were made of, with how many bytes that was."""

    most: int = MOST_BYTES
    _made: OrderedDict[Hashable, tuple[Any, int]] = attrs.field(factory=OrderedDict)
    _lock: Any = attrs.field(factory=Lock)

    def get(self, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """What was made under this key, or is made now."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                found: T = self._made[key][0]
                return found
        made = make()
        with self._lock:
            self._made[key] = (made, size)
            while len(self._made) > 1 and sum(own for _, own in self._made.values()) > self.most:
                self._made.popitem(last=False)
        return made


REMEMBERED: Final = Memory()
"""That of this process."""
