"""Random numbers as a pure function of seed, use and number, for whole columns: any event can be made by itself."""

from __future__ import annotations

from zlib import crc32

import attrs
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@attrs.frozen
class Chance:
    """Numbers that depend on the seed, on their use, and on the number of the event."""

    seed: int

    def bits(self, use: str, numbers: Ints) -> npt.NDArray[np.uint64]:
        """Returns 64 bits for each number: SplitMix64 of its place in a sequence that depends on seed and use."""
        start = np.uint64((self.seed * 0x2545F4914F6CDD1D + crc32(use.encode()) * 0x9E3779B1) % 2**64)
        with np.errstate(over="ignore"):
            mixed = _mixed(start) + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            return _mixed(mixed)

    def uniform(self, use: str, numbers: Ints) -> Floats:
        """Returns random numbers from 0 to 1, without 1."""
        return (self.bits(use, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, use: str, numbers: Ints, bound: int | Ints) -> Ints:
        """Returns whole numbers from 0 up to a bound, which is excluded."""
        return (self.uniform(use, numbers) * bound).astype(np.int64)


def _mixed(bits: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    """Applies the last steps of SplitMix64 (Steele, Lea and Flood, 2014)."""
    bits = np.asarray(bits, dtype=np.uint64)
    with np.errstate(over="ignore"):
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
