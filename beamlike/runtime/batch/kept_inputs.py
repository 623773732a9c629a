"""Stores the inputs of a stage between two batches: its knowledge of the watermarks of everything upstream."""

from __future__ import annotations

from typing import Final

from stages.facts import from_json, to_json
from stages.progress.inputs import Inputs
from stages.state.store import StateStore

INPUTS: Final = "inputs"
"""The key under which a shard of a stage stores its `Inputs`. It exists from the first step of the shard on."""


def load_inputs(stage: str, store: StateStore) -> Inputs:
    """Loads the inputs of a shard of the stage. They are empty before its first step."""
    value = store.get(stage, INPUTS)
    return Inputs() if value is None else from_json(Inputs, value)


def keep_inputs(stage: str, store: StateStore, inputs: Inputs) -> None:
    """Stores the inputs for the next step."""
    store.put(stage, INPUTS, to_json(inputs, ordered=True))
