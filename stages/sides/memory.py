"""A cache, in this process, of objects that were built from the content of a side.

An object is found by a digest of that content, so no result depends on whether it is still in the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

import attrs

T = TypeVar("T")

MOST_BYTES: Final = 1 << 30
"""The bytes of content that cached objects were built from, at most; the least recently used ones are removed."""


@attrs.define
class Memory:
    """Objects by the content that they were built from, with the size of that content in bytes."""

    most: int = MOST_BYTES
    _made: OrderedDict[Hashable, tuple[Any, int]] = attrs.field(factory=OrderedDict)
    _lock: Any = attrs.field(factory=Lock)

    def get(self, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """Returns the object of this key, which is made now if it is not in the cache."""
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
"""The cache of this process."""
