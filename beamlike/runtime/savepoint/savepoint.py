"""Savepoints, which are the same from either runner, and the checks before a run is saved or restored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import attrs

from beamlike.errors import CheckpointError
from beamlike.plan.differences import Remedy, refusal
from beamlike.plan.manifest import checked, require_readable
from beamlike.plan.matching import Fit
from beamlike.runtime.run.dead_letter_limit import Counted
from beamlike.runtime.run.unfinished import FACTS, MARK
from beamlike.system.path_names import file_name
from beamlike.system.seals import sealed, unsealed
from stages.facts import SPARSE, from_facts, to_facts

_STATE: Final = "state/"
_BESIDE: Final = {
    "Rows": "rows in memory",
    "TestStream": "test streams",
    "Refreshed": "readings",
    "ReadingsAsFiles": "readings",
}


class SavedFiles(Protocol):
    """The files of a savepoint. Raises `CheckpointError` if the storage fails."""

    def read(self, name: str) -> str | None:
        """Returns the text of a file; None if it does not exist."""

    def tree(self, folder: str) -> list[str]:
        """Returns the files below a folder, by relative path, without those that Hadoop adds."""

    def size_and_digest(self, name: str) -> tuple[int, str] | None:
        """Returns the size of a file in bytes and the SHA-256 of its content; None if it does not exist."""


@attrs.frozen
class Savepoint:
    """A saved run: its manifest, its last batch, Spark's offset log by source, and its counts of dead letters.

    `positions` has the positions of sources that were read in process. `cut` has, by source, the files that were read
    in part: the number of pieces read, and the greatest number of rows in a piece. `files` has the size in bytes and
    the SHA-256 of every other file of the savepoint.
    """

    path: str
    manifest: dict[str, Any]
    batch: int
    offsets: dict[str, list[str]]
    tally: Counted
    positions: dict[str, dict[str, Any]] = attrs.field(factory=dict, metadata=SPARSE)
    cut: dict[str, dict[str, tuple[int, int]]] = attrs.field(factory=dict, metadata=SPARSE)
    files: dict[str, tuple[int, str]] = attrs.field(factory=dict, metadata=SPARSE)

    @property
    def after(self) -> dict[str, Any]:
        """The id of the saved run and its last batch, after which a restored run continues."""
        return {"run": self.manifest["run"], "batch": self.batch}

    def at(self, *names: str) -> str:
        """Returns a path in the savepoint."""
        return "/".join([self.path.rstrip("/"), *names])

    def files_of(self, name: str) -> str:
        """Returns the path of the file that lists which files of a source were read."""
        return self.at("files", f"{file_name(name, blanks=True)}.json")

    def source(self, name: str, stream: int) -> str:
        """Returns the folder with Spark's log of one stream of a source."""
        return self.at("sources", file_name(name, blanks=True), str(stream))

    def to_json(self) -> str:
        """Returns the facts of the savepoint as JSON. They are written last: a folder without them is no savepoint."""
        facts = {name: fact for name, fact in to_facts(self).items() if name != "path"}
        return json.dumps(sealed(facts, FACTS), indent=1, sort_keys=True)

    def listing(self, files: SavedFiles) -> Savepoint:
        """Returns the savepoint with a list of the files that are now in its folder."""
        listed = {
            name: files.size_and_digest(self.at(name)) for name in files.tree(self.path) if name != MARK
        }
        return attrs.evolve(self, files={name: found for name, found in listed.items() if found is not None})

    def require_whole(self, files: SavedFiles) -> None:
        """Raises `CheckpointError` if a listed file is missing or was changed."""
        for name, listed in sorted(self.files.items()):
            found = files.size_and_digest(self.at(name))
            if found is None:
                raise self.damaged(f"{name} is missing")
            # The size is compared first, to report a truncated file as such.
            if found[0] != listed[0]:
                raise self.damaged(f"{name} has {found[0]:,} bytes, and {listed[0]:,} were written")
            if found != listed:
                raise self.damaged(f"{name} is not what was written")

    def state_files(self) -> list[str]:
        """Returns the paths of the files that contain state."""
        return [
            self.at(name)
            for name in sorted(self.files)
            if name.startswith(_STATE) and name.endswith(".parquet")
        ]

    def damaged(self, what: str) -> CheckpointError:
        """Returns the error for damaged content of the savepoint."""
        return damaged(self.path, what)

    def require_fitting(self, fit: Fit) -> None:
        """Raises `CheckpointError` if the plan cannot continue from the saved state."""
        refused = [found for found in fit.differences if found.remedy != Remedy.RESTORE]
        if refused:
            raise CheckpointError(refusal(refused, f"the savepoint {self.path}", {}))

    def left_out(self, described: Mapping[str, Any]) -> Iterator[str]:
        """Yields a text for each part of the saved run that the new plan no longer has."""
        for kind in ("source", "stage"):
            for name in self.manifest[f"{kind}s"]:
                if name not in described[f"{kind}s"]:
                    yield f"{kind} {name!r} is gone: its part of the savepoint is left out"


def load(path: str, files: SavedFiles) -> Savepoint:
    """Loads the savepoint in a folder. Raises `CheckpointError` if there is none, or if it is damaged."""
    text = files.read(f"{path.rstrip('/')}/{FACTS}")
    if text is None:
        raise no_savepoint(path)
    try:
        saved = from_facts(Savepoint, {**unsealed(text, FACTS, f"its {FACTS}"), "path": path})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _require_readable(text, path)
        raise damaged(path, str(error)) from None
    saved.require_whole(files)
    return attrs.evolve(saved, manifest=checked(saved.manifest, f"the savepoint {path}"))


def _require_readable(text: str, path: str) -> None:
    """Raises `CheckpointError` if a savepoint that cannot be loaded is of another encoding."""
    with suppress(ValueError, TypeError, KeyError):
        require_readable(json.loads(text)["manifest"], f"the savepoint {path}")


def damaged(path: str, what: str) -> CheckpointError:
    """Returns the error for damaged content of the savepoint at this path."""
    return CheckpointError(f"the savepoint {path} is damaged: {what}; restore another one, or a copy of it")


def require_to_save(manifest: Mapping[str, Any], done: int, begun: int, checkpoint: str) -> None:
    """Raises `CheckpointError` if no other run could continue from the state of this run.

    `done` is its last batch that is done, and `begun` the last one that was begun; -1 for none.
    """
    where = f"the run of the checkpoint {checkpoint}"
    for name, facts in manifest["sources"].items():
        if what := _BESIDE.get(facts["kind"]):
            raise CheckpointError(
                f"source {name!r}: {what} are kept in the checkpoint; there is no savepoint of them"
            )
    if manifest["restoring"]:
        raise CheckpointError(f"{where} was not restored completely; restore its savepoint again")
    if manifest["draining"] and not manifest["drained"]:
        raise CheckpointError(
            f"{where} was stopped while it was drained, and sinks may have a part of that; run it with drain=True to "
            "its end: then no state is left to continue from"
        )
    if manifest["drained"]:
        raise CheckpointError(
            f"{where} was drained: its windows are closed, and no state is left to continue from"
        )
    if done < 0:
        raise CheckpointError(f"{where} has not finished a batch; there is nothing to save")
    if begun > done and not manifest["whole"]:
        raise CheckpointError(
            f"{where} ended within batch {begun}, and sinks may have a part of it; run it once more with the plan that "
            "it has, to its end or until it is stopped by SIGTERM or Ctrl-C, and then take the savepoint"
        )


def no_run(checkpoint: str) -> CheckpointError:
    """Returns the error for a folder that is no checkpoint."""
    return CheckpointError(f"there is no run to save in {checkpoint}: it has no beamlike/manifest.json")


def no_savepoint(folder: str) -> CheckpointError:
    """Returns the error for a folder that is no savepoint."""
    return CheckpointError(f"there is no savepoint in {folder}: it has no {FACTS}, which is written last")


def not_empty(folder: str, what: str) -> CheckpointError:
    """Returns the error for a folder that must be new."""
    return CheckpointError(f"{folder} is not empty; {what} into a new folder")
