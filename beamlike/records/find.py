"""Finds the file with the records of a run, from the path that a user gives for the run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches

from beamlike.errors import ViewError
from beamlike.io.files.paths import path_text
from beamlike.records.lines import HEAD_BYTES, are_records
from beamlike.records.writer import RECORDS_FILE
from beamlike.system.path_names import is_remote

_DEPTH = 3
_MOST_LISTED = 5


def find_run(run: str | os.PathLike[str]) -> str:
    """Finds the records file of a run. `run` is the file itself, a folder that contains it, or a checkpoint.

    Raises `FileNotFoundError`, which names the nearest runs, and `ViewError` for a path of another file system.
    """
    path = path_text(run)
    if is_remote(path):
        raise ViewError(
            f"the records of {path!r} are not of this machine's file system; copy beamlike/{RECORDS_FILE} of that "
            "checkpoint here, and name the copy"
        )
    if os.path.isfile(path):
        return path
    for place in (RECORDS_FILE, os.path.join("beamlike", RECORDS_FILE)):
        if os.path.isfile(found := os.path.join(path, place)):
            return found
    if os.path.isfile(os.path.join(path, "beamlike", "manifest.json")):
        raise FileNotFoundError(
            f"the run of the checkpoint {path!r} has no records yet: it is starting, or ended before it began a batch"
        )
    near = list(runs_below(path)) if os.path.isdir(path) else []
    if len(near) == 1:
        return near[0]
    raise FileNotFoundError(_nothing(path, near))


def _nothing(path: str, below: list[str]) -> str:
    if below:
        return f"there are several runs in {path!r}; name one: {_listed(below)}"
    what = f"no run in the folder {path!r}" if os.path.isdir(path) else f"no run {path!r}"
    expected = (
        f"a run is the path that the runner got as records=, or a checkpoint with beamlike/{RECORDS_FILE}"
    )
    near = _nearest(path)
    return f"there is {what}; {expected}" + (f"; the nearest: {_listed(near)}" if near else "")


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _MOST_LISTED} more" if len(paths) > _MOST_LISTED else ""
    return ", ".join(map(repr, paths[:_MOST_LISTED])) + more


def _nearest(path: str) -> list[str]:
    """Returns the runs in the nearest folder that exists above `path`; those with similar names first."""
    folder = os.path.dirname(os.path.abspath(path))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    runs = [os.path.relpath(found) for found in runs_below(folder)]
    alike = get_close_matches(path, runs, n=_MOST_LISTED, cutoff=0.5)
    return [*alike, *(run for run in runs if run not in alike)]


def runs_below(folder: str) -> Iterator[str]:
    """Yields the records files in a folder and up to `_DEPTH` levels below it, sorted by name."""
    depth = folder.rstrip(os.sep).count(os.sep)
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and here.count(os.sep) - depth < _DEPTH
        )
        for name in sorted(names):
            if name.endswith(".jsonl") and is_run(found := os.path.join(here, name)):
                yield found


def is_run(path: str) -> bool:
    """True if the file begins like the records of a run."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return are_records(file.read(HEAD_BYTES))
    except OSError:
        return False
