"""The labels of shards: the least integers that Spark's hash sends to distinct partitions."""

from __future__ import annotations

from typing import Final

_SEED: Final = 42
_32_BITS: Final = 0xFFFFFFFF


def labels(shards: int) -> tuple[int, ...]:
    """Returns, for each of `shards` partitions, the smallest integer that Spark's hash function maps to it."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < shards:
        found.setdefault(hash_of(candidate) % shards, candidate)
        candidate += 1
    return tuple(found[partition] for partition in range(shards))


def hash_of(number: int) -> int:
    """Returns Spark's hash of a 32-bit integer: Murmur3 with a fixed seed, as a signed number."""
    mixed = _times(_rotated(_times(number, 0xCC9E2D51), 15), 0x1B873593)
    state = (_times(_rotated(_SEED ^ mixed, 13), 5) + 0xE6546B64) & _32_BITS
    state ^= 4  # the length in bytes
    state = _times(state ^ state >> 16, 0x85EBCA6B)
    state = _times(state ^ state >> 13, 0xC2B2AE35)
    state ^= state >> 16
    return state - (state >> 31 << 32)


def _times(number: int, factor: int) -> int:
    return number * factor & _32_BITS


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _32_BITS
