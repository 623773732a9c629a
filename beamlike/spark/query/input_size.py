"""Recognizes small input, for which one shard is enough."""

from __future__ import annotations

from typing import Final

from beamlike.io.sources import ReadFromMemory, ReadInFiles, ReadInSteps
from beamlike.plan.model import Plan, SourcePlan
from beamlike.system.path_names import is_remote

SMALL: Final = 4_000_000
"""The size in bytes up to which the whole input of a run is small. A core processes it in a few seconds at most, and
each further task costs some 12 ms of Python in every batch, whatever it does.
"""


def is_small(plan: Plan) -> bool:
    """True if the input of all sources is known, and small in total: files on this machine, rows in memory, or test
    streams.
    """
    total = 0
    for source in plan.sources.values():
        size = _size(source)
        if size is None or (total := total + size) > SMALL:
            return False
    return True


def _size(plan: SourcePlan) -> int | None:
    """Returns the size of a source's input in bytes, files as they are stored; None if it is not known."""
    source = plan.source
    if isinstance(source, ReadInSteps):
        return 0
    if isinstance(source, ReadFromMemory):
        return int(source.all_rows().estimated_size())
    path = getattr(source, "path", None)
    if not isinstance(source, ReadInFiles) or not isinstance(path, str) or is_remote(path):
        return None
    try:
        return sum(file.size for file in source.found(later=True))
    except OSError:  # the source raises it again when it is opened, with all that it knows of it
        return None
