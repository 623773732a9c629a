"""A bounded memory of decoded values of a store, so that values that are read in every step are decoded once."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from threading import Lock
from typing import Final, Protocol, TypeVar, cast

import attrs

LEAST_BYTES: Final = 1_000_000_000
"""The number of bytes for which there is always room."""

_SHARE: Final = 8
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
"""The file in which Linux has the memory of a container, or a word if it is not limited."""


@cache
def most_bytes(limit: Path = _LIMIT) -> int:
    """Returns the number of bytes that a store remembers at most: an eighth of the memory of the machine or container,
    and at least LEAST_BYTES. Values that do not fit are decoded in each step that reads them.
    """
    sizes = list[int]()
    with suppress(OSError, ValueError, AttributeError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        sizes.append(int(limit.read_text("utf-8")))
    return max(LEAST_BYTES, min(sizes, default=0) // _SHARE)


class Decoded(Protocol):
    """A decoded value, which does not change."""

    @property
    def size(self) -> int:
        """The approximate number of bytes in memory."""


D = TypeVar("D", bound=Decoded)


@attrs.define(eq=False)
class Memory:
    """Decoded values by stage and key. Each has a token, by which a store knows that it has the same value: an equal
    token means an equal value.

    If there is not enough room, any values are forgotten. If state is larger than the memory, and all of it is read in
    each step, those that were read last would be gone when they are needed again, if the oldest were forgotten first.
    """

    limit: int = attrs.field(factory=most_bytes)
    _known: dict[tuple[str, str], tuple[object, Decoded]] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    _random: Random = attrs.field(factory=lambda: Random(0), init=False)
    _turn: Lock = attrs.field(factory=Lock, init=False)

    def __reduce__(self) -> tuple[type[Memory], tuple[int]]:
        return Memory, (self.limit,)  # a copy remembers nothing

    def get(self, name: tuple[str, str], token: object, decode: Callable[[], D]) -> D:
        """Returns the value that is remembered with this token, or decodes and remembers it."""
        known = self._known.get(name)
        if known is not None and known[0] == token:
            return cast(D, known[1])
        found = decode()
        with self._turn:
            self._forget(name)
            self._known[name] = token, found
            self._size += found.size
            while self._size > self.limit:
                self._forget(next(islice(self._known, self._random.randrange(len(self._known)), None)))
        return found

    def forget(self, name: tuple[str, str]) -> None:
        """Forgets a value that was replaced or deleted."""
        if name in self._known:
            with self._turn:
                self._forget(name)

    def renew(self, name: tuple[str, str], before: object, after: object) -> None:
        """Replaces the token of a value, if it is `before`: the store now has the same value in another place."""
        with self._turn:
            if (known := self._known.get(name)) is not None and known[0] == before:
                self._known[name] = after, known[1]

    def _forget(self, name: tuple[str, str]) -> None:
        if (known := self._known.pop(name, None)) is not None:
            self._size -= known[1].size
