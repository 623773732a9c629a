"""Checks Spark's part of a checkpoint before a query continues with it: its logs, its state, and its path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import uri
from beamlike.plan.manifest import Store
from beamlike.records.tail import last_recorded
from beamlike.records.writer import RECORDS_FILE
from beamlike.spark.checkpoint.checkpoint import VERSIONS, Checkpoint
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, last_batch, offset_lines

PUT_BACK: Final = "put back"
"""The key in a manifest for the position files that `beamlike restore` wrote. The first run continues from them."""

_VERSION: Final = re.compile(r"(\d+)(_[^.]*)?\.(?:changelog|zip|delta|snapshot)")
_SHARDS: Final = "spark.sql.shuffle.partitions"


def make_ready(checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> None:
    """Prepares a checkpoint at its current path for Spark. Raises `CheckpointError` if it is incomplete."""
    _require_sound(checkpoint, manifest)
    _require_newest(checkpoint, manifest)
    for name in manifest.get(PUT_BACK, ()):
        if not checkpoint.files.latest(checkpoint.at(name)):
            raise checkpoint.damaged(f"{checkpoint.at(name)} is gone or empty")
    for operator in _stateful(manifest):
        _move_state(checkpoint, f"state/{operator}")


def _move_state(checkpoint: Checkpoint, state: str) -> None:
    """Updates the paths of state schemas. Spark stores absolute paths, which are wrong after a checkpoint was moved."""
    schemas = uri(checkpoint.of_spark(state, "_stateSchema")) + "/"
    for name in checkpoint.files.names(checkpoint.of_spark(state, "_metadata", "v2")):
        file = checkpoint.of_spark(state, "_metadata", "v2", name)
        text = checkpoint.files.read(file) or ""
        moved = re.sub(rf'"[^"]*/{state}/_stateSchema/', lambda _: f'"{schemas}', text)
        if moved != text:
            checkpoint.files.write_for_spark(file, moved)


def _require_sound(checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> None:
    """Raises `CheckpointError` if Spark's logs are incomplete, or belong to another number of shards.

    Spark itself would not notice: it would repeat batches that are already in the state, or ignore the state of a
    shard.
    """
    _mend(checkpoint)
    begun, done = last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits")
    if begun < 0:
        if done >= 0 or checkpoint.files.names(checkpoint.of_spark("state")):
            raise checkpoint.damaged("Spark's offsets are gone")
        return
    if done not in (begun - 1, begun):
        name = f"offsets/{done}" if done > begun else f"commits/{begun - 1}"
        raise checkpoint.damaged(f"Spark's {name} is gone")
    _require_whole(checkpoint, "metadata", f"offsets/{begun}")
    if done >= 0:
        _require_whole(checkpoint, f"offsets/{done}", f"commits/{done}")
    shards = _facts(checkpoint, begun).get("conf", {}).get(_SHARDS)
    if shards not in (None, str(manifest["shards"])):
        raise CheckpointError(
            f"the manifest of the checkpoint {checkpoint.path} says {manifest['shards']} shards, and its state has "
            f"{shards}: put that number back into beamlike/manifest.json; `beamlike restore` changes it"
        )


def _facts(checkpoint: Checkpoint, batch: int) -> dict[str, Any]:
    """Returns the facts of a batch in Spark's offset log."""
    try:
        found: dict[str, Any] = json.loads(offset_lines(checkpoint, batch)[1])
    except (ValueError, IndexError):
        raise checkpoint.damaged(f"Spark's offsets/{batch} is not whole") from None
    return found


def _require_newest(checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> None:
    """Raises `CheckpointError` if records or state have a batch that Spark's logs lack.

    Spark would give its number to other input, and sinks would skip that as already written.
    """
    begun = last_batch(checkpoint, "offsets")
    recorded = last_recorded(checkpoint.at(RECORDS_FILE)) if checkpoint.is_local else -1
    states = [_last_of_state(checkpoint, operator) for operator in _stateful(manifest)]
    if manifest["store"] == Store.FILES:
        names = checkpoint.files.names(f"{checkpoint.state}/{VERSIONS}")
        states += [int(name.removesuffix(".json")) for name in names]
        _require_version(checkpoint, states)
    done = max([recorded, *states])
    if done > begun:
        raise checkpoint.damaged(
            f"Spark's offsets/{done} is gone, of a batch that the records or the state have"
        )


def _require_version(checkpoint: Checkpoint, versions: Iterable[int]) -> None:
    """Raises `CheckpointError` if the state after the last batch is not among these versions."""
    done = last_batch(checkpoint, "commits")
    if done >= 0 and done not in versions:
        name = f"{checkpoint.state}/{VERSIONS}/{done:09d}.json"
        raise checkpoint.damaged(f"the version {name} of the state is gone")


def _stateful(manifest: Mapping[str, Any]) -> range:
    """Returns the numbers of the operators whose state is in Spark's own store."""
    return range(manifest["operators"] if manifest["store"] == Store.SPARK else 0)


def _last_of_state(checkpoint: Checkpoint, operator: int) -> int:
    """Returns the last batch whose state is stored by this operator. A version of state has the number of the next
    batch.
    """
    names = checkpoint.files.names(checkpoint.of_spark("state", str(operator), "0"))
    found = filter(None, map(_VERSION.fullmatch, names))
    return max((int(version[1]) - 1 for version in found), default=-1)


def _mend(checkpoint: Checkpoint) -> None:
    """Removes empty files at the end of Spark's logs. A power failure can leave them, because Spark does not sync its
    logs.

    No data depends on them: tasks write only after the offsets of their batch are synced (`SparkFiles`), and a batch
    without a commit is replayed.
    """
    begun, done = last_batch(checkpoint, "offsets"), last_batch(checkpoint, "commits")
    if done == begun:
        logs, also = [f"commits/{done}"] if done >= 0 else [], []
    elif done == begun - 1:
        logs, also = [f"offsets/{begun}", *_last_of_sources(checkpoint)], [f"offsets/{begun}"]
    else:
        return
    if empty := [name for name in logs if checkpoint.files.read(checkpoint.of_spark(name)) == ""]:
        for name in {*empty, *also}:
            checkpoint.files.remove(checkpoint.of_spark(name))


def _last_of_sources(checkpoint: Checkpoint) -> Iterable[str]:
    for source in checkpoint.files.names(checkpoint.of_spark("sources")):
        names = checkpoint.files.names(checkpoint.of_spark("sources", source))
        if numbered := [name for name in names if name.isdigit()]:
            yield f"sources/{source}/{max(numbered, key=int)}"


def _require_whole(checkpoint: Checkpoint, *names: str) -> None:
    """Raises `CheckpointError` unless these files of Spark exist and consist of lines of JSON, after the version in a
    log.
    """
    for name in names:
        text = checkpoint.files.read(checkpoint.of_spark(name))
        if text is None:
            raise checkpoint.damaged(f"Spark's {name} is gone")
        lines = text.splitlines()
        if not _are_json(lines if name == "metadata" else lines[1:]):
            raise checkpoint.damaged(f"Spark's {name} is not whole")


def _are_json(lines: list[str]) -> bool:
    try:
        return [json.loads(line) for line in lines if line != NO_OFFSET] != []
    except ValueError:
        return False
