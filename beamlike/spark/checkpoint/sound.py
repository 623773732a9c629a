"""What Spark keeps in a checkpoint, before a query goes on with it: is it whole, and does it know where it is?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from beamlike.errors import CheckpointError
from beamlike.io.files.paths import uri
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import NO_OFFSET, last_batch, offset_lines

_SHARDS: Final = "spark.sql.shuffle.partitions"


def make_ready(checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> None:
    """Has Spark go on with a checkpoint wherever it is now. Raises `CheckpointError` where it is not whole."""
    _require_sound(checkpoint, manifest)
    for level in range(manifest["levels"]):
        _move_state(checkpoint, f"state/{level}")


def _move_state(checkpoint: Checkpoint, state: str) -> None:
    """Spark notes the schemas of a state by their whole paths, which lead nowhere once a checkpoint has moved."""
    schemas = uri(checkpoint.of_spark(state, "_stateSchema")) + "/"
    for name in checkpoint.files.names(checkpoint.of_spark(state, "_metadata", "v2")):
        file = checkpoint.of_spark(state, "_metadata", "v2", name)
        text = checkpoint.files.read(file) or ""
        moved = re.sub(rf'"[^"]*/{state}/_stateSchema/', lambda _: f'"{schemas}', text)
        if moved != text:
            checkpoint.files.write(file, moved)


def _require_sound(checkpoint: Checkpoint, manifest: Mapping[str, Any]) -> None:
    """Raises `CheckpointError` where Spark's logs lack what they should have, or are of other shards.

    Spark itself would do batches again that are in the state already, or leave out the state of a shard.
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
    shards = json.loads(offset_lines(checkpoint, begun)[1]).get("conf", {}).get(_SHARDS)
    if shards not in (None, str(manifest["shards"])):
        raise CheckpointError(
            f"the manifest of the checkpoint {checkpoint.path} says {manifest['shards']} shards, and its state has "
            f"{shards}: put that number back into beamlike/manifest.json; `beamlike restore` changes it"
        )


def _mend(checkpoint: Checkpoint) -> None:
    """Removes what a power cut has left empty at the end of Spark's logs, as Spark does not sync them.

    Nothing depends on it: tasks write only when the offsets of their batch are synced (`SparkFiles`), and a batch of
    which the end is not noted is done again.
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
    """That these files of Spark's are there, and are lines of JSON, but for one with the version of a log."""
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
