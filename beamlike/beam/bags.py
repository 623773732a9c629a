"""The content of a bag in a bundle, most of which may be in the state of the stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

CHUNK_BYTES: Final = 8_192
"""The size of a bag's content in its cell from which it is moved to a chunk."""


@attrs.define(eq=False)
class Bag:
    """A bag of encoded values, as Beam's servicer uses a list. Its chunks are read when the worker reads the bag.

    Attributes:
        chunks: The number of chunks before the values.
        read: Returns the content of the chunks.
        values: The content that is in no chunk.
    """

    chunks: int
    read: Callable[[], list[bytes]]
    values: list[bytes]

    def __iter__(self) -> Iterator[bytes]:
        if self.chunks:
            yield from self.read()
        yield from self.values

    def __len__(self) -> int:
        return self.chunks + len(self.values)

    def append(self, value: bytes) -> None:
        """Adds encoded values."""
        self.values.append(value)
