"""What a stage knows of everything upstream, kept in its store between two batches."""

from __future__ import annotations

from typing import Final

from stages.facts import from_json, to_json
from stages.progress.inputs import Inputs
from stages.state.store import StateStore

INPUTS: Final = "inputs"
"""Where a shard of a stage keeps its `Inputs`: whatever has taken a step has them."""


def load_inputs(stage: str, store: StateStore) -> Inputs:
    """What a shard of the stage knows of everything upstream; nothing before its first step."""
    value = store.get(stage, INPUTS)
    return Inputs() if value is None else from_json(Inputs, value)


def keep_inputs(stage: str, store: StateStore, inputs: Inputs) -> None:
    """Keeps that for the next step."""
    store.put(stage, INPUTS, to_json(inputs, ordered=True))
