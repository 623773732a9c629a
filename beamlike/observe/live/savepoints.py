"""The savepoints in a folder, as a list shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Final

import attrs

from beamlike.runtime.run.unfinished import FACTS

_DEPTH: Final = 3


@attrs.frozen
class SavedRun:
    """A savepoint: its folder, the pipeline and id of the saved run, its last batch, and when it was taken (us)."""

    path: str
    pipeline: str
    run: str
    batch: int
    taken: int


def savepoints_below(place: str) -> Iterator[SavedRun]:
    """Yields the savepoints in a folder and up to three levels below it."""
    depth = place.rstrip(os.sep).count(os.sep)
    for here, folders, names in os.walk(place):
        below = here.count(os.sep) - depth
        if FACTS in names:
            folders.clear()
            if (saved := _saved(here)) is not None:
                yield saved
        folders[:] = sorted(name for name in folders if not name.startswith(".") and below < _DEPTH)


def _saved(folder: str) -> SavedRun | None:
    """Reads a savepoint; None if it is damaged, which `beamlike restore` explains."""
    path = os.path.join(folder, FACTS)
    try:
        with open(path, encoding="utf-8") as file:
            facts: dict[str, Any] = json.load(file)
        manifest = facts["manifest"]
        taken = os.stat(path).st_mtime_ns // 1000
        return SavedRun(folder, str(manifest["pipeline"]), str(manifest["run"]), int(facts["batch"]), taken)
    except (OSError, ValueError, KeyError, TypeError):
        return None
