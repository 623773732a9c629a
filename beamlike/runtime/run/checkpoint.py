"""The checkpoint folder of a run, on either runner: its manifest and its lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from beamlike.errors import CheckpointError
from beamlike.plan.differences import Remedy, refusal
from beamlike.plan.manifest import MANIFEST, Runner, new_manifest, parse
from beamlike.plan.matching import Fit
from beamlike.runtime.batch.storage import stored
from beamlike.runtime.run.unfinished import MarkFiles, require_new
from beamlike.system.locks import InUse, Lock
from beamlike.system.path_names import is_remote
from beamlike.system.seals import sealed, unsealed
from beamlike.system.texts import shell_word

OURS: Final = "beamlike"
"""The folder in a checkpoint to which only this package writes."""


class TextFiles(MarkFiles, Protocol):
    """Small text files that are replaced atomically. Raises `CheckpointError` if the storage fails."""

    def latest(self, name: str) -> str | None:
        """Returns the text that `replace` last stored under this name; None if there is none."""

    def replace(self, name: str, text: str) -> None:
        """Replaces the text of a file. If the process is killed meanwhile, the file has either the old or the
        new text.
        """


@attrs.frozen
class CheckpointFolder:
    """The parts of a checkpoint that both runners share. Each runner defines `files` and `has_batches`."""

    path: str

    @property
    def files(self) -> TextFiles:
        """The small text files in the checkpoint's storage."""
        raise NotImplementedError

    @property
    def has_batches(self) -> bool:
        """True if the runner's log has a batch that a run has begun."""
        raise NotImplementedError

    def at(self, *names: str) -> str:
        """Returns a path below this package's own folder in the checkpoint. Without `names`, returns that folder."""
        return "/".join([self.path.rstrip("/"), OURS, *names])

    @property
    def dead_letters(self) -> str:
        """The folder for dead letters that no collection of the pipeline receives."""
        return self.at("dead-letters")

    def damaged(self, what: str) -> CheckpointError:
        """Returns the error for damaged content of the checkpoint."""
        return CheckpointError(
            f"the checkpoint {self.path} is damaged: {what}; restore a savepoint, or put back a copy of the whole "
            "checkpoint (an older one continues with continue_as=), or start again with another checkpoint"
        )

    def lock(self, what: str) -> Lock:
        """Locks the checkpoint. `what` describes the holder. Raises `CheckpointError` if another holder has locked it.

        An object store has no locks. If two queries run on one checkpoint there, Spark fails the one that is second to
        commit a batch.
        """
        try:
            with stored("write", self.path):
                return Lock.take(self.at("lock"), what)
        except InUse as error:
            raise CheckpointError(
                f"the checkpoint {self.path} is in use by {error}; stop that first, or wait for its end"
            ) from None

    def manifest(self) -> dict[str, Any] | None:
        """Returns the manifest of the checkpoint's run; None for a new checkpoint.

        Raises `CheckpointError` if the manifest is damaged, or if it is missing although batches were planned. With a
        new manifest, the last batch would be replayed under another name.
        """
        name = self.at(MANIFEST)
        text = self.files.latest(name)
        if text is not None:
            return parse(text, f"the checkpoint {self.path}")
        if not self.has_batches:
            require_new(self.path, self.files)
            return None
        raise CheckpointError(
            f"the checkpoint {self.path} has lost its manifest, {name}: put it back from a copy, or start again with "
            "another checkpoint"
        )

    def new_manifest(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the manifest of a new run."""
        return new_manifest(described)

    def open(self, fit: Fit, *, draining: bool) -> dict[str, Any]:
        """Returns the manifest for this plan: the existing one if the plan fits it, or a new one.

        Raises `CheckpointError`, which names each stage that differs, its differences, and the remedies.
        """
        saved = self.manifest() or self.new_manifest(fit.described)
        require_fitting(saved, fit, self.path, draining=draining)
        version = max(saved["version"], fit.described["version"])
        manifest = {**saved, **fit.described, "version": version, "whole": False}
        self.save(manifest)
        return manifest

    def save(self, manifest: Mapping[str, Any]) -> None:
        """Stores the manifest."""
        self.keep(MANIFEST, manifest)

    def keep(self, name: str, facts: Mapping[str, Any]) -> None:
        """Stores a file of facts, sealed."""
        self.files.replace(self.at(name), json.dumps(sealed(facts, name), indent=1, sort_keys=True))

    def kept(self, name: str) -> Any:
        """Returns the facts that `keep` stored; None if there is no file. Raises `CheckpointError` for
        damaged content.
        """
        text = self.files.latest(self.at(name))
        try:
            return None if text is None else unsealed(text, name, self.at(name))
        except ValueError as error:
            raise self.damaged(str(error)) from None


class Drained(CheckpointError):
    """The run of a checkpoint has ended, and no other may continue it."""


def saved_manifest(path: str) -> dict[str, Any] | None:
    """Returns the manifest of a checkpoint that is not open yet; None if it cannot be read from this process.

    Raises `CheckpointError` if it is damaged.
    """
    if is_remote(path):
        return None
    try:
        text = Path(path, OURS, MANIFEST).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None  # either there is no manifest yet, or it is checked when the checkpoint is opened
    return parse(text, f"the checkpoint {path}")


def require_fitting(saved: Mapping[str, Any], fit: Fit, path: str, *, draining: bool) -> None:
    """Raises `CheckpointError` if a plan cannot continue from the checkpoint that has this manifest."""
    if saved["restoring"]:
        raise CheckpointError(
            f"the checkpoint {path} was not restored completely; remove it, and restore the savepoint again"
        )
    if found := fit.differences:
        described = fit.described
        made = f"beamlike savepoint {shell_word(path)} SAVEPOINT"
        to = (
            f"--runner spark --shards {described['shards']}"
            if described["runner"] == Runner.SPARK
            else "--runner local"
        )
        put_back = f"beamlike restore SAVEPOINT CHECKPOINT MODULE:PIPELINE {to}"
        remedies = {Remedy.RESTORE: f"{Remedy.RESTORE}: {made}, then {put_back}"}
        raise CheckpointError(refusal(found, f"the checkpoint {path}", remedies))
    if saved["drained"]:
        raise Drained(
            f"the run of the checkpoint {path} was drained: all its windows are closed, so new "
            "rows would be dropped as late; start again with another checkpoint"
        )
    if saved["draining"] and not draining:
        raise CheckpointError(
            f"the run of the checkpoint {path} was stopped while it was drained; finish that with drain=True"
        )
