"""The process-wide cache of objects, such as indexes, that were built from the content of a side.

Objects are keyed by a digest of the content, so no result depends on which objects are in the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

import attrs

T = TypeVar("T")

MOST_BYTES: Final = 1 << 30
"""The maximum size (bytes) of the content that all cached objects were built from."""


@attrs.define
class Memory:
    """A least-recently-used cache, bounded by the size (bytes) of the content that objects were built from."""

    most: int = MOST_BYTES
    _made: OrderedDict[Hashable, tuple[Any, int]] = attrs.field(factory=OrderedDict)
    _lock: Any = attrs.field(factory=Lock)

    def get(self, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """Returns the object of this key. If it is not in the cache, it is built by `make` and added with this size."""
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
