"""The columns of exact sums, described in `exact`: their types, and the places of their limbs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from stages.aggregates.base import Part

BITS: Final = 20
"""The number of bits of a limb. A sum of fewer than 2**43 limbs fits into 64 bits."""

INTEGER: Final = pl.Int128()
LIMBS: Final = pl.List(pl.Struct({"place": pl.Int64(), "limb": pl.Int64()}))

FRACTION: Final = 4
"""The number of places (limbs) below the binary point in the column `part`."""

PARTS: Final[Mapping[str, Part]] = {
    "whole": Part(INTEGER, 0),
    "part": Part(INTEGER, 0),
    "rest": Part(LIMBS, ()),
}

PLACES: Final = {"whole": 0, "part": -FRACTION, "high": 3}
"""The place of the least limb of each column."""
