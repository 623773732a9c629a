"""How long the allocator of polars keeps memory that is freed: for the next batch. To be imported before polars.

Polars keeps it for half a second, so a run with large batches takes pages from the system anew in each, and its threads
wait for each other there. The allocator reads the variable once, when polars is loaded, which puts its own defaults
before what it finds.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "_RJEM_MALLOC_CONF"
KEPT: Final = "dirty_decay_ms:10000"

if "polars" not in sys.modules:
    os.environ.setdefault(VARIABLE, KEPT)
