"""Types for two ways to identify a row: its number in its bucket, and its position in a frame that was read.

bucket     0  1  2  3 | 4  5 | 6      numbers: base rows, then the rows of each patch, deleted rows included
frame               0   1  2          positions: the rows of the chunks that were read
numbers             3 | 4  5          the number of the row at each position
"""

from __future__ import annotations

from typing import NewType

import numpy as np
import numpy.typing as npt

RowNumbers = NewType("RowNumbers", npt.NDArray[np.intp])
"""Row numbers within a bucket. A row keeps its number until the bucket is rewritten."""

Positions = NewType("Positions", npt.NDArray[np.intp])
"""Positions of rows in a loaded frame."""

BucketMask = NewType("BucketMask", npt.NDArray[np.bool_])
"""A Boolean for each row of a bucket, indexed by row number."""

FrameMask = NewType("FrameMask", npt.NDArray[np.bool_])
"""A Boolean for each row of a loaded frame, indexed by position."""
