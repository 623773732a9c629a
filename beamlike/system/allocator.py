"""Makes the memory allocator of polars keep freed memory for the next batch. Must be imported before polars.

By default, polars keeps freed memory for half a second. A run with large batches then requests its pages from the
system again in each batch, and its threads wait for each other meanwhile. The allocator reads the variable once, when
polars is loaded. Polars puts its own defaults before the value.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "_RJEM_MALLOC_CONF"
KEPT: Final = "dirty_decay_ms:10000"

if "polars" not in sys.modules:
    os.environ.setdefault(VARIABLE, KEPT)
