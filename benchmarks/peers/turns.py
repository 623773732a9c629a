"""The turns of a job whose process stays, as a measurement takes them. Not a script.

Without packages, since each engine has an environment of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

ENDED = "BENCHMARK_TURNS"
"""The variable with the file descriptor to which the end of each turn is reported."""


def turns() -> Iterator[Path]:
    """Yields the folder of each turn, which comes as a line of standard input, and reports the end of the turn."""
    with os.fdopen(int(os.environ[ENDED]), "w") as ended:
        for line in sys.stdin:
            yield Path(line.rstrip("\n"))
            print(file=ended, flush=True)
